"""The logs of all ranks in the picture of a job: whose each file is, and what an earlier process of a rank wrote."""

from __future__ import annotations

import re

from probes.catalog.logs.events import LogEvent, RankLog
from probes.catalog.logs.findings import EARLIER, same_host
from probes.catalog.logs.given_files import GIVEN
from probes.catalog.logs.runs import ends, run_of
from probes.diagnosis.cluster import happenings
from probes.diagnosis.core import Evidence, Seen
from probes.diagnosis.job import Job, RankView
from probes.diagnosis.times import ZONES_S, apart, local

NOBODY = ("", "localhost", "localhost.localdomain", "127.0.0.1")
# After one of these no rank of the job makes another step; what it names has ended, or is about to.
FAILED = frozenset(("cuda_error", "traceback", "torchrun_failure", "fatal_signal", "scheduler_kill", "loader_killed",
    "watchdog_timeout", "blocking_wait", "gloo_timeout", "heartbeat", "nccl_error", "remote_error", "peer_closed",
    "collective_mismatch", "barrier_missed", "setup_missed", "store_closed", "torchrun_signal", "watchdog_ended",
    "agent_signal", "barrier_victim", "store_timeout", "desync", "disk_full", "shm_full",
    "write_cut"))  # fmt: skip
_CONTAINER = re.compile(r"[0-9a-f]{12}")  # as Docker calls one that nobody gave a name
_NUMBERED = re.compile(r"(?:node|host|machine|worker|rank)[-_.]?\d{1,5}")  # what people call files by
STEPS = {"loss", "step_ms", "total", "rate"}  # what a line of a step has and prose about one has not
SAME_LOG_S = 120.0  # judgement: a step that was under way may still be told
DATED = 366 * 86400.0 * 31  # seconds since 1970: before it the year is not told, see times.local
OTHER_LOG_S = 900.0  # judgement: logs of several nodes, whose clocks may be apart, and whose limits may be long


def add_logs(job: Job, evidence: Evidence) -> None:
    """Add what rank.log read to the ranks that are known by now, and apart what is of processes before the present."""
    for one in evidence.of("rank.log"):
        for log in one.facts.logs:
            if log.how != GIVEN:
                _log(job, one, log)
    _given_logs(job, evidence)
    if evidence.all_of("cluster.events"):
        others = {seen.node for seen in evidence.readings if seen.probe != "cluster.events"}
        hosts = {str(event.more["host"]) for event, _, _ in job.events if "host" in event.more}
        job.events += happenings(
            evidence, others | hosts | {view.node for view in job.ranks.values()}, job.name[1] if job.name else None
        )
        _where_pods_run(job, evidence, others)
    _apart(job)
    several = _of_several_nodes(job)
    for event, log, _ in job.events:  # NCCL's lines begin with the node's name
        host = event.more.get("host")
        if (
            event.rank is not None
            and isinstance(host, str)
            and (not (view := job.view(event.rank)).node or (id(log) in several and _only_in(view, log)))
        ):
            view.node = next((node for node in evidence.nodes if same_host(node, host)), host)
        if event.kind in ("step_times", "slow_rank") and event.rank is not None and event.peer not in NOBODY:
            view = job.view(event.rank)
            if not view.node or _only_in(view, log):
                # Of a rank with no file of its own the table's column of nodes tells more than where the table lies.
                view.node = next((node for node in evidence.nodes if same_host(node, event.peer)), event.peer)
        if event.kind == "torchrun_failure" and len(event.about) == 1 and event.peer not in NOBODY:
            view = job.view(event.about[0])  # torchrun names the node of each rank that failed
            # In a log that all nodes see the name may be a container's: then only one that a node has counts.
            unknown = "" if log.how == GIVEN else event.peer
            known = next((node for node in evidence.nodes if same_host(node, event.peer)), "")
            # Of node3 by the name of its file and gpu-b12 by torchrun the latter counts, where that is a node.
            # What only lies in another node's folder is there because somebody started the job from it.
            better = known if _NUMBERED.fullmatch(view.node) or _only_in(view, log) else ""
            view.node = better or view.node or known or unknown


