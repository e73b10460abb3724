"""What people save of /proc and of ps by hand, for rank.process: one look at a process instead of two.

Source   /proc/PID/{status,stat,wchan,stack,environ} with the file's path in a line before each, as `tail -v -n +1` or
         `== PATH` print it, or a bare status; proc_pid_status(5). ps(1) and top(1) -b with any columns that have PID
         and the state. A line `cpu_ticks_1s user=U sys=S` tells the ticks of a second between two looks
Units    percent of one CPU's time, bytes
Shape    Extract per process; `process_of` makes a Process of it once its rank is known
Errors   none: what no line tells is None or ""
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from probes.catalog.ranks.process_facts import Process, ThreadGroup
from probes.catalog.ranks.process_parse import of_status
from probes.core import clean, lines_of

MOST = 4096  # processes of one file
_MARKS = ("==", "--", "##", ">>")
_HEADER = re.compile(
    r"(?:[=#>-]{2,8}) {0,2}(?:/proc/)?(\d{1,10})/([a-z_]{2,12})(?:: (\S[^\n]{0,200})| {0,2}[<=#:-]{0,8})?\s*$"
)
# == 514, as a loop over numbers of processes echoes them, above lines of their status or environment
_LONE = re.compile(r"([=#>*-]{1,8}) ?(?:pid[ =:]{1,2})?(\d{2,10}):?(?: ?[=#<*-]{1,8})?\s*$")
_TELLS = re.compile(r"(?:Name|State|Tgid|Threads|Cpus_allowed_list):\t|(?:LOCAL_)?RANK=\d|SLURM_PROCID=\d")
_STATUS = re.compile(r"([A-Za-z_]{2,40}):[ \t]{1,8}(.{0,200})")
_TICKS = re.compile(r"cpu_ticks_1s user=(\d{1,9}) sys=(\d{1,9})")
_KERNEL = re.compile(r"\[<[0-9a-fx]{1,20}>\] ([\w.]{1,100})")
_VARIABLE = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|SLURM_PROCID|SLURM_NTASKS)=(\d{1,7})(?!\d)")
_OF_PID = re.compile(r"\W{0,12}(?:pid[ :=]{0,3}|process |/proc/)?(\d{2,10})(?:/environ)?\W{0,12}", re.I)
_TASK = re.compile(r"(\d{1,10}) (.{1,40}) ([A-Z])\([a-z ]{1,20}\) (\S{1,64}) \d{1,20} \d{1,20} ([\d,-]{1,200})\s*$")
_STARTS = re.compile(r"(?:torchrun|torch\.distributed\.(?:run|launch)).{0,400}--nproc[_-]per[_-]node[= ](\d{1,3})\b")
_MORE_NODES = re.compile(r"--nnodes[= ](?!1(?:\s|$|:1\b))\S")
_ARGUMENT = re.compile(r"[ =]--?(local[_-])?rank[= ](\d{1,6})(?= |$)|(?:^| )RANK=(\d{1,6})(?= )")
_NODE_RANK = re.compile(r"--node[_-]rank[= ](?!0(?: |$))\d")
STATES = frozenset("RSDTtZXIPKW")


@dataclass(slots=True)
class Extract:
    """One process at one moment. `variables`: those of its environment that number it."""

    pid: int
    ppid: int | None = None
    comm: str = ""
    state: str = ""
    wchan: str = ""
    kernel: tuple[str, ...] = ()  # its main thread's stack in the kernel, innermost first
    cpu_percent: float | None = None
    status: dict[str, str] = field(default_factory=dict)
    variables: dict[str, int] = field(default_factory=dict)
    others: Counter[tuple[str, str, str, str]] = field(
        default_factory=Counter
    )  # other threads: comm, state, wchan, cpus

    @property
    def rank(self) -> int | None:
        return self.variables.get("RANK", self.variables.get("SLURM_PROCID"))

    @property
    def world_size(self) -> int | None:
        return self.variables.get("WORLD_SIZE", self.variables.get("SLURM_NTASKS"))

    @property
    def is_worker(self) -> bool:
        """torch names its data-loader workers since 2.6."""
        return self.comm == "pt_data_worker"


def is_extract(text: str) -> bool:
    """Whether lines of this text head parts of /proc/PID, or it is a status file by itself."""
    if text.startswith("Name:\t") and "\nState:" in text:
        return True
    lines = list(lines_of(text[:65536]))
    if any(_HEADER.match(line) for line in lines if line.startswith(_MARKS)):
        return True
    return sum(bool(_LONE.match(one) and _TELLS.match(two)) for one, two in zip(lines, lines[1:], strict=False)) > 1


def is_environment(text: str) -> bool:
    """Whether this is the environment of a rank: one variable a line, or NUL between them as in /proc/PID/environ."""
    found = {name for name, _ in _VARIABLE.findall(text[:262144])}
    lines = [line for line in text[:262144].replace("\0", "\n").split("\n") if line and not _OF_PID.fullmatch(line)]
    return bool({"RANK", "SLURM_PROCID"} & found) and sum(
        "=" in line and not line[0].isdigit() for line in lines
    ) > 0.9 * len(lines)


def variables_in(text: str) -> dict[str, int]:
    """Variables that number a rank."""
    lines = text[:1_048_576].replace("\0", "\n").split("\n")
    return {found[1]: int(found[2]) for line in lines if (found := _VARIABLE.fullmatch(line))}


def environments_in(text: str) -> list[tuple[int, str]]:
    """(pid, environment) of processes that a loop printed one after the other: each begins below a line with its pid,
    or where a name comes again. A pid that nothing tells is 0."""
    found: list[tuple[int, list[str]]] = [(0, [])]
    names: set[str] = set()
    for line in text[:1_048_576].replace("\0", "\n").split("\n"):
        of, name = _OF_PID.fullmatch(line[:80]), line.partition("=")[0] if "=" in line else ""
        if of is not None or name in names:
            found.append((int(of[1]) if of else 0, []))
            names.clear()
        if of is None:
            found[-1][1].append(line)
            names |= {name} - {""}
        if len(found) > MOST:
            break
    return [(pid, "\n".join(lines)) for pid, lines in found if variables_in("\n".join(lines))]


def extracts_of(text: str) -> list[Extract]:
    """The processes of a text of /proc parts, in order of first mention."""
    found: dict[int, Extract] = {}
    ticks: float | None = None
    if text.startswith("Name:\t"):
        parts = []
        for one in re.split(r"(?m)^(?=Name:\t)", text)[1 : MOST + 1]:  # one process after the other
            pid = re.search(r"\n(?:Pid|Tgid):\s{1,8}(\d{1,10})\n", one[:65536])
            parts += [(int(pid[1]), "status", one)] if pid else []
    else:
        told = _TICKS.search(text[:400])
        ticks = float(int(told[1]) + int(told[2])) if told else None  # of 100 in a second
        parts = list(_parts(text)) or list(_echoed(text))
    for pid_, name, body in parts[: MOST * 12]:
        if pid_ not in found and len(found) < MOST:
            found[pid_] = Extract(pid_)
        if pid_ in found:
            _take(found[pid_], name, body)
    if len(found) == 1:
        next(iter(found.values())).cpu_percent = ticks
    return list(found.values())


def _parts(text: str) -> Iterator[tuple[int, str, str]]:
    """(pid, file's name, its text); a table of threads comes as `tasks` of the process before it."""
    head: tuple[int, str] | None = None
    pid, lines = 0, []  # type: int, list[str]
    for line in lines_of(text):
        new = _HEADER.match(line) if line.startswith(_MARKS) else None
        if new or (line.startswith("== tasks") and head):
            if head:
                yield (*head, "\n".join(lines))
            head, lines = (int(new[1]), new[2]) if new else (pid, "tasks"), []
            lines += [new[3]] if new and new[3] else []  # == /proc/71/comm: python
            pid = head[0]
        elif len(lines) < 8192:
            lines.append(line)
    if head:
        yield (*head, "\n".join(lines))


def _echoed(text: str) -> Iterator[tuple[int, str, str]]:
    """The same, of parts below the number alone: what is status, and what environment, their lines tell."""
    pid, lines = 0, []  # type: int, list[str]
    for line in [*lines_of(text), "== 00"]:
        if new := _LONE.match(line):
            if pid and lines:
                yield pid, "status", "\n".join(line for line in lines if _STATUS.match(line))
                yield pid, "environ", "\n".join(lines)
            pid, lines = int(new[2]), []
        elif len(lines) < 8192:
            lines.append(line)


def _take(one: Extract, name: str, body: str) -> None:
    if name == "status":
        one.status = {found[1]: found[2].strip() for line in lines_of(body) if (found := _STATUS.match(line))}
        one.comm = clean(one.status.get("Name", ""))[:64]
        parent = one.status.get("PPid", "")
        one.ppid = int(parent) if parent.isdecimal() and len(parent) < 11 else None
        one.state = one.status.get("State", "")[:1] if one.status.get("State", "")[:1] in STATES else ""
        one.variables = one.variables or variables_in(body)  # its environment may have been printed below
    elif name == "stat" and not one.state:
        comm, _, rest = body.partition("(")[2].rpartition(") ")
        words = rest.split()
        if len(words) > 1 and words[0] in STATES:
            one.comm, one.state, one.ppid = clean(comm)[:64], words[0], int(words[1]) if words[1].isdecimal() else None
    elif name == "comm":
        one.comm = clean(body.partition("\n")[0].strip())[:64]
        state = re.search(r"^State:[ \t]{1,8}([A-Za-z])", body, re.M)
        one.state = one.state or (state[1] if state and state[1] in STATES else "")
    elif name == "wchan":
        one.wchan = clean(body.strip())[:128] if body.strip() != "0" else ""
    elif name == "stack":
        one.kernel = tuple(found[1] for line in lines_of(body) if (found := _KERNEL.match(line)))[:32]
    elif name == "environ":
        one.variables = variables_in(body)
    elif name == "tasks":
        for line in lines_of(body):
            if (task := _TASK.match(line)) and int(task[1]) != one.pid:
                one.others[clean(task[2]), task[3], clean(task[4]), task[5]] += 1


def process_of(one: Extract, rank: int, worker_of: int | None, world_size: int | None, again: str = "") -> Process:
    """A look as rank.process tells it. `again`: the state in a second look of another file, "" when there was none."""
    groups = [ThreadGroup(*key, count) for key, count in one.others.items()]
    return Process(
        pid=one.pid,
        rank=rank,
        world_size=one.world_size or world_size,
        run_id=None,
        worker_of=worker_of,
        comm=one.comm,
        state=one.state,
        state_before=again or one.state,
        wchan=one.wchan,
        cpu_percent=one.cpu_percent,
        other_threads=tuple(groups[:256]),
        **of_status(one.status),  # type: ignore[arg-type]
    )


# ps -----------------------------------------------------------------------------------------------------------------


def is_ps(text: str) -> bool:
    """Whether a line of its first ones heads a table of processes."""
    return any(_columns(line) is not None for line in text[:4096].split("\n")[:12])


def _columns(line: str) -> Mapping[str, int] | None:
    """Column name -> place, for a header that has PID and a state."""
    words = line.split()
    if "PID" not in words or not {"STAT", "S", "STATE"} & set(words) or len(words) > 40:
        return None
    return {word: place for place, word in reversed(list(enumerate(words)))}


def ps_rows(text: str) -> list[Extract]:
    """The processes of a table that ps or top printed. Its CPU column is an average over a life, so it is left out."""
    found: list[Extract] = []
    starters: dict[int, int] = {}  # pid of a launcher of one node -> how many ranks it starts
    columns: Mapping[str, int] | None = None
    told: list[tuple[Extract, int]] = []
    more_nodes = False
    for line in lines_of(text, 1000):
        header = _columns(line)
        if header is not None:
            columns = header
        elif columns is not None and len(found) < MOST:
            words = line.split()
            row = {name: words[place] for name, place in columns.items() if place < len(words)}
            pid, state = row.get("PID", ""), next((row[key] for key in ("STAT", "S", "STATE") if key in row), "")
            if pid.isdecimal() and len(pid) < 11 and state[:1] in STATES:
                parent, wchan = row.get("PPID", ""), row.get("WCHAN", "")
                ppid = int(parent) if parent.isdecimal() and len(parent) < 11 else None
                name = next((row[key] for key in ("COMM", "COMMAND", "CMD") if key in row), "")
                wchan = "" if wchan in ("-", "0", "?") else clean(wchan)[:128]
                found.append(Extract(int(pid), ppid, clean(name)[:64], state[:1], wchan))
                if (starts := _STARTS.search(line)) and not _MORE_NODES.search(line):
                    starters[int(pid)] = int(starts[1])
                if argument := _ARGUMENT.search(line):
                    told.append((found[-1], int(argument[2] or argument[3])))
                more_nodes = more_nodes or bool(_MORE_NODES.search(line) or _NODE_RANK.search(line))
    _numbered(found, starters)
    if not more_nodes:
        _by_argument(told)
    return found


def _by_argument(told: list[tuple[Extract, int]]) -> None:
    """Ranks in the arguments of processes, where each has another one: a rank of LoRA is the same for all."""
    ranks = [rank for one, rank in told if not one.is_worker]
    if len(ranks) > 1 and len(set(ranks)) == len(ranks) and any(one.state in ("T", "t") for one, _ in told):
        for one, rank in told:
            one.variables.setdefault("RANK", rank)


def _numbered(found: list[Extract], starters: Mapping[int, int]) -> None:
    """torchrun starts its ranks one after the other: where as many children are there as it starts, their order of
    pids is that of ranks. Only of a launcher without other nodes, whose local ranks are the ranks."""
    for parent, count in starters.items():
        children = sorted((one for one in found if one.ppid == parent and not one.is_worker), key=lambda one: one.pid)
        if len(children) == count and children[-1].pid - children[0].pid < 16 * count:
            for rank, one in enumerate(children) if any(one.state in ("T", "t") for one in children) else ():
                one.variables.setdefault("RANK", rank)
