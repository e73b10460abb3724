"""The first pass: every file is recognised and read by the parser of its probe. Whose it is the second pass finds out.

Shape    sort(paths) -> Brought
Errors   NoSuchPath; what a parser refuses is an Unread
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from probes import catalog
from probes.catalog._cluster_facts import Cluster
from probes.catalog._flight_recorder_apart import Apart
from probes.catalog._flight_recorder_decode import Refused
from probes.catalog._process_extract import Extract, extracts_of, ps_rows, variables_in
from probes.catalog._process_lines import extracts_told
from probes.catalog._stack_text import faulthandler, stacks_of
from probes.core import Capture, ParseError, Reading, sections
from probes.intake import captures, samples
from probes.intake.brought import Brought, DumpFile, NodeFile, ProcessFile, StackFile
from probes.intake.by_node import items_by_node
from probes.intake.chained import outputs_of
from probes.intake.files import Given, walk
from probes.intake.hosts import kernel_host, told_by
from probes.intake.items import HEAD, LONG_LINE, PEEK, TEXT_BYTES, Item, Unread
from probes.intake.kinds import Known, kind_of
from probes.intake.logs import below_a_tool, log_file, unrotated, whole_text
from probes.intake.metric_files import node_files, table_files
from probes.intake.names import stem, without_keys
from probes.intake.pasted import parts_of
from probes.intake.tools import (
    Tool,
    beside,
    environment,
    launch,
    looked,
    native_stacks,
    packet_log,
    process_table,
    stuck_in_driver,
    tools_of,
)
from probes.intake.tools._text import taken_at
from probes.topology import Topology

HELPERS = min(4, os.cpu_count() or 1)
WAITING = 2 * HELPERS  # dumps in memory at a time
TOLD = {"cluster.events": ("scheduler_kill",)}  # events of a log that these facts tell, too
BESIDES = 1_048_576  # characters at each end of a log in which more than events is looked for
NESTED = 2  # files within files of `tail -v`


def sort(paths: Sequence[Path | Given], seen: Callable[[int], None] = lambda files: None) -> Brought:
    """Read everything. Dumps are reduced in a few processes side by side, at most WAITING of them in memory. `seen` is
    told how many files were looked at."""
    sorter = _Sorter()
    try:
        for count, item in enumerate(walk(paths)):
            seen(count)
            if isinstance(item, Unread):
                sorter.brought.unread.append(item)
            else:
                sorter.take(item)
        return sorter.end()
    finally:
        sorter.close()


MOST_PASTED = 20_000  # files that one file may be cut into


class _Sorter:
    def __init__(self) -> None:
        self.brought = Brought()
        self._saved = captures.Saved()
        self._trees = captures.Trees()
        self._pool = ThreadPoolExecutor(HELPERS)
        self._room = threading.Semaphore(WAITING)
        self._mine = threading.local()
        self._helpers: list[Apart] = []
        self._dumps: list[Future[DumpFile]] = []

    def take(self, item: Item) -> None:
        """One file. Nothing that a file holds may stop the others."""
        item.inside = without_keys(item.inside)
        if captures.is_expected(item):
            self._expected(item)
            return
        if captures.beside(item) or self._saved.take(item) or self._trees.take(item):
            return
        self._looked_at(item)
        self._take_apart(item, 0)

    def _looked_at(self, item: Item) -> None:
        """Times at which somebody looked: of the whole file, before it is taken apart, and of no node."""
        if item.binary or b"\0" in item.head:
            return
        facts = looked.looks(item.upto(PEEK).decode("utf-8", "replace").replace("\r\n", "\n"))
        if facts is not None:
            self.brought.captures.append((item.ref, Reading(Capture("", looked.TOOL.probe, "ok"), facts, None, ())))

    def _unread(self, item: Item, why: str) -> None:
        self.brought.unread.append(Unread(item.ref, why))

    def _expected(self, item: Item) -> None:
        try:
            self.brought.expected = Topology.from_body(json.loads(item.upto(TEXT_BYTES)))
        except (ValueError, RecursionError) as error:  # FormError is one
            self._unread(item, str(error))

    def _take(self, item: Item, nested: int) -> None:
        if item.head.count(b"\nJob summary\n") > 1:  # polls of NCCL's RAS: what lasts from one to the next tells
            self._of_node(item, "nccl.ras", item.upto(TEXT_BYTES).decode("utf-8", "replace").replace("\r\n", "\n"))
            return
        if nested < NESTED and self._pasted(item, nested):
            return
        if nested <= NESTED and self._chained(item, nested):
            return
        if len(item.head) < 1024 and (host := told_by(item.name, item.head.decode("utf-8", "replace"))):
            self.brought.told[item.inside.parent] = host
            return
        known = kind_of(item)
        if not isinstance(known, Known):
            self._other(item, known.why, nested)
        elif known.kind == "dump":
            self._room.acquire()
            self._dumps.append(self._pool.submit(self._dump, item, known.data))
        elif known.kind == "stacks":
            self._stacks(item, known.text)
        elif known.kind in ("process", "ps", "states", "environment"):
            self._process(item, known)
        elif known.kind == "metrics":
            self._metrics(item, known.text, nested)
        elif known.kind == "sections":
            self._sections(item, known.text, nested)
        elif known.kind in ("kernel log", "nvidia-smi", "ras"):
            probe = {"kernel log": "host.kernel_log", "nvidia-smi": "gpu.state", "ras": "nccl.ras"}[known.kind]
            self._of_node(item, probe, self._whole(item, known.text) if known.kind == "kernel log" else known.text)
            if known.kind == "kernel log" and packet_log.tells(known.text):
                self._tool(item, packet_log.TOOL, known.text)
        elif known.tool is not None:
            self._tools(item, known.tool, known.text)
            self.brought.nodes += table_files(item, known.text)
        else:
            self._log(item, known, nested)

    def _other(self, item: Item, why: str, nested: int) -> None:
        """No evidence as it stands; rows of CSV and JSON may be, by node."""
        rows = item.name.lower().endswith((".csv", ".tsv", ".json"))
        if not rows or item.binary or not self._by_node(item, item.upto(TEXT_BYTES).decode("utf-8", "replace"), nested):
            self._unread(item, why)

    def _metrics(self, item: Item, text: str, nested: int) -> None:
        """One answer of a monitoring system tells of the CPUs, ports and GPUs of many nodes."""
        before = len(self.brought.nodes)
        refused: ParseError | None = None
        try:
            self.brought.nodes += node_files(item, text)
        except ParseError as error:
            refused = error
        self._by_node(item, text, nested)
        for node, mine in (samples.by_node(text) or {"": text}).items():
            self.brought.named |= {node} - {""}
            inside = item.inside.parent / node / item.name if node else item.inside
            part = Item(f"{item.ref}: {node}" if node else item.ref, inside, mine.encode(), mtime=item.mtime)
            part.seen_at = item.seen_at
            for tool in tools_of(mine[:HEAD], item.name):
                with contextlib.suppress(ParseError):
                    self._tool(part, tool, mine)
        if refused is not None and len(self.brought.nodes) == before:
            raise refused

    def _pasted(self, item: Item, nested: int) -> bool:
        """Whether it is several files that somebody pasted or collected into one: then each was taken by itself."""
        if item.binary or b"\0" in item.head or not parts_of(item.head.decode("utf-8", "replace")):
            return False
        parts = parts_of(whole_text(item, item.upto(HEAD).decode("utf-8", "replace").replace("\r\n", "\n")))
        before, count = len(self.brought.unread), 0
        again: Counter[tuple[str, str]] = Counter()
        for part in parts[:MOST_PASTED]:
            for node in part.nodes or ("",):
                self.brought.named |= {node} - {""}
                again[node, part.label] += 1
                # The same command twice is two looks, and names tell their order.
                label = part.label + (f".{again[node, part.label]}" if again[node, part.label] > 1 else "")
                # What the file is called may be the node of parts without one, as a folder's name is.
                inside = item.inside.parent / (node or stem(item.name)) / (label or item.name)
                self.brought.pasted |= set() if node else {inside.parent}
                ref = f"{item.ref}: {' '.join(one for one in (node, label) if one)}".removesuffix(": ")[:1000]
                one = Item(ref, inside, part.text.encode("utf-8", "replace"), mtime=item.mtime)
                one.seen_at = part.at if part.at is not None else item.seen_at
                self._take_apart(one, nested + 1)
                count += 1
        if count > 1 and len(self.brought.unread) - before == count:
            del self.brought.unread[before:]
            self._unread(item, "several files in one, of which none has a known form")
        return True

    def _chained(self, item: Item, nested: int) -> bool:
        """Whether it is what several tools wrote one after the other: then each was taken by itself."""
        before, parts = len(self.brought.unread), outputs_of(item)
        for part in parts:
            self._take_apart(part, NESTED + 1)
        if parts and len(self.brought.unread) - before == len(parts):
            del self.brought.unread[before:]
            return False
        return bool(parts)

    def _by_node(self, item: Item, text: str, nested: int) -> bool:
        """Whether its lines begin with their node's name, and the rest of some node's lines is what a tool prints."""
        parts = items_by_node(item, text) if nested < NESTED else []
        for node, mine in parts:
            self.brought.named.add(node)
            self._take_apart(mine, nested + 1)
        return bool(parts)

    def _take_apart(self, item: Item, nested: int) -> None:
        """A file or a part of one: what stops its parser does not stop the others."""
        try:
            self._take(item, nested)
        except ParseError as error:
            self._unread(item, str(error))
        except Exception as error:  # as core.interpret: hostile or unforeseen content must not take the rest down
            self._unread(item, f"its parser stopped on it ({type(error).__name__}: {str(error)[:120]})")

    def _dump(self, item: Item, data: bytes) -> DumpFile:
        try:
            if not hasattr(self._mine, "apart"):
                self._mine.apart = Apart()
                self._helpers.append(self._mine.apart)
            return DumpFile(item.ref, item.inside, len(data), self._mine.apart.reduce(data))
        except Refused as error:
            return DumpFile(item.ref, item.inside, len(data), None, str(error))
        finally:
            self._room.release()

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
            extracts = [Extract(0, variables=variables_in(known.text))]
            if environment.fits(known.text[:HEAD], item.name):
                self._tool(item, environment.TOOL, known.text)
        elif known.kind == "states":
            extracts = extracts_told(known.text)
        else:
            extracts = ps_rows(known.text) if known.kind == "ps" else extracts_of(known.text)
        if not extracts:
            self._unread(item, "lists no process")
        else:
            # Who takes the CPU, be it of the job or not.
            if known.kind == "ps" and process_table.fits(known.text[:HEAD], item.name):
                self._tool(item, process_table.TOOL, known.text)
            if known.kind == "ps" and stuck_in_driver.fits(known.text[:HEAD], item.name):
                self._tool(item, stuck_in_driver.TOOL, known.text)
            if known.kind == "ps" and launch.tells(known.text[:HEAD]):
                self._tool(item, launch.TOOL, known.text)
            self.brought.processes.append(ProcessFile(item.ref, item.inside, known.kind == "ps", tuple(extracts)))

    def _sections(self, item: Item, text: str, nested: int) -> None:
        """The output of a probe's collector, or several files as `tail -v -n +1` prints them."""
        reading = captures.of_sections(item, text)
        if reading is not None and not reading.parse_error:
            self.brought.captures.append((item.ref, reading))
        elif reading is not None:
            self._unread(item, reading.parse_error)
        elif nested >= NESTED:
            self._unread(item, "files within files within files are not read")
        else:
            self._parts(item, text, nested)

    def _parts(self, item: Item, text: str, nested: int) -> None:
        """Files in one file. When none of them tells anything, that is said once."""
        before = len(self.brought.unread)
        parts = sections(text)
        for name, body in parts.items():
            inside = item.inside.parent / PurePosixPath(*[part for part in name.split("/") if part not in ("", "..")])
            part = Item(f"{item.ref}: {name}"[:1000], inside, body.encode("utf-8", "replace"), mtime=item.mtime)
            self._take_apart(part, nested + 1)
        if len(self.brought.unread) - before == len(parts):
            del self.brought.unread[before:]
            self._unread(item, "several files in one, of which none has a known form")

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
        for tool in dict.fromkeys((first, *tools_of(text[:HEAD], item.name))):
            try:
                self._tool(item, tool, text)
                read = True
            except ParseError as error:
                refused = refused or error
        if refused is not None and not read:
            if not first.log:
                raise refused
            self._log(item, Known("perhaps a log", text), NESTED)
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

    def _log(self, item: Item, known: Known, nested: int) -> None:
        text = self._whole(item, known.text)
        tables = table_files(item, text)
        self.brought.nodes += tables
        besides = self._besides(item, text) or bool(tables)
        log = log_file(item, text, sure=known.kind == "log")
        if log is not None:
            self.brought.logs.append(log)
            if "(most recent call first):" in text:
                self.brought.stacks.append(StackFile(item.ref, item.inside, -1, (faulthandler(text[:TEXT_BYTES]),)))
            return
        if tables:
            return
        bare = catalog.read(Capture("", "host.kernel_log", "ok", text[:4_194_304].encode("utf-8", "replace")))
        if bare.findings:  # lines that were cut out of a kernel log, without their times
            self.brought.nodes.append(NodeFile(item.ref, item.inside, "host.kernel_log", bare, kernel_host(text)))
        elif not besides and not self._by_node(item, text, nested):
            self._unread(item, "no line in it has a known form")

    def _besides(self, item: Item, text: str) -> bool:
        """What a log holds besides its events: values of replicas, and pieces of the program that somebody pasted."""
        before = len(self.brought.nodes)
        both_ends = text if len(text) <= 2 * BESIDES else f"{text[:BESIDES]}\n{text[-BESIDES:]}"
        for tool in beside(text[:HEAD], item.name):
            with contextlib.suppress(ParseError):
                self._tool(item, tool, both_ends)
        return len(self.brought.nodes) > before

    def end(self) -> Brought:
        for future in self._dumps:
            dump = future.result()
            self.brought.dumps.append(dump)
            if dump.reduced is None:
                self.brought.unread.append(Unread(dump.ref, f"a flight-recorder dump that is not read: {dump.why}"))
        self.brought.logs = unrotated(self.brought.logs)
        self._more(self._saved.readings())
        self.brought.asked += self._saved.asked()
        self._more(self._trees.readings())
        return self.brought

    def _more(self, found: Iterable[tuple[str, Reading] | Unread]) -> None:
        for one in found:
            if isinstance(one, Unread):
                self.brought.unread.append(one)
            else:
                self.brought.captures.append(one)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        for helper in self._helpers:
            helper.close()
