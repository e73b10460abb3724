"""Was an event before this job, or before the job was last seen to go on? Then it did not stop it.

Units    seconds. Times of a node are corrected by its measured clock offset before they are compared with another's
Shape    Times(evidence).old(node, at, stamp) -> "yes", "perhaps" or ""

A kernel log and a job's log often print local times without a zone. Two such times may differ by a zone: 14 h at most.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

from probes.catalog.logs.events import LogEvent
from probes.diagnosis.core import Evidence

Old = Literal["yes", "perhaps", ""]
# What a rank writes while it starts or goes on: of whatever happened well before, the job did not stop.
GOES_ON = ("nccl_init_start", "nccl_init_done", "nccl_version", "nccl_topology", "nccl_net", "progress", "launched")
MARGIN_S = 60.0  # judgement: logs of one moment are this close
LONG_S = 6 * 3600.0  # judgement: what happened so long before the last sign of the job did not stop it
STEP_S = 120.0  # judgement: a step that is under way may still end after a fault
DATED = 1e9  # seconds since the epoch; a smaller number is a time of the day
ZONES_S = 14 * 3600.0
DAYS_S = 3 * 86_400.0  # judgement: people look while the trouble is there or soon after, seldom days later
YEAR_S = 366 * 86_400.0  # as 2000 has
AGO_S = 14 * 86_400.0  # judgement: nobody looks for the first time at a job that has stood for two weeks
_FORMS = (
    "%Y-%m-%d %H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
    "%Y %b %d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%S",
    "%Y %a %b %d %H:%M",
    "%Y %b %d %H:%M",
    "%Y-%m-%d %H:%M",
)  # last and who leave seconds out, and the year


_ZONE = re.compile(r"(?<=:\d\d)(?:Z|[+-]\d\d:?\d\d)$")  # of RFC 3339, and of journalctl -o short-iso


def local(stamp: str) -> float | None:
    """A time as printed, as if it were UTC; one without a year gets the year 2000. None where it is no date."""
    return _parsed(" ".join(_ZONE.sub("", stamp).replace(",", ".").split(".")[0].split())[:40])


@functools.lru_cache(4096)  # logs of many ranks tell the same seconds, and each try costs
def _parsed(word: str) -> float | None:
    for text in (word, f"2000 {word}", f"2000-{word}"):
        for form in _FORMS:
            try:
                return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
            except ValueError:
                continue
    return None


_SPAN = re.compile(r"(?<!\S)\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?!\S)")


def _span(start: str, end: str) -> float | None:
    """Seconds between start and end of a job, which sacct prints side by side."""
    first, last = local(start), local(end)
    return last - first if first is not None and last is not None and last > first else None


class Times:
    """Built from all evidence; only read."""

    def __init__(self, evidence: Evidence) -> None:
        self.offsets: dict[str, float] = {}
        for seen in evidence.of("host.clock"):
            offset = seen.facts.offset_s if seen.facts.offset_s is not None else seen.facts.service_offset_s
            if offset is not None:
                self.offsets[seen.node] = offset
        self.starts: dict[str, float] = {}  # node -> when its first rank began, by the node's own clock
        for view in evidence.job.ranks.values():
            if view.place is not None and view.place.start_time is not None:
                began = view.place.start_time
                self.starts[view.node] = min(began, self.starts.get(view.node, began))
        # (by our clock, node), the earliest first
        self.starts_in_order = sorted((at - self.offsets.get(node, 0.0), node) for node, at in self.starts.items())
        events = [(event, seen.node) for event, _, seen in evidence.job.said(*GOES_ON)]
        self.first = _ends(((event, node, self._log(event, node)) for event, node in events), min)
        began = [at for seen in evidence.of("job.nodes", "job.state") if (at := local(seen.facts.started)) is not None]
        self.scheduled: Ends = (None, max(began, default=None))  # when Slurm started the job, by the cluster's clock
        last = ((event, node, self._log(event, node)) for event, node in events if event.kind == "progress")
        self.last = _ends(last, max)
        from probes.diagnosis.going_on import in_one_zone

        self.one_zone = in_one_zone(evidence)
        self.looked = _looked(evidence)
        signs = ((event, seen.node, self._log(event, seen.node)) for event, _, seen in evidence.job.events)
        self.last_sign = _ends(signs, max)
        counted = (one for seen in evidence.of("ib.counters", "ib.fabric_errors") for one in seen.facts.sets)
        looks = [one.at for one in counted if one.at and one.at > DATED]
        self.counted: Ends = (None, max(looks, default=None))  # a time that somebody wrote, of which zone is not known
        # Of jobs that lost a node only: of one that ended otherwise a node may be started again long after its end.
        lost = (event for event, _, _ in evidence.job.said("scheduler_kill") if event.name == "NODE_FAIL")
        rows = (_SPAN.findall(event.text) for event in lost)
        self.of_rows = [span for row in rows if len(row) > 1 and (span := _span(*row[-2:])) is not None]

        stamps = [local(seen.facts.last) for seen in evidence.of("host.kernel_log") if seen.facts is not None]
        self.newest = max((at for at in stamps if at is not None), default=None)  # line of any kernel log, as printed

    @property
    def lasted(self) -> float | None:
        """How long the job is known to have run: from its first sign to its last step."""
        spans = [last - first for first, last in zip(self.first, self.last, strict=True) if first and last]
        spans += self.of_rows
        return max(spans, default=None)

    def _log(self, event: LogEvent, node: str) -> float | None:
        return None if event.at is None else event.at - self.offsets.get(node, 0.0)

    def corrected(self, node: str, at: float | None) -> float | None:
        """A node's time by our clock."""
        return None if at is None else at - self.offsets.get(node, 0.0)

    def old(self, node: str, at: float | None, stamp: str = "") -> Old:
        """Whether something that happened last at this time was before the job, or before it was seen to go on."""
        start = self.starts.get(node)
        if start is not None and at is not None:
            return "yes" if at < start - 1 else ""
        found: list[Old] = [
            _before(self.corrected(node, at), stamp, ends, margin, 0.0 if self.one_zone else ZONES_S)
            for ends, margin in (
                (self.first, MARGIN_S),
                (self.last, STEP_S),
                (self.last_sign, LONG_S),
                (self.counted, DAYS_S),
            )
        ]
        if self._is_of_this_run():  # a node's clock has the cluster's zone, where its lines are printed without one
            zones = 0.0 if at is None else ZONES_S
            found.append(_before(self.corrected(node, at), stamp, self.scheduled, MARGIN_S, zones))
        if self.last_sign == (None, None):  # no log tells any time: then how long ago it was when somebody looked
            found.append(_before(self.corrected(node, at), stamp, self.looked, AGO_S, 0.0))
        told = any(end is not None for ends in (self.first, self.last, self.last_sign) for end in ends)
        if not told and (mine := local(stamp)) is not None and self.newest is not None:
            # Nothing tells when the job ran. But somebody looked after the newest line of all nodes' logs.
            found.append("perhaps" if apart(self.newest, mine) > DAYS_S else "")
        return "yes" if "yes" in found else "perhaps" if "perhaps" in found else ""

    def _is_of_this_run(self) -> bool:
        """Whether what Slurm says of the job's start is of the run that the logs are of, not of one after it."""
        began, last = self.scheduled[1], self.last_sign[1]
        return began is not None and (last is None or apart(last, began) > -MARGIN_S)

    def long_ago(self, node: str, at: float | None, stamp: str = "") -> bool:
        """Whether it was days before somebody looked, of what ends a job at once: who looks has another reason to."""
        return _before(self.corrected(node, at), stamp, self.looked, DAYS_S, 0.0) == "yes"

    def over(self, node: str, at: float | None, stamp: str = "") -> bool:
        """Whether it is surely old."""
        return self.old(node, at, stamp) == "yes"