def _of_several_nodes(job: Job) -> set[int]:
    """Logs of which ranks of several nodes write: where such a file lies tells of none of them."""
    hosts: dict[int, set[str]] = {}
    for event, log, _ in job.events:
        host = str(event.more.get("host", ""))
        if event.rank is not None and host and not _CONTAINER.fullmatch(host):
            hosts.setdefault(id(log), set()).add(host)
    return {log for log, names in hosts.items() if len(names) > 1}


def _only_in(view: RankView, log: RankLog) -> bool:
    return view.logs == [log] and set(view.refs) == {"rank.log"}


def _where_pods_run(job: Job, evidence: Evidence, others: set[str]) -> None:
    """Ranks that are known by their pods are of the nodes on which these run, where those tell something themselves."""
    nodes = {pod.name: pod.node for seen in evidence.of("cluster.events") for pod in seen.facts.pods if pod.node}
    for view in job.ranks.values():
        node = next((one for one in others if one and same_host(one, nodes.get(view.node, ""))), "")
        view.node = node or view.node


def _writers(log: RankLog) -> set[int]:
    own = {log.rank, *log.writers, *(event.rank for event in log.events)}
    return {rank for rank in own if rank is not None}


def _log(job: Job, seen: Seen, log: RankLog) -> None:
    for rank in _writers(log):
        view = job.known(seen, rank)
        if log not in view.logs:
            view.logs.append(log)
    job.events += [(event, log, seen) for event in log.events]


def _apart(job: Job) -> None:
    """What an earlier process of a rank wrote tells nothing of the present one, and must not accuse its node."""
    restarts: dict[int, tuple[int, int]] = {}
    for event, log, _ in job.events:
        if event.kind == "ranks_restarted":
            restarts[id(log)] = max(restarts.get(id(log), (0, 0)), _place_in(event))
    goes_on = {id(log) for event, log, _ in job.events if _place_in(event) > restarts.get(id(log), (0, 0))}
    runs: dict[int, int] = {}
    for event, log, _ in job.events:
        runs[id(log)] = max(runs.get(id(log), 0), run_of(event))
    kept: list[tuple[LogEvent, RankLog, Seen]] = []
    went_on = _WentOn(job)
    other_runs = _of_other_runs(job)
    for one in job.events:
        event, log, _ = one
        before = id(log) in other_runs or ends(event) and run_of(event) < runs[id(log)]
        before = before or (id(log) in goes_on and _place_in(event) < restarts.get(id(log), (0, 0)))
        before = before or went_on.after(event, log)
        (job.earlier if before or log.how == EARLIER or _before_its_process(job, event) else kept).append(one)
    job.events = kept


class _WentOn:
    """Ranks wait for each other: when one has failed, none writes of its next steps. Steps well after a failure are of
    an attempt after it."""

    def __init__(self, job: Job) -> None:
        self._last: dict[int, tuple[float | None, float | None]] = {}
        self._place: dict[int, int] = {}  # of the last step's line
        for event, log, _ in job.events:
            if event.kind == "progress" and event.seq is not None and STEPS & set(event.more):
                self._place[id(log)] = max(self._place.get(id(log), 0), event.last_place)
                utc, printed = self._last.get(id(log), (None, None))
                self._last[id(log)] = (_latest(utc, event.last_at), _latest(printed, local(event.stamp)))

    def after(self, event: LogEvent, log: RankLog) -> bool:
        """Whether the job went on after this failure: by the same log, or by another one clearly later."""
        if event.kind not in FAILED:
            return False
        at = event.last_at if event.last_at is not None else event.after
        stamp = local(event.stamp or str(event.more.get("after_stamp", "")))
        for of, (utc, printed) in self._last.items():
            same = of == id(log)
            if same and 0 < self._place.get(of, 0) < (event.line or 0):
                continue  # in one log the order tells more than times, of which one may have no year
            later, margin = 0.0, SAME_LOG_S if same else OTHER_LOG_S
            if at is not None and utc is not None:
                later = utc - at
            elif stamp is not None and printed is not None:
                later, margin = apart(printed, stamp), SAME_LOG_S if same else OTHER_LOG_S + ZONES_S
            if later > margin:
                return True
        return False


