"""Rules about GPUs: clocks against peers, PCIe errors by their rate, other programs' faults, a GPU that stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from probes import catalog
from probes.catalog import gpu_state
from probes.catalog.gpu.facts import Gpu, GpuState
from probes.core import Capture, Finding
from probes.diagnosis import Seen, diagnose
from probes.diagnosis.core import Hypothesis, Reason
from probes.diagnosis.core import seen as as_seen
from probes.diagnosis.ranking import Ranked, rank
from tests.support.rank_facts import gpus, stack, stacked


def state(node: str, *rows: Gpu, at: float | None = None) -> Seen:
    return Seen(f"{node}/gpu.state", node, "gpu.state", "ok", "", GpuState(None, rows), (), at)


def asked(node: str, *rows: Gpu) -> Seen:
    """As the probe found it, with its findings."""
    facts = GpuState(None, rows)
    return Seen(f"{node}/gpu.state", node, "gpu.state", "ok", "", facts, tuple(gpu_state.findings(facts)), None)


def gpu(index: int, **more: object) -> Gpu:
    return dataclasses.replace(Gpu("", index, name="NVIDIA L40S", reasons=()), **more)  # type: ignore[arg-type]


def log(node: str, *lines: str) -> Seen:
    return as_seen(catalog.read(Capture(node, "host.kernel_log", "ok", "\n".join(lines).encode())))


def best(cause: str, *seen: Seen) -> Ranked | None:
    return next((one for one in diagnose(seen).ranked if one.hypothesis.cause == cause), None)


HOT = ("hw_slowdown", "hw_thermal_slowdown")


def test_a_hot_gpu_at_a_fraction_of_its_peers_clock_is_throttled_though_nothing_tells_its_highest() -> None:
    rows = [gpu(0, sm_mhz=2500), gpu(1, sm_mhz=2475), gpu(2, sm_mhz=2490), gpu(3, sm_mhz=345, reasons=HOT)]
    found = best("gpu.throttled", state("n1", *rows))
    assert found is not None and found.probability > 0.5
    assert found.hypothesis.subject == {"node": "n1", "gpu": 3}
    rows[3] = gpu(3, sm_mhz=2300, reasons=HOT)
    little = best("gpu.throttled", state("n1", *rows))
    assert little is not None and little.probability < 0.4


def test_a_whole_node_under_the_power_brake_is_compared_with_other_nodes() -> None:
    held = [gpu(at, sm_mhz=700, reasons=("hw_slowdown", "hw_power_brake_slowdown")) for at in range(4)]
    free = [gpu(at, sm_mhz=1980) for at in range(4)]
    found = best("gpu.throttled", state("n1", *free), state("n2", *held))
    assert found is not None and (found.hypothesis.subject, found.probability > 0.5) == ({"node": "n2"}, True)


def test_gpus_at_rest_are_no_measure_of_a_clock() -> None:
    rows = [gpu(at, sm_mhz=2500, reasons=("gpu_idle",)) for at in range(3)] + [gpu(3, sm_mhz=345, reasons=HOT)]
    found = best("gpu.throttled", state("n1", *rows))
    assert found is not None and found.probability < 0.4


def corrected(count: int, minutes: int) -> list[str]:
    lines = []
    for one in range(count):
        second = one * minutes * 60 // max(count - 1, 1)
        stamp = f"Apr  2 {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        begin = f"{stamp} n1 kernel: nvidia 0000:3b:00.0: "
        lines.append(f"{begin}PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)")
        lines.append(f"{begin}  device [10de:2330] error status/mask=00000080/0000a000")
    return lines


def test_corrected_errors_of_a_gpu_s_link_count_by_how_fast_they_come() -> None:
    steady = best("gpu.pcie_degraded", log("n1", *corrected(80, 60)))
    assert steady is not None and steady.hypothesis.subject == {"node": "n1", "bus_id": "0000:3b:00.0"}
    assert "mask" not in steady.hypothesis.says
    seldom = best("gpu.pcie_degraded", log("n1", *corrected(12, 23 * 60)))
    short = best("gpu.pcie_degraded", log("n1", *corrected(12, 1)))
    assert seldom is not None and short is not None
    assert steady.probability > 0.4 > 0.25 > max(seldom.probability, short.probability)


@pytest.mark.parametrize(
    ("replays", "found"), [((41_190, 0, 3), True), ((41_190, 38_000, 40_500), False), ((90, 0, 0), False)]
)
def test_replays_count_against_the_other_gpus(replays: Sequence[int], found: bool) -> None:
    rows = [gpu(at, pcie_replays=count) for at, count in enumerate(replays)]
    one = best("gpu.pcie_degraded", state("n1", *rows))
    assert (one is not None and one.hypothesis.subject["gpu"] == 0) == found


FAULT = (
    "NVRM: Xid (PCI:0000:a1:00): 31, pid=7110, name={}, Ch 00000017, intr 00000000. MMU Fault: ENGINE {} GPC1 faulted"
)


def test_the_fault_of_a_program_that_draws_is_none_of_the_job() -> None:
    drawn = best("gpu.app_fault", log("n1", f"[  100.000000] {FAULT.format('blender', 'GRAPHICS')}"))
    trained = best("gpu.app_fault", log("n1", f"[  100.000000] {FAULT.format('python3', 'GRAPHICS')}"))
    assert drawn is not None and trained is not None
    assert drawn.probability < 0.6 < trained.probability


def test_where_nothing_tells_when_the_job_ran_what_is_weeks_older_than_the_newest_line_is_old() -> None:
    old = "[Thu Feb  6 17:40:11 2025] " + FAULT.format("python3", "GRAPHICS")
    alone = best("gpu.app_fault", log("n1", old))
    later = best("gpu.app_fault", log("n1", old), log("n2", "[Tue Mar 11 09:14:20 2025] hrtimer: interrupt took 2 ns"))
    assert alone is not None and later is not None and later.probability < alone.probability


SPIN, STILL = (100, 132.0), (0, 84.0)


def test_a_rank_at_the_line_where_all_are_whose_gpu_alone_stands_waits_for_its_gpu() -> None:
    nodes = [gpus(f"n{node}", *[STILL if (node, at) == (2, 3) else SPIN for at in range(8)]) for node in range(3)]
    same = [stacked("n0", stack(0, "user code")), stacked("n2", stack(19, "user code"))]
    found = diagnose([*nodes, *same]).verdict
    assert found.hypothesis.cause == "gpu.silent_stall"
    assert {key: found.hypothesis.subject[key] for key in ("node", "gpu", "rank")} == {
        "node": "n2",
        "gpu": 3,
        "rank": 19,
    }
    assert found.probability < 0.8
    elsewhere = [stacked("n0", stack(0, "user code")), stacked("n2", stack(19, "data loader"))]
    assert best("gpu.silent_stall", *nodes, *elsewhere) is None


def test_a_line_without_a_place_is_of_the_one_place_where_the_same_was_found() -> None:
    def said(subject: dict[str, str | int], words: str) -> Hypothesis:
        return Hypothesis("gpu.memory_error", subject, words, (Reason(words, words),), ("ecc_error_told",))

    placed = said({"node": "a", "gpu": 6}, "by the GPU")
    one = rank([said({}, "by the log"), placed])
    assert [row.hypothesis.subject for row in one if row.hypothesis.cause == "gpu.memory_error"] == [placed.subject]
    two = rank([said({}, "by the log"), placed, said({"node": "b", "gpu": 1}, "by another")])
    assert {} in [row.hypothesis.subject for row in two if row.hypothesis.cause == "gpu.memory_error"]


def test_what_dcgm_says_of_a_gpu_is_a_cause_of_its_own() -> None:
    finding = Finding("gpu.p2p_told", "bad", "GPU 2 cannot exchange data with a peer, says dcgmi diag", {"gpu": 2})
    told = Seen("d", "n4", "gpu.verdicts", "ok", "", None, (finding,))
    found = diagnose([told]).verdict.hypothesis
    assert (found.cause, found.subject) == ("gpu.p2p_blocked", {"node": "n4", "gpu": 2})


def limited(node: str, watts: float, clock: int = 1900) -> Seen:
    rows = [
        gpu(at, power_limit_w=watts, power_default_w=350.0, sm_mhz=clock, utilisation_percent=100) for at in range(4)
    ]
    return state(node, *rows)


def test_a_node_whose_gpus_may_draw_much_less_than_all_others_is_throttled() -> None:
    found = best("gpu.throttled", limited("n1", 350.0), limited("n2", 200.0, 1200), limited("n3", 350.0))
    assert found is not None and found.hypothesis.nodes | {"n2"} == {"n2"}
    assert found.hypothesis.subject["node"] == "n2"
    assert "may draw only 200 W of 350 W" in str(diagnose([limited("n1", 350.0), limited("n2", 200.0)]).ranked)


def test_a_limit_that_all_nodes_have_is_how_the_site_runs_them() -> None:
    assert best("gpu.throttled", limited("n1", 250.0), limited("n2", 250.0)) is None
    alone = best("gpu.throttled", limited("n1", 250.0))
    assert alone is None or alone.probability < 0.5


def test_gpus_at_work_by_the_driver_s_word_are_compared_where_their_use_is_not_told() -> None:
    rows = [gpu(at, sm_mhz=1980 if at else 900, pstate="P0", reasons=("sw_power_cap",)) for at in range(5)]
    found = best("gpu.throttled", state("n1", *rows))
    assert found is not None and found.hypothesis.subject == {"node": "n1", "gpu": 0}
    idle = [gpu(at, sm_mhz=1980 if at else 900, pstate="P0", reasons=("gpu_idle",)) for at in range(5)]
    assert best("gpu.throttled", state("n1", *idle)) is None


def test_the_fault_of_a_program_with_a_name_no_rank_has_is_less_sure_unless_a_log_tells_of_it_too() -> None:
    ours = best("gpu.app_fault", log("n1", f"[  100.000000] {FAULT.format('python3.11', 'COMPUTE')}"))
    other = best("gpu.app_fault", log("n1", f"[  100.000000] {FAULT.format('sim_fluid', 'COMPUTE')}"))
    assert ours is not None and other is not None and other.probability < 0.8 < ours.probability


def test_heat_alone_counts_where_no_clock_tells_how_far_it_is_held_down() -> None:
    unknown = best("gpu.throttled", state("n1", gpu(0, reasons=HOT, temperature_c=91), gpu(1)))
    a_third = best(
        "gpu.throttled", state("n1", gpu(0, reasons=HOT, temperature_c=86, sm_mhz=1305, sm_max_mhz=1980), gpu(1))
    )
    assert unknown is not None and a_third is not None and a_third.probability < 0.4 < unknown.probability


def test_nvlink_errors_that_rise_between_two_looks_accuse_the_link_and_totals_do_not() -> None:
    rows = [gpu(at, nvlink_errors={}, looks_s=1.0) for at in range(4)]
    rows[2] = gpu(2, nvlink_errors={"link 5 CRC error of data": 240, "link 5 replay": 240}, looks_s=1.0)
    found = best("gpu.nvlink_error", asked("n1", *rows))
    assert found is not None and found.hypothesis.subject == {"node": "n1", "gpu": 2}
    assert found.probability > 0.5
    rows[2] = gpu(2, nvlink_errors={"link 5 replay": 240}, looks_s=1.0)
    assert best("gpu.nvlink_error", asked("n1", *rows)) is None


def test_packets_sent_again_over_pcie_within_a_second_accuse_that_gpus_link() -> None:
    rows = [gpu(at, pcie_replays=9000, pcie_replays_more=0, looks_s=1.0) for at in range(4)]
    assert best("gpu.pcie_degraded", asked("n1", *rows)) is None
    rows[1] = gpu(1, pcie_replays=9000, pcie_replays_more=140, looks_s=1.0)
    found = best("gpu.pcie_degraded", asked("n1", *rows))
    assert found is not None and found.hypothesis.subject == {"node": "n1", "gpu": 1}


def test_a_gpu_at_less_than_half_of_its_peers_clock_explains_the_late_rank_of_its_node() -> None:
    rows = [gpu(at, sm_mhz=2100, utilisation_percent=99) for at in range(4)]
    late = Hypothesis(
        "fw.rank_straggler", {"rank": 3, "node": "n1"}, "late", (Reason("late", "x"),), ("late_by_step_times",),
        ranks=frozenset({3}), nodes=frozenset({"n1"}),
    )  # fmt: skip
    causes = []
    for clock in (890, 1500):
        rows[3] = gpu(3, sm_mhz=clock, utilisation_percent=99)
        held = best("gpu.throttled", state("n1", *rows))
        assert held is not None
        causes.append(rank([late, held.hypothesis])[0].hypothesis.cause)
    assert causes == ["gpu.throttled", "fw.rank_straggler"]
