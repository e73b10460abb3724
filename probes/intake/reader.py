"""What one text tells, by what it is: stacks, processes, the output of tools, a log. It lands in `brought`.

Shape    Reader; the sorter is one that also takes files apart
Errors   ParseError where a text is not what it seemed to be
"""

from __future__ import annotations

import contextlib
from typing import Any

from probes import catalog
from probes.catalog._cluster_facts import Cluster
from probes.catalog.ranks.process_extract import Extract, environments_in, extracts_of, ps_rows, variables_in
from probes.catalog.ranks.process_lines import extracts_told
from probes.catalog.stacks.text import FAULT_THREAD, faulthandler, stacks_of
from probes.core import Capture, ParseError, Reading
from probes.intake.brought import Brought, NodeFile, ProcessFile, StackFile
from probes.intake.by_rank import marked
from probes.intake.hosts import kernel_host
from probes.intake.items import HEAD, LONG_LINE, PEEK, TEXT_BYTES, Item, Unread
from probes.intake.kinds import ENVIRON, Known
from probes.intake.logs import below_a_tool, log_file, whole_text
from probes.intake.metric_files import table_files
from probes.intake.names import stem
from probes.intake.rank_pids import Told, ranks_told
from probes.intake.tools import Tool, beside, tools_of
from probes.intake.tools._text import taken_at
from probes.intake.tools.gpu import stuck_in_driver
from probes.intake.tools.host import (
    kernel_messages,
    pressure,
    process_status,
    process_table,
    stopped_processes,
    stuck_in_files,
)
from probes.intake.tools.training import environment, launch, looked, native_stacks

TOLD = {"cluster.events": ("scheduler_kill",)}  # events of a log that these facts tell, too
BESIDES = 1_048_576  # characters at each end of a log in which more than events is looked for
# Who takes the CPU, be it of the job or not; who is stuck, and who is stopped.
OF_STATUS = (process_status.TOOL, pressure.TOOL, kernel_messages.TOOL)
OF_PS = (process_table.TOOL, stuck_in_driver.TOOL, stuck_in_files.TOOL, stopped_processes.TOOL)
NO_FORM = "no line in it has a known form"


