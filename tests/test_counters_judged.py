"""Counters of errors that rise on one port between the two looks of ib.ports, and what each speaks for.

The right causes are those of NVIDIA's "Understanding mlx5 Linux Counters" and of the InfiniBand Architecture
Specification vol. 1, 16.1.3.5: who drops for want of a receive is slow itself; who is told "not ready", discards, or
gets no acknowledgement is the victim of another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from probes import catalog
from probes.core import Capture
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.judging import Diagnosis
from tests.support.fabric import HCAS, name, ports_text

Rises = Mapping[tuple[int, str], Mapping[str, int]]  # node, adapter -> counter -> how much higher at the second look
BASE = {"hw_counters": {"req_cqe_error": 40, "req_cqe_flush_error": 40, "resp_cqe_error": 9, "resp_cqe_flush_error": 9,
    "req_transport_retries_exceeded": 2, "rnr_nak_retry_err": 7, "out_of_buffer": 5, "local_ack_timeout_err": 3},
    "counters": {"port_xmit_discards": 1, "excessive_buffer_overrun_errors": 1, "link_downed": 1}}  # fmt: skip


def looked(number: int, rises: Rises, layer: str = "InfiniBand") -> Capture:
    """What ib.ports brings: eight adapters, their counters, and the same a second later."""
    files = {f"ports/1/{group}/{key}": str(value) for group, told in BASE.items() for key, value in told.items()}
    files |= {"ports/1/link_layer": layer}
    text = ports_text(number, dict.fromkeys(HCAS, files))
    for rail, hca in enumerate(HCAS):
        text += "".join(
            f"==> /sys/class/infiniband/{hca}/{path} <==\n{value}\n\n"
            for path, value in files.items()
            if f"/{hca}/{path} <==" not in text
        )
        grown = rises.get((number, hca), {})
        later = {group: {key: value + grown.get(key, 0) for key, value in told.items()} for group, told in BASE.items()}
        text += f"==> golden15/clock {hca}/1 <==\n{1e9 + rail} {100.0 + rail}\n\n"
        text += f"==> golden15/again {hca}/1 <==\n{json.dumps({'at': 1e9 + rail + 1, 'mono': 101.0 + rail, **later})}\n"
    return Capture(name(number), "ib.ports", "ok", text.encode())


def judged(rises: Rises, layer: str = "InfiniBand") -> Diagnosis:
    captures = [looked(number, rises, layer) for number in range(4)]
    found = diagnose([seen(catalog.read(one)) for one in captures], [one.node for one in captures])
    assert not found.failed, found.failed
    return found


ONE = (2, "mlx5_5")
PORT = {"node": "gpu-002", "hca": "mlx5_5", "port": 1}


@pytest.mark.parametrize(
    ("counter", "cause", "subject"),
    [
        ("port_xmit_discards", "ib.congestion", PORT),
        ("excessive_buffer_overrun_errors", "ib.link_degraded", PORT),
        ("out_of_buffer", "fw.rank_straggler", {"node": "gpu-002"}),
        ("rnr_nak_retry_err", "fw.rank_straggler", {}),  # the port that counts it is told to wait: another is slow
        ("req_transport_retries_exceeded", "ib.link_down", PORT),
        ("req_cqe_error", "ib.link_down", PORT),
        ("resp_cqe_error", "ib.link_down", PORT),
        ("local_ack_timeout_err", "ib.link_degraded", PORT),
    ],
)
def test_a_counter_that_rises_on_one_port_is_told_and_not_with_certainty(
    counter: str, cause: str, subject: dict[str, str | int]
) -> None:
    first = judged({ONE: {counter: 12}}).verdict
    assert (first.hypothesis.cause, first.hypothesis.subject) == (cause, subject)
    assert 0.45 < first.probability < (0.99 if counter.startswith("excessive") else 0.8)
    assert f"{counter}" in first.hypothesis.because[0].says and "12" in first.hypothesis.because[0].says


@pytest.mark.parametrize("counter", [name for group in BASE.values() for name in group])
def test_a_counter_that_rises_on_every_port_or_on_none_accuses_nobody(counter: str) -> None:
    alike = {(number, hca): {counter: 120 + number} for number in range(4) for hca in HCAS}
    if counter in BASE["counters"]:
        alike = {place: {counter: 3} for place in alike}
    quiet = [judged({})] + ([judged(alike)] if counter != "link_downed" else [])
    for found in quiet:
        assert found.verdict.hypothesis.cause in ("unknown", "none")
        assert len(found.ranked) <= 2, [one.hypothesis.cause for one in found.ranked]


def test_a_single_event_is_told_but_does_not_lead() -> None:
    for counter in ("out_of_buffer", "rnr_nak_retry_err", "port_xmit_discards", "local_ack_timeout_err"):
        found = judged({ONE: {counter: 1}})
        assert found.verdict.hypothesis.cause == "unknown"
        assert any(counter in one.hypothesis.because[0].says for one in found.ranked if one.hypothesis.because)


def test_completions_that_were_flushed_follow_from_another_error_and_say_nothing() -> None:
    for way in ("req", "resp"):
        found = judged({ONE: {f"{way}_cqe_error": 300, f"{way}_cqe_flush_error": 300}})
        assert found.verdict.hypothesis.cause == "unknown" and len(found.ranked) <= 2
        part = judged({ONE: {f"{way}_cqe_error": 304, f"{way}_cqe_flush_error": 300}}).verdict
        assert part.hypothesis.cause == "ib.link_down" and "rose by 4 " in part.hypothesis.because[0].says


def test_the_host_that_drops_is_slow_and_those_that_it_told_to_wait_are_not() -> None:
    victims = {(number, "mlx5_5"): {"rnr_nak_retry_err": 900} for number in (0, 1)}
    first = judged({ONE: {"out_of_buffer": 1800}, **victims}).verdict
    assert (first.hypothesis.cause, first.hypothesis.subject) == ("fw.rank_straggler", {"node": "gpu-002"})
    assert "not the network" in first.hypothesis.says
    assert [one.says.partition(":")[0] for one in first.hypothesis.because] == [
        "mlx5_5/1 on gpu-002", "mlx5_5/1 on gpu-000", "mlx5_5/1 on gpu-001"]  # fmt: skip


def test_the_one_node_that_nobody_told_to_wait_is_the_slow_receiver() -> None:
    told = {(number, "mlx5_0"): {"rnr_nak_retry_err": 50} for number in (0, 1, 3)}
    first = judged(told).verdict
    assert (first.hypothesis.cause, first.hypothesis.subject) == ("fw.rank_straggler", {"node": "gpu-002"})


def test_what_a_link_that_goes_down_discards_and_loses_is_no_second_cause() -> None:
    grown = {"link_downed": 1, "port_xmit_discards": 400, "req_transport_retries_exceeded": 8}
    found = judged({ONE: grown})
    assert found.verdict.hypothesis.cause == "ib.link_flapping"
    assert not {"ib.congestion", "ib.link_down"} & {one.hypothesis.cause for one in found.ranked}


def swept(**discards: int) -> str:
    """ibqueryerrors of one leaf, which prints no counter that stands at 0."""
    rows = ""
    for port, count in discards.items():
        number = int(port[1:])
        rows += f"   GUID 0xfc6a1c0300000005 port {number}: [PortXmitDiscards == {count}]\n"
        link = f"      Link info:      3   {number}[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>  "
        rows += f'{link}0x000000000010000b      9    1[  ] "gpu-{number:03d} mlx5_5" ( )\n'
    return f'Errors for 0xfc6a1c0300000005 "leaf-05"\n{rows}'


def of_sweeps(before: str, after: str) -> Diagnosis:
    text = f"==> ibqueryerrors at 1764465100.5 <==\n{before}\n==> ibqueryerrors at 1764465101.5 <==\n{after}\n"
    reading = catalog.read(Capture("gpu-001", "ib.fabric_errors", "ok", text.encode()))
    assert reading.facts is not None, reading.parse_error
    return diagnose([seen(reading)], ["gpu-001", "gpu-003"])


def test_a_switch_that_discards_what_goes_to_one_adapter_accuses_that_adapter() -> None:
    for before, after in ((swept(p3=5), swept(p3=905)), (swept(p3=5, p4=70), swept(p3=905, p4=70))):
        first = of_sweeps(before, after).verdict
        assert (first.hypothesis.cause, first.hypothesis.subject["node"]) == ("ib.congestion", "gpu-003")
        assert "port 3 of leaf-05 discards what it should send" in first.hypothesis.says
        assert "rose by 900 in 1 s (900/s)" in first.hypothesis.because[0].says
    assert of_sweeps(swept(p3=905), swept(p3=905)).verdict.hypothesis.cause == "unknown", "counted once, long ago"
    many = {f"p{number}": 5 for number in range(1, 9)}
    full = of_sweeps(swept(**many), swept(**dict.fromkeys(many, 905))).verdict
    assert full.hypothesis.cause == "unknown", "all are alike: no one sink"


def test_on_roce_the_counters_of_hosts_and_retries_speak_as_on_infiniband() -> None:
    for counter, cause in (("out_of_buffer", "fw.rank_straggler"), ("req_transport_retries_exceeded", "ib.link_down")):
        assert judged({ONE: {counter: 60}}, "Ethernet").verdict.hypothesis.cause == cause
