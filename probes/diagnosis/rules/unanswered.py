"""An adapter sends and nobody acknowledges, by its own counters: first timeouts, then its retries are used up.

Source   NVIDIA, "Understanding mlx5 Linux Counters". req_transport_retries_exceeded counts what a program gets as
         status 12, req_cqe_error and resp_cqe_error all completions with an error. Those that were flushed
         (*_cqe_flush_error) follow from another error, so they are taken off. local_ack_timeout_err is what comes
         before; on RoCE it is a loss of packets like others (lossless_misconfigured)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from probes.diagnosis.core import Evidence, Hypothesis, Rule
from probes.diagnosis.ports import Ports, PortView
from probes.diagnosis.rules._rising import Odd, called, many, odd_ones, place, rose
from probes.diagnosis.rules.link_degraded import ERRORS

DOWN, DEGRADED = "ib.link_down", "ib.link_degraded"
RETRIES, TIMEOUTS, DISCARDS = "req_transport_retries_exceeded", "local_ack_timeout_err", "port_xmit_discards"
FLUSHED = {"req_cqe_error": "req_cqe_flush_error", "resp_cqe_error": "resp_cqe_flush_error"}
STATUS_12 = 12  # IBV_WC_RETRY_EXC_ERR


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    ports: Ports = evidence.ports
    if any(map(_explained, ports.views.values())) or _told_by_log(evidence):
        return
    for name in (RETRIES, *FLUSHED):  # a completion with an error is also what a retry that is used up ends in
        if odd := odd_ones(ports.of_nodes, name, partial(_not_flushed, name)):
            yield _unanswered(name, odd)
            return
    views = [view for view in ports.of_nodes if view.facts is not None and view.facts.link_layer == "InfiniBand"]
    if odd := odd_ones(views, TIMEOUTS):
        yield _timeouts(odd)


def _not_flushed(name: str, view: PortView) -> int:
    """By how much it rose beyond what was flushed; all of it where that is not counted apart."""
    return view.rise(name) - view.rise(FLUSHED.get(name, ""))


def _explained(view: PortView) -> bool:
    """A port that is or went down, errors of a cable, packets that were discarded: what is lost is lost there."""
    down = view.facts is not None and view.facts.state not in ("ACTIVE", None) and bool(view.looks)
    return down or view.rise(*ERRORS, DISCARDS, "link_downed", "link_down_events_phy") > 0


def _told_by_log(evidence: Evidence) -> bool:
    """NCCL names the peer as well."""
    return any(one[0].code == STATUS_12 and not one[0].secondary for one in evidence.job.said("ib_completion"))


def _unanswered(name: str, odd: list[Odd]) -> Hypothesis:
    retries, who = name == RETRIES, called(odd)
    what = (
        "sends are given up after all retries: a peer does not answer" if retries else "completions end with an error"
    )
    return Hypothesis(
        DOWN, place(odd), f"On {who} {what}",
        tuple(rose(view, name, count) for view, count in odd[:4]),
        ("retries_counted" if retries else "completions_counted",),
        would_change=("port states and link_downed of the peers it sends to", "the log of NCCL: which peer it names"),
        nodes=frozenset(view.node for view, _ in odd),
    )  # fmt: skip


def _timeouts(odd: list[Odd]) -> Hypothesis:
    return Hypothesis(
        DEGRADED, place(odd), f"Acknowledgements to {called(odd)} are lost on the way: the path from it to its peers",
        tuple(rose(view, TIMEOUTS, count) for view, count in odd[:4]),
        ("ack_timeouts" if many(odd) else "ack_timeouts_few",),
        would_change=("counters of errors along its path, twice", "the same counter a minute later, unchanged"),
        nodes=frozenset(view.node for view, _ in odd),
    )  # fmt: skip


RULE = Rule((DOWN, DEGRADED), judge)
