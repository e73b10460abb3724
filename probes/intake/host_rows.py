"""Rows of people's own tables, each in the form in which its node by itself would have told it.

A column counts by the words it is called: kills for memory, how full a file system is, memory errors, uptime, how far a
clock is off, versions, how often a quota throttled, threads and CPUs of each rank.

Shape    told(text) -> (node, label, text) a row and subject, [] where the table tells nothing of these
Errors   none
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from probes.intake.names import is_address, is_host
from probes.intake.own_tables import Table, as_csv, table_in

Told = tuple[str, str, str]
_NODE = re.compile(r"(?:node|host|machine|server|instance|pod|worker|box|vm)(?:[ _]?name)?|name", re.I)
_RANK = re.compile(r"(?:global[ _])?rank", re.I)
_IN_CAPTION = re.compile(
    r"(?:^|[,;] |\b(?:on|node|host)[ :=]{1,3})([a-z][a-z0-9-]{0,40}\d[\w.-]{0,20}?)(?=[\s,;:(]|$)", re.I | re.M
)
_CORES = re.compile(
    r"\b(?:cores|cpus)[=:] ?(?=\d)(\d{1,4})\b"
    r"|\b(\d{1,4})\s{0,2}(?:physical |logical )?(?:cores|cpus|vcpus|threads per node)\b",
    re.I,
)
_PERCENT = re.compile(r"(\d{1,3})(?:\.\d{1,3})?\s?%")
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s?([KMGTP])(?:i?B)?", re.I)
_WHOLE = re.compile(r"\d{1,15}")
_VERSION = re.compile(r"\d{1,4}(?:\.\d{1,6}){1,4}[\w.+-]{0,20}")
_SPAN = re.compile(
    r"(\d{1,6}(?:\.\d{1,3})?)\s{0,2}(w|d|h|m|s)(?:eeks?|ays?|ours?|rs?|in(?:ute)?s?|ec(?:ond)?s?)?\b", re.I
)
_CLOCK = re.compile(r"(?<!\d)(\d{1,2}):(\d\d)(?!:|\d)")
_SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)")
_OFFSET = re.compile(r"([+-]?)\s?(\d{1,9}(?:\.\d{1,9})?)\s{0,2}(ms|us|s|sec|seconds|min)?")
_MASK = re.compile(r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?){0,256}")


def told(text: str) -> list[Told]:
    table = table_in(text)
    if table is None:
        return []
    node = next((at for at, name in enumerate(table.names) if _NODE.fullmatch(name)), None)
    if node is not None and not all(is_host(cell) or is_address(cell) for cell in table.cells(node)):
        node = None
    caption = _IN_CAPTION.search(table.above)
    alone = caption[1].rstrip(".") if caption else ""
    nodes = table.cells(node) if node is not None else (alone,) * len(table.rows)
    found: list[Told] = []
    for reader in _READERS:
        found += [(nodes[at], label, f"{line}\n") for at, label, line in reader(table)]
    if not found:
        return [(alone, "table.csv", as_csv(table))] if text.lstrip()[:1] == "|" or "\n|" in text else []
    found += [
        (name, "nproc", f"{cores[1] or cores[2]}\n")
        for name in dict.fromkeys(nodes)
        if (cores := _CORES.search(table.above))
    ]
    joined: dict[tuple[str, str], str] = {}
    for name, label, line in found:
        head = f"{_HEADS[label]}\n" if label in _HEADS and (name, label) not in joined else ""
        joined[name, label] = joined.get((name, label), "") + head + line
    return [(name, label, lines) for (name, label), lines in joined.items()]


_HEADS = {
    "df-i": "Filesystem Inodes IUsed IFree IUse% Mounted on",
    "perf": "# Overhead  Command  Shared Object  Symbol",
    "df": "Filesystem Size Used Avail Use% Mounted on",
    "ps": "PID %CPU NLWP COMMAND",
}
Rows = Iterator[tuple[int, str, str]]


def _columns(table: Table, pattern: str) -> list[int]:
    wanted = re.compile(pattern, re.I)
    return [at for at, name in enumerate(table.names) if wanted.fullmatch(name)]


def _kills(table: Table) -> Rows:
    """Of two columns of one counter, before and now, what came between them."""
    columns = _columns(table, r"(?:memory\.events )?oom(?:[ _-]?kill(?:s|ed|er)?)?(?:[ _][\w ]{0,24})?")
    for at, row in enumerate(table.rows):
        counts = [int(row[one]) for one in columns if _WHOLE.fullmatch(row[one])]
        if counts:
            kills = counts[-1] - counts[0] if len(counts) > 1 else counts[0]
            yield at, "memory.events", f"max 0\noom_kill {max(kills, 0)}"


def _space(table: Table) -> Rows:
    mounts = _columns(table, r"mount(?:ed)?(?:[ _]?(?:point|on))?|path|fs|file ?system|dir(?:ectory)?|volume|disk")
    used = _columns(
        table, r"(?:disk[ _]|space[ _])?(?:use[d%]?|usage|pcent|percent|pct|full|fill)[ _]?(?:%|pct|percent)?"
    )
    more = _columns(table, r"(?:i-?nodes?|iuse)(?:[ _](?:used?|use|usage|full))?[ _]?%?")
    inodes = bool(more)
    used = more or used
    shm = [at for at in _columns(table, r"(?:/dev/)?shm[ _]?\w{0,8}[ _%]{0,3}") if "size" not in table.names[at]]
    of_shm = [at for at in [*shm, *used] if any(_PERCENT.fullmatch(cell) for cell in table.cells(at))]
    paths = [
        at for at, name in enumerate(table.names) if re.fullmatch(r"/[\w/.-]{1,80}(?: ?(?:used?|use|full))? ?%?", name)
    ]
    sizes = _columns(table, r"(?:/dev/)?shm[ _]?(?:size|total)|size|total")
    for at, row in enumerate(table.rows):
        size = next((row[one].replace(" ", "") for one in sizes if _SIZE.fullmatch(row[one])), "-").rstrip("iB")
        share = next((one for one in (row[place] for place in used) if _PERCENT.fullmatch(one)), "")
        if mounts and share and inodes and row[mounts[0]].startswith("/"):
            yield at, "df-i", _df("-", share, row[mounts[0]].split()[0])
        elif mounts and share and row[mounts[0]].startswith("/"):
            yield at, "df", _df(size, share, row[mounts[0]].split()[0])
        elif shm and (share := next((row[one] for one in of_shm if _PERCENT.fullmatch(row[one])), "")):
            yield at, "df", _df(size, share, "/dev/shm")
        for one in paths:
            if _PERCENT.fullmatch(row[one]) and one not in shm:
                yield at, "df", _df(size, row[one], table.names[one].split()[0].rstrip("%"))


def _df(size: str, share: str, mount: str) -> str:
    whole = _PERCENT.match(share)
    return f"table {size} - - {whole[1] if whole else 0}% {mount}"


def _memory_errors(table: Table) -> Rows:
    for kind, words in (("ue", r"ue(?:[ _]?(?:count|errors?))?|uncorrect\w{2,4}(?:[ _]\w{1,12}){0,2}"),
        ("ce", r"ce(?:[ _]?(?:count|errors?))?|correct\w{2,4}(?:[ _]\w{1,12}){0,2}")):  # fmt: skip
        # ECC of a GPU is another matter.
        gpus = any(re.search(r"(?i)\bgpu|vram|hbm|uuid|xid|bus", name) for name in table.names)
        for one in _columns(table, words) if not gpus else ():
            for at, row in enumerate(table.rows):
                if _WHOLE.fullmatch(row[one]):
                    yield at, "edac", f"/sys/devices/system/edac/mc/mc0/{kind}_count:{row[one]}"


def _uptimes(table: Table) -> Rows:
    for one in _columns(
        table, r"up(?:[ _-]?(?:time|for|since))?|(?:last[ _]?)?boot(?:ed|[ _]?time)?(?:[ _](?:at|since))?"
    ):
        for at, row in enumerate(table.rows):
            if stamp := _STAMP.search(row[one]):
                yield at, "uptime", f"system boot  {stamp[1]} {stamp[2]}"
            elif (seconds := _span(row[one], table.units[one])) is not None:
                days, rest = divmod(int(seconds), 86_400)
                yield at, "uptime", f"up {days} days, {rest // 3600} hours, {rest % 3600 // 60} minutes"


def _span(cell: str, unit: str) -> float | None:
    parts = [float(number) * _SECONDS[word.lower()] for number, word in _SPAN.findall(cell)]
    parts += [int(hours) * 3600 + int(minutes) * 60 for hours, minutes in _CLOCK.findall(cell)]
    if not parts and re.fullmatch(r"\d{1,9}(?:\.\d{1,3})?", cell) and unit[:1].lower() in _SECONDS:
        parts = [float(cell) * _SECONDS[unit[:1].lower()]]
    return sum(parts) if parts else None


def _clocks(table: Table) -> Rows:
    """How far each is off, where some unit says how much that is."""
    words = (
        r"(?:clock|time|ntp|chrony|system)?[ _]?(?:offset|skew|drift|diff(?:erence)?|delta)"
        r"(?:[ _](?:vs|to|from|against|of)[ _][\w. -]{1,30})?(?:[ _](ms|us|s|sec))?"
    )
    for one in _columns(table, words):
        named = re.search(r"[ _](ms|us|s|sec)$", table.names[one])
        unit = table.units[one] or (named[1] if named else "")
        for at, row in enumerate(table.rows):
            found = _OFFSET.fullmatch(row[one])
            if found and (of := found[3] or unit):
                scale = 60.0 if of == "min" else 1.0
                of = "s" if of == "min" else of
                yield at, "clock", f"offset {found[1]}{float(found[2]) * scale:.9g} {of}"


_COMPONENTS = (
    (r"(?:nvidia[ _]?|gpu[ _]?)?driver(?:[ _]?version)?", "Nvidia driver version: {}"),
    (r"cuda(?:[ _]?(?:version|runtime|toolkit))?", "CUDA used to build PyTorch: {}"),
    (r"(?:lib)?nccl(?:[ _]?version)?", "nvidia-nccl-cu12=={}"),
    (r"(?:py)?torch(?:[ _]?version)?", "torch=={}"),
)


def _versions(table: Table) -> Rows:
    for words, form in _COMPONENTS:
        for one in _columns(table, words):
            for at, row in enumerate(table.rows):
                if _VERSION.fullmatch(row[one]):
                    yield at, "versions", form.format(row[one])


def _quotas(table: Table) -> Rows:
    shares = _columns(table, r"(?:cpu[ _])?throttl\w{2,4}(?:[ _](?:periods?|share|pct|percent|ratio)){0,2}(?:[ _]?%)?")
    limits = _columns(table, r"(?:cpu[ _]?)(?:limit|quota|max)s?(?:[ _](?:cores|cpus))?|limit|quota")
    for at, row in enumerate(table.rows):
        for one in shares:
            share = re.fullmatch(r"(\d{1,3}(?:\.\d{1,3})?) ?%?", row[one])
            if share is None or not (
                row[one].endswith("%") or re.search("%|pct|percent", table.names[one] + table.units[one])
            ):
                continue
            limit = next(
                (found[1] for place in limits if (found := re.fullmatch(r"(\d{1,4})(?: cpus?| cores?)?", row[place]))),
                "",
            )
            top = f"cpu.max: {int(limit) * 100_000} 100000\n" if limit else ""
            yield at, "cpu.stat", f"{top}nr_periods 10000\nnr_throttled {round(float(share[1]) * 100)}"


def _processes(table: Table) -> Rows:
    ranks, pids = _columns(table, r"(?:global[ _])?rank"), _columns(table, r"pid|tid|lwp")
    cpu = _columns(table, r"(?:%[ _]?cpu|cpu[ _]?%?|cpu[ _](?:usage|use))")
    threads = _columns(table, r"(?:n(?:um)?[ _]?)?(?:threads?|nlwp|thcnt)(?:[ _](?:total|count))?")
    masks = _columns(
        table,
        r"(?:cpus?[ _]?)?(?:allowed|affinity|mask|cpuset|bound[ _]to)(?:[ _](?:list|cpus?))?"
        r"|cpus_allowed(?:_list)?|cpus",
    )
    called = _columns(table, r"comm(?:and)?|cmd|process|program|name|args")
    asked = _columns(table, r"OMP(?:_NUM_THREADS)?|torch\.get_num_threads\(\)|(?:intra[ _]op|torch)[ _]threads")
    times = {
        name.lower(): at
        for at, name in enumerate(table.names)
        if re.fullmatch(r"(?i)(?:run|ran|wait|waited)_(?:ms|ns)", name)
    }
    if not (ranks or pids) or not (cpu or threads or masks or asked):
        yield from _whose(table, ranks, pids)
        return
    for at, row in enumerate(table.rows):
        rank = next((row[one] for one in ranks if _WHOLE.fullmatch(row[one])), "")
        pid = next((row[one] for one in pids if _WHOLE.fullmatch(row[one])), "")
        pid = pid or (str(100_000 + int(rank[:6])) if rank else "")
        if not pid:
            continue
        name = next((row[one] for one in called if row[one]), "python3")
        name = f"{name} --rank={rank}" if rank else name
        share = next((row[one].rstrip("% ") for one in cpu if re.fullmatch(r"\d{1,6}(?:\.\d{1,3})? ?%?", row[one])), "")
        many = next((row[one] for one in threads if _WHOLE.fullmatch(row[one])), "")
        if share or many:
            yield at, "ps", f"{pid} {share or 0} {many or 1} {name}"
        spent = [f"{key}={row[one]}" for key, one in times.items() if _WHOLE.fullmatch(row[one])]
        mask = next((row[one] for one in masks if _MASK.fullmatch(row[one])), "")
        if mask:
            yield (
                at,
                "masks",
                f"{pid} comm={name.split()[0]} {f'rank={rank} ' if rank else ''}mask={mask} {' '.join(spent)}".rstrip(),
            )
        for one in asked:
            of = f"RANK={rank}\n" if rank else ""
            told_ = f"OMP_NUM_THREADS={row[one]}" if _WHOLE.fullmatch(row[one]) else "PATH=/usr/bin"
            yield at, f"env_rank{rank}" if rank else "env", f"{of}{told_}"


def _whose(table: Table, ranks: list[int], pids: list[int]) -> Rows:
    """Which process each rank is, and no more: as its status and its environment tell it."""
    for at, row in enumerate(table.rows) if ranks and pids else ():
        rank, pid = row[ranks[0]], row[pids[0]]
        if _WHOLE.fullmatch(rank) and _WHOLE.fullmatch(pid) and len(pid) < 11 and len(rank) < 8:
            yield at, "status", f"Name:\tpython3\nState:\nPid:\t{pid}\nRANK={rank}"


def _samples(table: Table) -> Rows:
    """A report of perf: shares of functions, and the library of each."""
    symbols, objects = (
        _columns(table, r"symbol|function|frame"),
        _columns(table, r"(?:shared[ _])?object|dso|library|lib|module"),
    )
    shares = _columns(table, r"%|overhead|self(?:[ _]?%)?|share|percent|pct|samples ?%?")
    for at, row in enumerate(table.rows) if symbols and objects and shares else ():
        if share := re.fullmatch(r"(\d{1,3}(?:\.\d{1,2})?) ?%?", row[shares[0]]):
            yield at, "perf", f"    {float(share[1]):.2f}%  python  {row[objects[0]]}  [.] {row[symbols[0]]}"


_PACE = re.compile(
    r"(?i)(?:throughput|speed|rate|pace|step[ _]?time|time|samples|imgs?|images|tokens|it|steps|s|ms|sec)?"
    r"[ _]{0,2}((?:samples?|imgs?|images|tok(?:en)?s?|it|steps?|seqs?|rows)\s?/\s?s(?:ec)?"
    r"|(?:m?s|sec)\s?/\s?(?:step|it|iter|batch))?"
)


def _tried(table: Table) -> Rows:
    """Runs with a setting and how fast each was."""
    for one, name in enumerate(table.names):
        unit = next(
            (found[1] for text in (table.units[one], name) if (found := _PACE.fullmatch(text)) and found[1]), ""
        )
        if not unit and re.fullmatch(r"(?i)(?:step|iter(?:ation)?)[ _]?time", name) and table.units[one] in ("s", "ms"):
            unit = f"{table.units[one]}/step"
        if not unit or one == 0:
            continue
        for row in table.rows:
            settings = " ".join(f"{table.names[at]}={row[at]}" for at in range(one))
            if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", row[one]):
                yield 0, "tried", f"{settings}: {row[one]} {unit}"
        return


_READERS: tuple[Callable[[Table], Rows], ...] = (
    _kills, _space, _memory_errors, _uptimes, _clocks, _versions, _quotas, _processes, _samples, _tried,
)  # fmt: skip
