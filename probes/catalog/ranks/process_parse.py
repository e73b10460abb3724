"""Sections of rank.process into its facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from probes.catalog._collected import as_object, as_rows, number_or_none, whole, whole_or_none, wholes, word
from probes.catalog._collected import word_or_none as maybe
from probes.catalog.ranks.parse import unread
from probes.catalog.ranks.process_facts import Cgroup, Process, RankProcesses, Thread, ThreadGroup
from probes.core import ParseError, clean, sections

WHAT, LOOK, GROUP = "golden15/processes", "a look at a thread", "golden15/cgroups"
SIGKILL = 1 << 8  # bit of signal 9 in the masks of proc_pid_status(5)
NO_LIMIT = 2**60  # cgroups v1 write a number about this large for no limit


def parse(text: str) -> RankProcesses:
    """Rows of the collector: counters of two looks become what happened between them."""
    parts = sections(text)
    if "golden15/samples" not in parts:
        raise ParseError(f"no section golden15/samples, only {', '.join(parts)[:120]}")
    about = as_object(parts["golden15/samples"], "golden15/samples")
    hz = whole(about, "hz", "golden15/samples")
    if not 0 < hz <= 1_000_000:
        raise ParseError(f"golden15/samples: expected clock ticks per second as hz, found {hz}")
    rows = as_rows(parts.get(WHAT, ""), WHAT)
    intervals = [seconds for row in rows if (seconds := _interval(row)) is not None]
    return RankProcesses(
        round(min(intervals), 4) if intervals else None,
        tuple(_process(row, hz) for row in rows),
        tuple(unread(row) for row in as_rows(parts.get("golden15/unread", ""), "golden15/unread")),
        tuple(_cgroup(row) for row in as_rows(parts.get(GROUP, ""), GROUP)),
        whole(about, "denied", "golden15/samples"),
        whole(about, "left_out", "golden15/samples"),
    )


def _interval(row: dict[str, Any]) -> float | None:
    """Seconds between the two looks at a process; None when it was gone at the second."""
    at = row.get("at")
    if at is None:
        return None
    if not isinstance(at, list) or len(at) != 2:
        raise ParseError(f"{WHAT}: expected two times as at, found {str(at)[:60]!r}")
    first, second = (number_or_none({"at": one}, "at", WHAT) for one in at)
    if first is None or second is None or not 0 < second - first < 3600:
        raise ParseError(f"{WHAT}: expected two times in order as at, found {str(at)[:60]!r}")
    return second - first


def _process(row: dict[str, Any], hz: int) -> Process:
    seconds = _interval(row)
    if seconds is None:
        return _gone(row)
    status = {key: value for key, value in _object(row, "status").items() if isinstance(value, str)}
    one, two = _looks(row)
    main = _thread(whole(row, "pid", WHAT), one, two, seconds, hz)
    user = whole(two, "user", LOOK) - whole(one, "user", LOOK)
    return Process(
        *_who(row),
        main.comm,
        main.state,
        main.state_before,
        wchan=main.wchan,
        stuck=main.stuck,
        cpu_percent=main.cpu_percent,
        user_percent=round(max(0, user) / hz / seconds * 100, 1),
        run_delay_percent=main.run_delay_percent,
        major_faults=max(0, whole(two, "major", LOOK) - whole(one, "major", LOOK)),
        tracer_before=whole_or_none(row, "tracer_before", WHAT) or None,
        **of_status(status),  # type: ignore[arg-type]
        tracer=word(row, "tracer", WHAT, 64),
        oom_score=whole_or_none(row, "oom_score", WHAT),
        threads=tuple(
            _thread(whole(one_thread, "tid", WHAT), *_looks(one_thread), seconds, hz)
            for one_thread in _list(row, "threads")
        ),
        other_threads=tuple(_thread_group(group) for group in _list(row, "others")),
        threads_unread=whole(row, "unread", WHAT),
    )


def of_status(status: Mapping[str, str]) -> dict[str, int | bool | str | None]:
    """Fields of Process that one look at /proc/PID/status tells."""
    return {
        "rss_bytes": _kilobytes(status, "VmRSS"),
        "locked_bytes": _kilobytes(status, "VmLck"),
        "pinned_bytes": _kilobytes(status, "VmPin"),
        "swap_bytes": _kilobytes(status, "VmSwap"),
        "tracer_pid": _decimal(status, "TracerPid") or None,
        "kill_pending": any(_mask(status, key) & SIGKILL for key in ("SigPnd", "ShdPnd")),
        "threads_total": _decimal(status, "Threads"),
        "cpus_allowed": clean(status.get("Cpus_allowed_list", ""))[:1024],
    }


def _thread_group(row: dict[str, Any]) -> ThreadGroup:
    texts = (word(row, "comm", WHAT), word(row, "state", WHAT, 4), word(row, "wchan", WHAT))
    return ThreadGroup(*texts, word(row, "cpus", WHAT, 1024), whole(row, "count", WHAT))


def _who(row: dict[str, Any]) -> tuple[int, int, int, str | None, int | None]:
    numbers = (whole(row, "pid", WHAT), whole(row, "rank", WHAT), whole(row, "world_size", WHAT))
    return (*numbers, maybe(row, "run_id", WHAT), whole_or_none(row, "worker_of", WHAT))


def _gone(row: dict[str, Any]) -> Process:
    return Process(*_who(row), word(row, "comm", WHAT), "", word(row, "state", WHAT, 4), gone=True)


def _thread(tid: int, one: dict[str, Any], two: dict[str, Any], seconds: float, hz: int) -> Thread:
    spent = sum(whole(two, key, LOOK) - whole(one, key, LOOK) for key in ("user", "system"))
    delay = _between(one, two, "delay")
    voluntary, involuntary = _between(one, two, "voluntary"), _between(one, two, "involuntary")
    states = (word(two, "state", LOOK, 4), word(one, "state", LOOK, 4))
    wchans = (word(two, "wchan", LOOK), word(one, "wchan", LOOK))
    return Thread(
        tid,
        word(two, "comm", LOOK),
        *states,
        *wchans,
        states == ("D", "D") and wchans[0] == wchans[1] and not voluntary and not involuntary,
        round(max(0, spent) / hz / seconds * 100, 1),
        None if delay is None else round(delay / 1e9 / seconds * 100, 1),
        voluntary,
        involuntary,
        word(two, "cpus", LOOK, 1024),
        whole(two, "last_cpu", LOOK),
    )


def _between(one: dict[str, Any], two: dict[str, Any], key: str) -> int | None:
    first, second = whole_or_none(one, key, LOOK), whole_or_none(two, key, LOOK)
    return None if first is None or second is None else max(0, second - first)


def _looks(row: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    looks = row.get("looks")
    if not isinstance(looks, list) or len(looks) != 2 or not all(isinstance(look, dict) for look in looks):
        raise ParseError(f"{WHAT}: expected two objects as looks, found {str(looks)[:60]!r}")
    return looks[0], looks[1]


def _object(row: dict[str, Any], key: str) -> dict[str, Any]:
    value = row.get(key)
    if not isinstance(value, dict):
        raise ParseError(f"{WHAT}: expected an object as {key}, found {str(value)[:60]!r}")
    return value


def _list(row: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = row.get(key)
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ParseError(f"{WHAT}: expected objects as {key}, found {str(value)[:60]!r}")
    return value


def _decimal(status: Mapping[str, str], key: str) -> int | None:
    text = status.get(key, "").partition(" ")[0]
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _kilobytes(status: Mapping[str, str], key: str) -> int | None:
    """`VmRSS:	  311136 kB`, in bytes. A zombie has none."""
    value = _decimal(status, key)
    return None if value is None else value * 1024


def _mask(status: Mapping[str, str], key: str) -> int:
    try:
        return int(status.get(key, "0")[:32], 16)
    except ValueError:
        raise ParseError(f"{WHAT}: expected a mask in hexadecimal as {key}, found {status[key][:60]!r}") from None


def _cgroup(row: dict[str, Any]) -> Cgroup:
    files, one, two = ({k: str(v) for k, v in _object(row, key).items()} for key in ("files", "first", "second"))
    limit, used = files.get("memory.max"), files.get("memory.current")
    limit, used = limit or files.get("memory.limit_in_bytes"), used or files.get("memory.usage_in_bytes")
    most = _decimal({"": limit or ""}, "")
    kills = [
        _pairs(look.get("memory.events") or look.get("memory.oom_control") or "").get("oom_kill") for look in (one, two)
    ]
    before, after = _pairs(one.get("cpu.stat", "")), _pairs(two.get("cpu.stat", ""))
    cpus, periods, throttled = _cpus(files), None, None
    if cpus is not None and {"nr_periods", "nr_throttled"} <= before.keys() & after.keys():
        periods = max(0, after["nr_periods"] - before["nr_periods"])
        throttled = max(0, after["nr_throttled"] - before["nr_throttled"])
    return Cgroup(
        word(row, "folder", GROUP, 1024),
        wholes(row, "pids", GROUP),
        None if most is None or most >= NO_LIMIT else most,
        _decimal({"": used or ""}, ""),
        kills[1],
        None if kills[0] is None or kills[1] is None else max(0, kills[1] - kills[0]),
        cpus,
        periods,
        throttled,
        round(100 * throttled / periods, 1) if periods and throttled is not None else None,
    )


def _cpus(files: Mapping[str, str]) -> float | None:
    """CPUs a cgroup may use; None when it sets no limit. `max 100000` is none, and so is -1."""
    words = files.get("cpu.max", "").split() or [files.get("cpu.cfs_quota_us", ""), files.get("cpu.cfs_period_us", "")]
    if len(words) != 2 or words[0] in ("max", "-1", ""):
        return None
    quota, period = (_decimal({"": text}, "") for text in words)
    if not quota or not period:
        raise ParseError(f"{GROUP}: expected quota and period, found {clean(' '.join(words))[:60]!r}")
    return round(quota / period, 3)


def _pairs(text: str) -> dict[str, int]:
    """`name number` lines of cpu.stat, memory.events and memory.oom_control."""
    words = [line.split() for line in text.split("\n")[:64]]
    return {one[0]: int(one[1]) for one in words if len(one) == 2 and one[1].isdecimal() and len(one[1]) < 20}