class Reader:
    def __init__(self) -> None:
        self.brought = Brought()

    def _unread(self, item: Item, why: str) -> None:
        if why == NO_FORM and any(told.ref == item.ref for told in self.brought.told_pids):
            return  # it tells which process each rank is, and no more
        self.brought.unread.append(Unread(item.ref, why))

    def _looked_at(self, item: Item) -> None:
        """Which process each rank is, and when somebody looked: of the whole file, before it is taken apart."""
        if item.binary or b"\0" in item.head:
            return
        text = item.upto(PEEK).decode("utf-8", "replace").replace("\r\n", "\n")
        pids, sure = ranks_told(text)
        if pids:
            self.brought.told_pids.append(Told(item.ref, item.inside, pids, sure))
        facts = looked.looks(text)
        if facts is not None:
            self.brought.captures.append((item.ref, Reading(Capture("", looked.TOOL.probe, "ok"), facts, None, ())))

    def _stacks(self, item: Item, text: str) -> None:
        processes = stacks_of(text)
        form = 3 if text.lstrip()[:1] == "[" and processes[0].how == "py-spy" else 1
        if form == 1 and processes and processes[0].how == "faulthandler":
            form = 0
        elif any(frame.line is None for one in processes for thread in one.threads for frame in thread.frames):
            form = max(form, 2)
        self.brought.stacks.append(StackFile(item.ref, item.inside, form, processes))
        if native_stacks.fits(text[:HEAD], item.name):  # also where nothing says of which rank
            self._tool(item, native_stacks.TOOL, text)

    def _process(self, item: Item, known: Known) -> None:
        if known.kind == "environment":
            of = ENVIRON.search(item.name)  # `tr ... < /proc/812/environ`
            extracts = [Extract(pid, variables=variables_in(told)) for pid, told in environments_in(known.text)]
            if len(extracts) < 2:
                extracts = [Extract(int(of[1]) if of else 0, variables=variables_in(known.text))]
            if environment.fits(known.text[:HEAD], item.name):
                self._tool(item, environment.TOOL, known.text)
        elif known.kind == "states":
            extracts = extracts_told(known.text)
        else:
            extracts = ps_rows(known.text) if known.kind == "ps" else extracts_of(known.text)
        if not extracts:
            self._unread(item, "lists no process")
        else:
            if known.kind == "ps" and environment.of_commands(known.text):
                self._tool(item, environment.TOOL, known.text)
            for tool in OF_PS if known.kind == "ps" else OF_STATUS if known.kind == "process" else ():
                if tool.fits(known.text[:HEAD], item.name):
                    self._tool(item, tool, known.text)
            if known.kind == "ps" and launch.tells(known.text[:HEAD]):
                self._tool(item, launch.TOOL, known.text)
            if known.kind == "process":
                self._stuck(item, stuck_in_driver.TOOL, stuck_in_driver.of_extracts(extracts))
                self._stuck(item, stuck_in_files.TOOL, stuck_in_files.of_extracts(extracts))
            self.brought.processes.append(ProcessFile(item.ref, item.inside, known.kind == "ps", tuple(extracts)))

    def _stuck(self, item: Item, tool: Tool, facts: Any) -> None:
        """Tasks of /proc that hang in the kernel."""
        if facts is not None and tool.findings is not None:
            reading = Reading(Capture("", tool.probe, "ok"), facts, None, tuple(tool.findings(facts)))
            self.brought.nodes.append(NodeFile(item.ref, item.inside, tool.probe, reading, ""))

    def _of_node(self, item: Item, probe: str, text: str) -> bool:
        seen_at = item.seen_at if item.seen_at is not None else taken_at(text)
        reading = catalog.read(Capture("", probe, "ok", text.encode("utf-8", "replace"), at=seen_at))
        if reading.parse_error:
            self._unread(item, reading.parse_error)
            return False
        host = kernel_host(text) if probe == "host.kernel_log" else ""
        self.brought.nodes.append(NodeFile(item.ref, item.inside, probe, reading, host))
        return True

    def _tools(self, item: Item, first: Tool, text: str) -> None:
        """One output may tell several things. It is refused only where nothing could read it."""
        refused: ParseError | None = None
        read = False
        passed_on = (kernel_messages.TOOL,) if first.log and kernel_messages.fits(text[:HEAD], item.name) else ()
        for tool in dict.fromkeys((first, *tools_of(text[:HEAD], item.name), *passed_on)):
            try:
                self._tool(item, tool, text)
                read = True
            except ParseError as error:
                refused = refused or error
        if refused is not None and not read:
            if not first.log:
                raise refused
            if not self._log(item, Known("perhaps a log", text)):
                self._unread(item, NO_FORM)
        elif first.log and (log := below_a_tool(item, text, TOLD.get(first.probe, ()))) is not None:
            self.brought.logs.append(log)

    def _tool(self, item: Item, tool: Tool, text: str) -> None:
        judge = tool.findings if tool.findings is not None else catalog.load()[tool.probe].findings
        seen_at = item.seen_at if item.seen_at is not None else taken_at(text)
        found = tool.by_node(text) if tool.by_node is not None else {tool.host(text): tool.read(text)}
        for host, told in found.items():
            facts = tool.named(told, str(item.inside))
            reading = Reading(Capture("", tool.probe, "ok", at=seen_at), facts, None, tuple(judge(facts)))
            self.brought.nodes.append(NodeFile(item.ref, item.inside, tool.probe, reading, host))
            if isinstance(facts, Cluster):
                self.brought.named |= {pod.node for pod in facts.pods} - {""}

    def _whole(self, item: Item, text: str) -> str:
        """All of a log that tells, and a word on lines without end."""
        found = whole_text(item, text)
        if item.cut_lines:
            cut = f"lines of more than {LONG_LINE >> 10} KiB were cut off, {item.cut_lines} of them"
            self._unread(item, f"{cut}; the rest was read")
        return found

    def _log(self, item: Item, known: Known) -> bool:
        """Whether it told anything."""
        text = self._whole(item, known.text)
        tables = table_files(item, text)
        self.brought.nodes += tables
        besides = self._besides(item, text) or bool(tables)
        log = log_file(item, text, sure=known.kind == "log")
        if log is not None:
            self.brought.logs.append(log)
            if FAULT_THREAD.search(text):
                self._stacks_in_log(item, text[:TEXT_BYTES])
            return True
        if tables:
            return True
        told = kernel_messages.happened(text[:4_194_304]).encode("utf-8", "replace")
        bare = catalog.read(Capture("", "host.kernel_log", "ok", told))
        if bare.findings and not besides:  # lines that were cut out of a kernel log, without their times
            self.brought.nodes.append(NodeFile(item.ref, item.inside, "host.kernel_log", bare, kernel_host(text)))
            return True
        return besides

    def _stacks_in_log(self, item: Item, text: str) -> None:
        """What faulthandler wrote into a log: of the rank that is marked on each line, or of the log's own."""
        ranks = {rank: rows for rank, rows in marked(text).items() if FAULT_THREAD.search(rows)}
        for rank, rows in ranks.items():
            inside = item.inside.parent / stem(item.name) / f"rank{rank}.txt"
            self.brought.stacks.append(StackFile(f"{item.ref}: rank {rank}", inside, -1, (faulthandler(rows),)))
        if not ranks:
            self.brought.stacks.append(StackFile(item.ref, item.inside, -1, (faulthandler(text),)))

    def _besides(self, item: Item, text: str) -> bool:
        """What a log holds besides its events: values of replicas, and pieces of the program that somebody pasted."""
        before = len(self.brought.nodes)
        both_ends = text if len(text) <= 2 * BESIDES else f"{text[:BESIDES]}\n{text[-BESIDES:]}"
        for tool in beside(text[:HEAD], item.name):
            with contextlib.suppress(ParseError):
                self._tool(item, tool, both_ends)
        return len(self.brought.nodes) > before
