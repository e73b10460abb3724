"""The store or the rendezvous of torch: a port that is taken, a store where nobody listens, members that do not come.

A rank whose tries succeed later has written the same warnings: they count only where no rank came further.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, before, everyone, listed, node_at, node_of, own_faults, whom

CAUSE, BLOCKED = "fw.rendezvous_failed", "net.bootstrap_blocked"
# The first is a clean end; the second comes after the rendezvous was over for some other reason.
HARMLESS = ("RendezvousGracefulExit", "RendezvousClosed")
ERRORS = {
    "RendezvousTimeoutError": "not all members came in time",
    "EtcdConnectionError": "etcd, which the nodes meet at, could not be reached",
    "RendezvousConnectionError": "the store of the rendezvous could not be reached",
}
_PORT = re.compile(r"(?:\[::\]:|0\.0\.0\.0:|\bport:? )(\d{2,5})\b")
_REMOTE = re.compile(r"remote=\[?([A-Za-z0-9][\w.-]{0,80})\]?:(\d{2,5})\b")
NO_ROUTE, TIMED_OUT, REFUSED = (101, 113), (110,), (111,)  # errno(3)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    said = list(evidence.job.said("rendezvous"))
    taken = [one for one in said if "EADDRINUSE" in one[0].text or one[0].name == "listen"]
    if taken:
        yield _failed(evidence, taken, "the port of the store is taken already: an earlier run may still be there",
            {node_of(evidence, one) for one in taken} - {""} or _host_of_store(evidence, taken),
            "address_in_use")  # fmt: skip
        return
    if not said or _came_further(evidence):
        return
    if any(one[0].peer for one in evidence.job.said("credential")):
        return  # a node refused to start its ranks: nobody could meet them
    ended = [one for one in own_faults(evidence) if before(evidence, one, said[0]) is not False]
    if ended:
        return  # who lost its peers meets them at no rendezvous
    unreachable = [one for one in said if one[0].name in ("timed out", "failed to connect")]
    unknown = [one for one in said if one[0].name == "cannot be retrieved"]
    errors = [one for one in said if one[0].name.endswith("Error") and not one[0].name.startswith(HARMLESS)]
    missing = [one for one in said if one[0].name == "members missing"]
    if missing and (silent := _silent(missing, unreachable)):
        yield _no_answer(evidence, [*silent, missing[0]], "store_up_no_answer")
    elif missing:
        event = missing[0][0]
        says = f"{event.more.get('joined')} of {event.more.get('world')} members came in time"
        yield _failed(evidence, missing, says, set(), "members_missing")
    elif unreachable:
        yield from _unreachable(evidence, unreachable)
    elif unknown:
        nodes = {node_of(evidence, one) for one in unknown}
        says = f"the name of the store's node, {unknown[0][0].peer}, has no address"
        yield _failed(evidence, unknown, says, nodes, "name_not_found")
    if errors:
        says = f"{ERRORS.get(errors[0][0].name, 'the members did not agree')} ({errors[0][0].name})"
        yield _failed(evidence, errors, says, set(), "rendezvous_error")
    elif lost := [one for one in said if one[0].name in ("keep-alive", "dead", "no heartbeat")]:
        nodes = {node_at(evidence, one[0].peer) or one[0].peer or node_of(evidence, one) for one in lost}
        yield _failed(evidence, lost, "a node could not say that it is alive", nodes, "keep_alive_lost")


def _host_of_store(evidence: Evidence, taken: list[Said]) -> set[str]:
    """The node of the port that was taken, as those name it who looked for the store there."""
    ports = {found[1] for event, _, _ in taken for found in _PORT.finditer(event.text)}
    named = [found for event, _, _ in evidence.job.events for found in _REMOTE.finditer(event.text)]
    return {node_at(evidence, found[1]) or found[1] for found in named if found[2] in ports}


def _came_further(evidence: Evidence) -> bool:
    """Whether the ranks worked after it: then the store was there."""
    return any(True for _ in evidence.job.said("nccl_init_done", "progress", "watchdog_timeout", "nccl_call"))


def _silent(missing: list[Said], unreachable: list[Said]) -> list[Said]:
    """Who got no answer of a store that was there: who held it waited for them to the end, and refused nobody."""
    held = any("clients joined" in one[0].text for one in missing)
    gave_up = [one for one in unreachable if one[0].name == "timed out"]
    refused = any(one[0].code in REFUSED for one in unreachable)
    return gave_up if held and gave_up and not refused else []


def _unreachable(evidence: Evidence, said: list[Said]) -> Iterator[Hypothesis]:
    """The client tries until its limit, also where it is refused: that it timed out does not tell why. The warnings
    before do, by their error number."""
    codes = {one[0].code for one in said}
    where = said[0][0].peer
    no_way = bool(codes & set(NO_ROUTE))
    if codes & set(REFUSED) or not (no_way or codes & set(TIMED_OUT)):
        signal = "store_refused" if codes & set(REFUSED) else "store_unreachable"
        nodes = {node_at(evidence, one[0].peer) for one in said} - {""}
        yield _failed(evidence, said, f"nobody answers at the store {where}", nodes, signal)
        return
    yield _no_answer(evidence, said, "connection_no_route" if no_way else "store_timed_out")


def _no_answer(evidence: Evidence, said: list[Said], signal: str) -> Hypothesis:
    nodes = {node_at(evidence, one[0].peer) for one in said} - {""}
    why = "there is no route" if signal == "connection_no_route" else "it does not answer"
    return Hypothesis(
        BLOCKED,
        whom(nodes),
        f"The store at {said[0][0].peer} cannot be reached: {why}",
        tuple(quoted(*one) for one in (*said[:2], *said[2:][-1:])),
        (signal,),
        would_change=("a connection to that address and port, from the same node, that succeeds",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes | {node_of(evidence, one) for one in said}),
    )


def _failed(evidence: Evidence, said: list[Said], says: str, nodes: set[str], signal: str) -> Hypothesis:
    return Hypothesis(
        CAUSE,
        whom(nodes),
        f"The rendezvous failed on {listed({node_of(evidence, one) for one in said})}: {says}",
        tuple(quoted(*one) for one in said[:3]),
        (signal,),
        would_change=("the first process of the job up and listening at that address before the others start",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes | {node_of(evidence, one) for one in said}),
    )


RULE = Rule((CAUSE, BLOCKED), judge)
