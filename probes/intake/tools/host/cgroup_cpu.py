"""A cgroup's cpu.stat and cpu.max (or cpu.cfs_quota_us): how often a quota stopped its processes. One look, or two.

Source: the kernel's Documentation/admin-guide/cgroup-v2.rst
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.host.load_facts import Load, Quota
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, looks, refuse
from probes.intake.tools.host._load import load

_STAT = re.compile(
    r"(?:(?P<of>[^\s:]{1,300}/)?cpu\.stat:\s{0,4})?(?<![\w.])[\"']?"
    r"(?P<key>nr_periods|nr_throttled|throttled_usec|throttled_time)"
    r"[\"']?\s{0,4}[:= ]\s{0,4}(?P<value>\d{1,20})(?![\w.])"
)
_MAX = re.compile(r"^(?:(?:\S{0,300}cpu\.max)[: =]{1,3})?(\d{4,12}|max) (\d{4,10})\s*$", re.M)
_CFS = re.compile(r"cpu\.cfs_(quota|period)_us[: =]{1,3}(-?\d{1,12})")
MOST = 512  # control groups
_FOLDER = re.compile(r"((?:/sys/fs/cgroup)?/[\w./@:-]{2,300})/cpu\.(?:stat|max)")


def fits(head: str, name: str) -> bool:
    if "nr_periods" in head and "nr_throttled" in head:
        return bool(_STAT.search(head))
    return "cpu.max" in name and bool(_MAX.fullmatch(head.strip())) or bool(_CFS.search(head[:400]))


def read(text: str) -> Load:
    """Of two looks what happened between them; of one only the totals since the cgroup was made. Where grep or tail
    names the files, each control group is one of its own."""
    seen: dict[str, list[dict[str, int]]] = {}
    for _, body in looks(text):
        now: dict[str, dict[str, int]] = {}
        for told in _STAT.finditer(body):
            of, key = (told["of"] or "").rstrip("/"), told["key"]
            one = now.setdefault(of, {})
            if key in one:  # it begins anew
                seen.setdefault(of, []).append(one)
                one = now[of] = {}
            one[key] = int(told["value"])
        for of, one in now.items():
            if "nr_periods" in one and len(seen) < MOST:
                seen.setdefault(of, []).append(one)
    limit = _MAX.search(text)
    cpus = int(limit[1]) / int(limit[2]) if limit and limit[1] != "max" and int(limit[2]) else 0.0
    cfs = dict(_CFS.findall(text))
    if cfs.get("quota", "-1") != "-1" and int(cfs.get("period", "0") or 0):
        cpus = int(cfs["quota"]) / int(cfs["period"])
    if not seen and not limit and not cfs:
        raise refuse("lines of cpu.stat or cpu.max", text)
    folder = _FOLDER.search(text)
    alone = folder[1] if folder else ""
    if len(seen) < 2:
        return load(quotas=(_quota(alone, cpus, next(iter(seen.values()), [])),))
    return load(quotas=tuple(_quota(of or alone, 0.0, some) for of, some in seen.items()))


def _quota(of: str, cpus: float, seen: list[dict[str, int]]) -> Quota:
    quota = Quota(of, round(cpus, 3), (), False, None, None, None)
    if seen:
        quota = replace(quota, total_periods=seen[-1].get("nr_periods"), total_throttled=seen[-1].get("nr_throttled"))
    return between(quota, seen[0], seen[-1]) if len(seen) > 1 else quota


def between(quota: Quota, first: dict[str, int], last: dict[str, int]) -> Quota:
    periods = last.get("nr_periods", 0) - first.get("nr_periods", 0)
    throttled = last.get("nr_throttled", 0) - first.get("nr_throttled", 0)
    if periods <= 0 or throttled < 0:
        return quota
    return replace(quota, periods=periods, throttled=throttled, throttled_percent=round(100 * throttled / periods, 1))


TOOL = Tool("cgroup cpu", "host.load", fits, read, host=host_in, log=True)
