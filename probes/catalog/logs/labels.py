"""What the numbers are that `srun --label` writes in front of every line (`3: `), or mpiexec -prepend-rank (`[3] `):
ranks, or launchers of ranks, one a node.

Source   srun(1) --label: "prepend task number to lines of stdout/err"; srun's own line about the end of a task names
         its node; Hydra's mpiexec -l and Intel MPI's -prepend-rank; torch.distributed.elastic prints the host of each
         failure
Units    none
Shape    labels_of(rows) -> Labels, None where no such numbers stand in front
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MOST_ROWS = 400  # at either end: srun tells of the ends of its tasks last
MOST_TASKS = 4096
LABEL = re.compile(r" {0,7}\[?(\d{1,7})[:\]] ?")
_LABELLED = re.compile(r" {0,7}\d{1,7}: |\[(\d{1,7})\] ")
# `rank 9: ...`, `Rank=3 | ...`: people's own marks. Not "Rank 3: found NaN in", Megatron's, nor a rank and its values
_SPOKEN = re.compile(
    r"(?i:\(?(?:global )?rank[ _=#]{0,2})(\d{1,7})(?:\):?|:|>| \|| -)(?: |$)"
    r"(?!found NaN|\s{0,8}-?\d[\d., ]{0,200}(?:[A-Za-z%/]{1,6})?(?: ?\(.{0,60})?$)"
)
# `[Rank 4]`, `[R4]`, `[rank 4/16]` before a line of people's own. In torch's own lines it counts within a group.
_BRACKETED = re.compile(
    r"\[(?:(?i:(?:global )?rank[ :=#]{0,2})|[rR])(\d{1,7})(?: ?(?:/|of) ?\d{1,7})?\]:? {0,2}(?=\S|$)"
)
_WITHIN = re.compile(r"\[(?i:(?:global[_ ])?rank)[ :=#]{1,2}(\d{1,7})\]")  # behind a logger's level and place
_OF_TORCH = re.compile(
    r"NCCL|[Ww]atchdog|onitoredBarrier|ProcessGroup|ollective|Timeout at|dump signal|Found key|failure detected"
    r"|Child process with PID|Received SIG|ast enqueued|process down"
)
_OF_SRUN = ("srun: ", "slurmstepd: ", "$ ", "+ ", "#")
_LAUNCHER = re.compile(
    r"torch(?:[./]distributed)?[./](?:run|launch|elastic|launcher)\b|\btorchrun\b|\blocal_rank: \d"
    r"|deepspeed[./]launcher"
    r"|accelerate[./]commands|\[default\d{1,4}\]:"
)
_MARKED = re.compile(r"\[rank(\d{1,7})\]")
_ENDED = re.compile(r"srun: error: ([A-Za-z][\w.-]{0,62}): tasks? ([\d,-]{1,200}):")
_HOST = re.compile(r"host {0,8}: ([A-Za-z][\w.-]{0,62})\s{0,8}$")
_NCCL = re.compile(r"([A-Za-z][\w.-]{0,62}):\d{1,8}:\d{1,8} \[\d{1,3}\] NCCL ")
_NUMBER = re.compile(r"\[(\d{1,7})\]: ?(?=\S)")
# mpirun's tags, those of PRRTE (`[prterun-n1-771@1,3]<stderr>:`) and Horovod's, which are the rank alone
_MPI = re.compile(r"\[(?:(?:[\w.-]{1,80}@)?\d{1,9},)?(\d{1,7})\]<std(?:out|err)>:? ?")
_KEYED = re.compile(  # [node_rank=1 local_rank=5 global_rank=13]
    r"[\[(](?=[^\])\n]{0,80}=)(?:[\w-]{1,24}[=:] ?[\w.-]{1,40}[ ,;|]{1,3}){0,4}(?:global_?)?rank[=:] ?(\d{1,7})"
    r"(?:[ ,;|]{1,3}[\w-]{1,24}[=:] ?[\w.-]{1,40}){0,4}[\])]:? ?"
)


@dataclass(frozen=True, slots=True)
class Labels:
    """`ranks`: the numbers are ranks. `hosts`: number -> node, where something tells it."""

    ranks: bool
    hosts: Mapping[str, str] = field(default_factory=dict)


def ends_of(text: str) -> list[str]:
    """The first and the last rows of a text, which tell how it is labelled."""
    rows = text[:65_536].split("\n")
    return rows if len(text) <= 65_536 else [*rows[:MOST_ROWS], *text[-65_536:].split("\n")[-MOST_ROWS:]]


def labels_of(rows: Sequence[str]) -> Labels | None:
    """By the first rows and the last. What srun says itself carries no number."""
    some = [row for row in rows if row.strip()]
    some = some if len(some) <= MOST_ROWS * 2 else [*some[:MOST_ROWS], *some[-MOST_ROWS:]]
    said = [row for row in some if not row.startswith(_OF_SRUN)]
    found = [label for row in said if (label := _LABELLED.match(row))]
    if len(said) < 2 or len(found) <= 0.9 * len(said):
        return None
    within = [int(label[1]) for label in found if label[1]]
    if within and (0 not in within or within == sorted(within)):
        return None  # of steps, epochs or processes
    hosts: dict[str, str] = {}
    ranks = True
    for row in some:
        if ended := _ENDED.match(row):
            hosts.update(dict.fromkeys(_numbers(ended[2]), ended[1]))
        elif label := LABEL.match(row):
            rest = row[label.end() : label.end() + 1000]
            other = _MARKED.match(rest)
            ranks = ranks and not _LAUNCHER.search(rest) and (other is None or other[1] == label[1])
            if told := _HOST.search(rest) or _NCCL.match(rest):
                hosts.setdefault(label[1], told[1])
    return Labels(ranks, hosts)


def spoken(text: str, of_torch: bool) -> re.Match[str] | None:
    """Whose line it is, by a rank that people write in front of it. `of_torch`: what torch marks its own lines with
    stood before, and its ranks in brackets count within a group."""
    found = _SPOKEN.match(text)
    if (
        found is None
        and text[:1] == "["
        and not of_torch
        and (found := _BRACKETED.match(text))
        and _OF_TORCH.search(text[:400])
    ):
        return None
    return found


def within(text: str) -> int | None:
    """The rank that a logger names behind its level and place."""
    found = _WITHIN.search(text[:160]) if "ank" in text[:160] else None
    return None if found is None or _OF_TORCH.search(text[:400]) else int(found[1])


def _numbers(text: str) -> list[str]:
    """`0,4-7` as words."""
    found: list[str] = []
    for part in text.split(",")[:64]:
        first, _, last = part.partition("-")
        if first.isdecimal() and (last or first).isdecimal() and len(last or first) < 8:
            found += [str(number) for number in range(int(first), min(int(last or first), int(first) + MOST_TASKS) + 1)]
    return found[:MOST_TASKS]


def marked(text: str) -> re.Match[str] | None:
    """The rank of the job, as a launcher or a logger marks its lines."""
    return _MPI.match(text) or _NUMBER.match(text) or _KEYED.match(text)
