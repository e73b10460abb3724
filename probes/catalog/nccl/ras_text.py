"""NCCL RAS's answer as text (NCCL 2.24 and later, and RCCL) into a Report.

Source   NCCL src/ras/client_support.cc and the RAS chapter of the user guide
Units    counts of launches
Shape    Report: groups from the table, communicators that have an error or a warning from the sections below it
Errors   ParseError when there is no line with a version
"""

from __future__ import annotations

import dataclasses
import re

from probes.catalog.nccl.ras_facts import Communicator, Counted, Group, Member, Missing, Report
from probes.core import ParseError, clean, lines_of

MANY_MEMBERS = 4096  # of one communicator: the report names outliers only
_VERSION = re.compile(r"[NR]CCL version (\d[\w.+-]{2,40})")
_DRIVER = re.compile(r"driver version (\d{1,9})")
_ROW = re.compile(
    r"\s{0,12}\d{1,6}\s{1,12}(\d{1,9})\s{1,12}(\d{1,9})\s{1,12}\d{1,9}(?:-\d{1,9})?\s{1,12}(\d{1,9})\s{1,12}(\d{1,9})"
    r"\s{1,12}([A-Z]{2,10})\s{1,12}([A-Z,]{2,40})\s*$"
)
_HEADER = re.compile(r"#\d{1,6}-\d{1,6} \(([0-9a-f]{1,16})\) (MISMATCH|ERROR|INCOMPLETE)\s*$")
_TOTAL = re.compile(r"(INCOMPLETE|DEAD|TIMEOUT)\s*$")
# An address; some releases and wrappers write the name that it has behind it, which counts then.
_NODE = r"on node (?:[\d.]{7,15} \((?=[A-Za-z]))?([^\s()]{1,80})\)?"
_PROCESS = re.compile(rf"\s{{1,8}}Process (\d{{1,9}}) {_NODE} managing GPUs? ([\d,]{{1,200}})")
_DIFFERENT = re.compile(r"\s{1,8}Communicator ranks have different (\w{1,40}) operation counts")
_MANY = re.compile(
    r"\s{1,8}(\d{1,7}) ranks? (?:ha(?:ve|s) launched up to operation (?P<count>\d{1,18})"
    r"|(?P<none>ha(?:ve|s) not launched any)|ha(?:ve|s) status (?P<state>[A-Z]{2,10})"
    r"|reported (?P<error>[A-Za-z ]{3,60}))"
)
_RANK = re.compile(
    r"\s{1,8}Rank (\d{1,7})(?: has launched up to operation (?P<count>\d{1,18})"
    r"|(?P<none> has not launched any operations)| has status (?P<state>[A-Z]{2,10})"
    r"| reported (?P<error>[A-Za-z ]{3,60}?))? -- (?P<where>.{1,200})"
)
_WHERE = re.compile(rf"GPU (\d{{1,4}})(?: \(NVML (\d{{1,4}})\))? managed by process (\d{{1,9}}) {_NODE}")
_TIMEOUTS = re.compile(r"\s{1,8}Encountered (\d{1,9}) communication timeout")


def of_text(text: str) -> Report:
    """One answer. Raises ParseError."""
    reader = _Reader()
    for line in lines_of(clean(text), 1000):
        reader.take(line)
    if not reader.version:
        raise ParseError(f"expected RAS's report with the version of NCCL, found {clean(text)[:60]!r}")
    return Report(
        reader.version,
        reader.driver,
        tuple(_settled(one) for one in reader.communicators.values()),
        tuple(reader.groups),
        tuple(reader.processes),
        reader.timeouts,
    )