def _of_other_runs(job: Job) -> set[int]:
    """Logs that had ended long before the log with the most steps began: of an earlier job in the same folder."""
    spans: dict[int, tuple[float, float]] = {}
    steps: dict[int, int] = {}
    for event, log, _ in job.events:
        words = (event.stamp, str(event.more.get("after_stamp", "")), str(event.more.get("first_stamp", "")))
        times = [at for word in words if word[:2] == "20" and (at := local(word)) is not None]  # with its year
        if event.at is not None and event.last_at is not None:
            times += [event.at, event.last_at]
        if times:
            first, last = spans.get(id(log), (min(times), max(times)))
            spans[id(log)] = min(first, *times), max(last, *times)
        if event.kind == "progress":
            steps[id(log)] = steps.get(id(log), 0) + event.count
    most = max((log for log in steps if log in spans), key=lambda log: steps[log], default=None)
    if most is None:
        return set()
    return {log for log, (_, last) in spans.items() if last < spans[most][0] - ZONES_S - OTHER_LOG_S}


def _latest(one: float | None, other: float | None) -> float | None:
    return max((at for at in (one, other) if at is not None), default=None)


def _place_in(event: LogEvent) -> tuple[int, int]:
    return event.line or 0, event.offset or 0


def _before_its_process(job: Job, event: LogEvent) -> bool:
    """Whether it was written before the process that now is the rank began; both times are by the node's clock. What
    names several ranks is old when it is for all of them."""
    at = event.last_at if event.last_at is not None else event.at
    ranks = event.about if event.rank is None else (event.rank,)
    places = [view.place for rank in ranks if (view := job.ranks.get(rank)) is not None]
    began = [place.start_time for place in places if place is not None and place.start_time]
    # A second: start_time is counted in ticks since boot, lines of launchers in whole seconds.
    return bool(at is not None and began and len(began) == len(ranks) and at < min(began) - 1.0)


def _given_logs(job: Job, evidence: Evidence) -> None:
    """Files that people named may lie on a file system of all nodes: whoever read one is not where its rank ran.

    torchrun prints the host of each of its own ranks. Without that, the one node of several that has a rank's file.
    What several nodes read in one file is told once, by the rank's own node where it can.
    """
    looked = [one for one in evidence.of("rank.log") if one.facts.given]
    logs = [(one, log) for one in looked for log in one.facts.logs if log.how == GIVEN]
    for rank, node in _homes(evidence, looked, logs).items():
        view = job.view(rank)
        view.node = view.node or node
    told: dict[object, tuple[LogEvent, RankLog, Seen]] = {}
    for one, log in logs:
        for rank in _writers(log):
            view = job.view(rank)
            if log not in view.logs:
                view.logs.append(log)
            if view.node == one.node or one.probe not in view.refs:
                view.refs[one.probe] = one.ref
        for event in log.events:
            key = (log.file, event.kind, event.rank, event.about, event.offset, event.stamp, event.text)
            whose = next((rank for rank in (*event.about[:1], event.rank) if rank is not None), None)
            if key not in told or (whose is not None and job.view(whose).node == one.node):
                told[key] = (event, log, one)
    job.events += told.values()


def _homes(evidence: Evidence, looked: list[Seen], logs: list[tuple[Seen, RankLog]]) -> dict[int, str]:
    """{rank: its node}, as far as files of given paths tell it."""
    whole = {one.node for one in looked if all(path.fits is not None for path in one.facts.given)}
    holders: dict[str, set[str]] = {}
    for one, log in logs:
        holders.setdefault(log.file, set()).add(one.node)
    nodes_of: dict[int, set[str]] = {}
    for _, log in logs:
        for rank in _writers(log):
            nodes_of.setdefault(rank, set()).update(holders[log.file])
    homes = {rank: min(nodes) for rank, nodes in nodes_of.items() if len(nodes) == 1 and len(whole | nodes) > 1}
    for event in (event for _, log in logs for event in log.events if event.kind == "torchrun_failure"):
        node = _node_called(event.peer, evidence, looked)
        homes.update(dict.fromkeys(event.about, node) if node else {})
    return homes


def _node_called(host: str, evidence: Evidence, looked: list[Seen]) -> str:
    """The node that calls itself so, or is called so by us; "" when none is or several are."""
    own = {one.node for one in looked if same_host(host, one.facts.host)}
    found = own or {node for node in evidence.nodes if same_host(host, node)}
    return found.pop() if len(found) == 1 else ""