def _looked(evidence: Evidence) -> Ends:
    """The latest look at the nodes that tells its day."""
    facts = [seen.facts for seen in evidence.of("evidence.looked")]
    utc = max((one.utc for one in facts if one.utc is not None), default=None)
    printed = max((one.printed for one in facts if one.printed is not None), default=None)
    return utc, printed


def times_of(evidence: Evidence) -> Times:
    """Made once for all rules."""
    found: Times = evidence.derived("times", lambda: Times(evidence))
    return found


Ends = tuple[float | None, float | None]  # the end of a span: in UTC, and as printed


def _ends(events: Iterator[tuple[LogEvent, str, float | None]], pick: object) -> Ends:
    assert callable(pick)
    some = list(events)
    utc = [at for _, _, at in some if at is not None]
    stamps = [stamp for event, _, utc_at in some if utc_at is None for stamp in _stamps(event)]
    printed = _of_one_year([at for stamp in stamps if (at := local(stamp)) is not None])
    return (pick(utc) if utc else None, pick(printed) if printed else None)


def _of_one_year(printed: list[float]) -> list[float]:
    """Times without a year beside some that have one, in the year that lies next to these: or one is not before the
    other where it is."""
    dated = max((at for at in printed if _year(at) != 2000), default=None)
    if dated is None:
        return printed
    return [dated + apart(at, dated) if _year(at) == 2000 else at for at in printed]


def _stamps(event: LogEvent) -> tuple[str, str]:
    """Of a line without a time of its own the last one that stands above it."""
    return str(event.more.get("first_stamp", "")), event.stamp or str(event.more.get("after_stamp", ""))


def _before(at: float | None, stamp: str, ends: Ends, margin: float, zones: float) -> Old:
    utc, printed = ends
    if at is not None and utc is not None:
        return "yes" if at < utc - margin else ""
    mine = at if at is not None else local(stamp)
    theirs = utc if utc is not None else printed
    if mine is None or theirs is None:
        return ""
    gap = apart(theirs, mine)
    if gap > zones + margin:
        return "yes"
    return "perhaps" if gap > margin else ""


def seconds_between(first_at: float | None, first: str, last_at: float | None, last: str) -> float | None:
    """Between two lines of one log: by their times, as printed, or as seconds after boot."""
    if first_at is not None and last_at is not None:
        return last_at - first_at
    begin, end = local(first), local(last)
    if begin is None or end is None:
        try:
            begin, end = float(first[:20]), float(last[:20])
        except ValueError:
            return None
    return end - begin


def apart(later: float, earlier: float) -> float:
    """How far two times lie apart of which either may have no year, as `local` gives them: then the shorter way round,
    from December to February."""
    if 2000 not in (_year(later), _year(earlier)):
        return later - earlier
    gap = _without_year(later) - _without_year(earlier)
    return gap - YEAR_S if gap > YEAR_S / 2 else gap + YEAR_S if gap < -YEAR_S / 2 else gap


def _year(at: float) -> int:
    return datetime.fromtimestamp(at, UTC).year


def _without_year(at: float) -> float:
    return datetime.fromtimestamp(at, UTC).replace(year=2000).timestamp()