class _Reader:
    def __init__(self) -> None:
        self.version, self.driver, self.timeouts = "", None, 0  # type: str, int | None, int
        self.groups: list[Group] = []
        self.processes: list[Missing] = []
        self.communicators: dict[str, Communicator] = {}
        self._hash, self._block = "", ""  # where we are: a communicator, and MISMATCH, ERROR, INCOMPLETE, DEAD, TIMEOUT
        self._op = ""
        self._last: dict[str, str] = {}  # what "N ranks ..." said of the ranks listed below it

    def take(self, line: str) -> None:
        if not self.version and (found := _VERSION.match(line)):
            self.version = found[1]
        elif self.driver is None and (found := _DRIVER.search(line)):
            self.driver = int(found[1])
        elif not self._block and len(self.groups) < 4096 and (found := _ROW.match(line)):
            one, nodes, size, ranks = (int(found[number]) for number in (1, 2, 3, 4))
            self.groups.append(Group(one, nodes, size, ranks, found[5], _errors(found[6])))
        elif found := _HEADER.match(line):
            self._hash, self._block, self._op, self._last = found[1], found[2], "", {}
            known = self.communicators.get(found[1], Communicator(found[1]))
            self.communicators[found[1]] = dataclasses.replace(known, errors=_add(known.errors, found[2]))
        elif found := _TOTAL.match(line):
            self._hash, self._block = "", found[1]
        elif found := _TIMEOUTS.match(line):
            self.timeouts += int(found[1])
        elif self._block and (found := _PROCESS.match(line)):
            dead = self._block == "DEAD"
            self.processes.append(Missing(None, found[2], int(found[1]), found[3], not dead or None, dead))
        elif self._hash:
            self._of_communicator(line)

    def _of_communicator(self, line: str) -> None:
        one = self.communicators[self._hash]
        if found := _DIFFERENT.match(line):
            self._op, self._last = ("" if found[1] == "collective" else found[1]), {}
        elif found := _MANY.match(line):
            self._last = {key: value for key, value in found.groupdict().items() if value}
            if ("count" in self._last or "none" in self._last) and len(one.counts) < MANY_MEMBERS:
                group = Counted(self._op, int(self._last.get("count", 0)), int(found[1]))
                one = dataclasses.replace(one, counts=(*one.counts, group))
        elif (found := _RANK.match(line)) and len(one.members) + len(one.missing) < MANY_MEMBERS:
            said = {key: value for key, value in found.groupdict().items() if value and key != "where"}
            one = self._with_rank(one, int(found[1]), said, _WHERE.match(found["where"]))
        self.communicators[self._hash] = one

    def _with_rank(
        self, one: Communicator, rank: int, said: dict[str, str], where: re.Match[str] | None
    ) -> Communicator:
        alone = bool(said)
        said = said or self._last
        member = Member(rank, state=said.get("state", ""), error=said.get("error", ""))
        if where:
            nvml = int(where[2] or where[1])
            member = dataclasses.replace(member, host=where[4], pid=int(where[3]), gpu=int(where[1]), nvml=nvml)
        if self._block == "INCOMPLETE":
            gone = Missing(rank, member.host, member.pid, "" if member.gpu is None else str(member.gpu), True)
            return dataclasses.replace(one, missing=(*one.missing, gone))
        if self._block == "MISMATCH" and member.state == "NOCOMM":
            gone = Missing(rank, member.host, member.pid, "" if member.gpu is None else str(member.gpu), False)
            return dataclasses.replace(one, missing=(*one.missing, gone))
        counts = one.counts
        if "count" in said or "none" in said:
            count = int(said.get("count", 0))
            member = dataclasses.replace(member, counts={self._op: count})
            if alone:
                counts = (*counts, Counted(self._op, count, 1, (rank,)))
            elif counts:
                last = counts[-1]
                counts = (*counts[:-1], dataclasses.replace(last, ranks=(*last.ranks, rank)))
        return dataclasses.replace(one, members=(*one.members, member), counts=counts)


def _settled(one: Communicator) -> Communicator:
    """A rank is told once per operation: one member each, with all that was said of it."""
    members: dict[int, Member] = {}
    for member in one.members:
        known = members.get(member.rank, member)
        members[member.rank] = dataclasses.replace(
            known,
            state=known.state or member.state,
            error=known.error or member.error,
            counts={**known.counts, **member.counts},
        )
    return dataclasses.replace(one, members=tuple(members.values()))


def _errors(text: str) -> tuple[str, ...]:
    return () if text == "OK" else tuple(text.split(",")[:4])


def _add(errors: tuple[str, ...], word: str) -> tuple[str, ...]:
    return errors if word in errors else (*errors, word)


def is_text(text: str) -> bool:
    """Whether an answer is text and not JSON."""
    return not text.lstrip().startswith("{")
