"""The first pass: every file is recognised and read by the parser of its probe. Whose it is the second pass finds out.

Shape    sort(paths) -> Brought
Errors   NoSuchPath; what a parser refuses is an Unread
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from probes.core import ParseError, Reading, sections, without_escapes
from probes.intake import captures, samples
from probes.intake.brought import Brought
from probes.intake.by_node import items_by_node, items_of_rows
from probes.intake.chained import outputs_of
from probes.intake.chats import chat_items
from probes.intake.documents import quoted_items
from probes.intake.dump_pool import DumpPool
from probes.intake.files import Given, walk
from probes.intake.hosts import names_a_tool, told_by
from probes.intake.items import HEAD, TEXT_BYTES, Item, Unread
from probes.intake.kinds import DOCUMENT, Known, Other, kind_of
from probes.intake.logs import guards_in, log_file, unrotated, whole_text
from probes.intake.metric_files import node_files, table_files
from probes.intake.names import stem, without_keys
from probes.intake.node_values import value_items
from probes.intake.pasted import parts_of
from probes.intake.pci_trees import PciTrees
from probes.intake.reader import NO_FORM, Reader
from probes.intake.tools import tools_of
from probes.intake.tools.network import packet_log
from probes.topology import Topology

NESTED = 2  # files within files of `tail -v`


def sort(paths: Sequence[Path | Given], seen: Callable[[int], None] = lambda files: None) -> Brought:
    """Read everything. `seen` is told how many files were looked at."""
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


def _text(body: bytes) -> str:
    return without_escapes(body.decode("utf-8", "replace").replace("\r\n", "\n"))


class _Sorter(Reader):
    def __init__(self) -> None:
        super().__init__()
        self._saved = captures.Saved()
        self._trees = captures.Trees()
        self._pci = PciTrees()
        self._dumps = DumpPool()

    def take(self, item: Item) -> None:
        """One file. Nothing that a file holds may stop the others."""
        item.inside = without_keys(item.inside)
        if captures.is_expected(item):
            self._expected(item)
            return
        if captures.beside(item) or self._saved.take(item) or self._trees.take(item) or self._pci.take(item):
            return
        self._looked_at(item)
        self._take_apart(item, 0)

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
        if nested <= NESTED and self._own_table(item, known):
            if isinstance(known, Known):
                self._log(item, known)
            return
        if not isinstance(known, Known):
            self._other(item, known.why, nested)
        elif known.kind == "dump":
            self.brought.named |= self._dumps.take(item, known.data)
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
            if known.kind == "kernel log" and (guards := guards_in(known.text)):
                self.brought.logs += [log] if (log := log_file(item, guards, sure=True)) is not None else []
        elif known.tool is not None:
            self._tools(item, known.tool, known.text)
            self.brought.nodes += table_files(item, known.text)
        elif not self._log(item, known) and not self._by_node(item, known.text, nested):
            self._unread(item, NO_FORM)

    def _own_table(self, item: Item, known: Known | Other) -> bool:
        """Whether it is a table that somebody made, which tells of hosts: then each row was taken in its tool's form.
        What no tool's form is known of may be one, and so may a log with keys and values."""
        if isinstance(known, Known) and known.kind != "perhaps a log" or item.binary or len(item.head) == HEAD:
            return False
        parts = items_of_rows(item)
        self.brought.named |= {node for node, _ in parts} - {""}
        return bool(parts) and self._all_of([one for _, one in parts], NESTED)

    def _other(self, item: Item, why: str, nested: int) -> None:
        """No evidence as it stands; rows of CSV and JSON may be, by node."""
        if why == DOCUMENT and nested < NESTED and (parts := quoted_items(item)):
            self.brought.pasted |= {part.inside.parent for part in parts}
            if self._all_of(parts, nested):
                return
        if nested < NESTED and (quoted := chat_items(item)) and self._all_of(quoted, nested):
            return
        rows = item.name.lower().endswith((".csv", ".tsv", ".json"))
        if not rows or item.binary or not self._by_node(item, item.upto(TEXT_BYTES).decode("utf-8", "replace"), nested):
            self._unread(item, why)

    def _all_of(self, parts: Sequence[Item], nested: int) -> bool:
        """Whether one of the parts of a file told something."""
        before = len(self.brought.unread)
        for part in parts:
            self._take_apart(part, nested + 1)
        if len(self.brought.unread) - before < len(parts):
            return True
        del self.brought.unread[before:]
        return False

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
        if item.binary or b"\0" in item.head or not parts_of(_text(item.head)):
            return False
        parts = parts_of(whole_text(item, _text(item.upto(HEAD))))
        before, count = len(self.brought.unread), 0
        again: Counter[tuple[str, str]] = Counter()
        for part in parts[:MOST_PASTED]:
            for node in part.nodes or ("",):
                self.brought.named |= {node} - {""}
                again[node, part.label] += 1
                # The same command twice is two looks, and names tell their order.
                label = part.label + (f".{again[node, part.label]}" if again[node, part.label] > 1 else "")
                # What the file is called may be the node of parts without one, as a folder's name is.
                own = "" if item.inside.parent.name and names_a_tool(stem(item.name)) else stem(item.name)
                inside = item.inside.parent / (node or own) / (label or item.name)
                self.brought.pasted |= set() if node else {inside.parent}
                ref = f"{item.ref}: {' '.join(one for one in (node, label) if one)}".removesuffix(": ")[:1000]
                one = Item(ref, inside, part.text.encode("utf-8", "replace"), mtime=item.mtime)
                one.seen_at = part.at if part.at is not None else item.seen_at
                self._take_apart(one, nested + 1)
                count += 1
        if count > 1 and len(self.brought.unread) - before == count:
            del self.brought.unread[before:]
            if not self._by_value(item, item.upto(HEAD).decode("utf-8", "replace"), nested):
                self._unread(item, "several files in one, of which none has a known form")
        return True

    def _chained(self, item: Item, nested: int) -> bool:
        """Whether it is what several tools wrote one after the other: then each was taken by itself."""
        parts = outputs_of(item)
        return bool(parts) and self._all_of(parts, NESTED)

    def _by_node(self, item: Item, text: str, nested: int) -> bool:
        """Whether its lines begin with their node's name, and the rest of some node's lines is what a tool prints."""
        parts = items_by_node(item, text) if nested < NESTED else []
        for node, mine in parts:
            self.brought.named.add(node)
            self._take_apart(mine, nested + 1)
        return bool(parts) or self._by_value(item, text, nested)

    def _by_value(self, item: Item, text: str, nested: int) -> bool:
        """Whether it tells some quantity of several nodes, in a table or a list of somebody's own."""
        parts = value_items(item, without_escapes(text)) if nested <= NESTED else []
        self.brought.named |= {part.node for part in parts}
        return bool(parts) and self._all_of(parts, NESTED)

    def _take_apart(self, item: Item, nested: int) -> None:
        """A file or a part of one: what stops its parser does not stop the others."""
        try:
            self._take(item, nested)
        except ParseError as error:
            self._unread(item, str(error))
        except Exception as error:  # as core.interpret: hostile or unforeseen content must not take the rest down
            self._unread(item, f"its parser stopped on it ({type(error).__name__}: {str(error)[:120]})")

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

    def end(self) -> Brought:
        for dump in self._dumps.ended():
            self.brought.dumps.append(dump)
            if dump.packed is None:
                self.brought.unread.append(Unread(dump.ref, f"a flight-recorder dump that is not read: {dump.why}"))
        self.brought.logs = unrotated(self.brought.logs)
        self._more(self._saved.readings())
        self.brought.asked += self._saved.asked()
        self._more(self._trees.readings())
        for one in self._pci.files():
            self.brought.unread.append(one) if isinstance(one, Unread) else self.brought.nodes.append(one)
        return self.brought

    def _more(self, found: Iterable[tuple[str, Reading] | Unread]) -> None:
        for one in found:
            if isinstance(one, Unread):
                self.brought.unread.append(one)
            else:
                self.brought.captures.append(one)

    def close(self) -> None:
        self._dumps.close()
