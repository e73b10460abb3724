"""Alerts, tickets of monitoring, prologs and reasons for a drain that name a condition of a GPU in words."""

from __future__ import annotations

import pytest

from probes.core import ParseError
from probes.intake.tools.gpu import gpu_conditions as conditions


def told(text: str) -> dict[str, list[tuple[str, int | None]]]:
    return {node: [(one.code, one.gpu) for one in some.verdicts] for node, some in conditions.by_node(text).items()}


@pytest.mark.parametrize(
    ("text", "node", "code", "gpu"),
    [
        ("[FIRING:2] GpuRowRemapFailure (kb-14 critical)\n - gpu = 5\n", "kb-14", "gpu.remap_failed", 5),
        ("Problem name: GPU 1: thermal throttling\nHost: kb-14\nSeverity: High\n", "kb-14", "gpu.throttle_told", 1),
        ("error: Epilog hook output: kb-14: GPU 7 fell off the bus\n", "kb-14", "gpu.lost", 7),
        ("NODELIST STATE REASON\nkb-14    drain health check: NVLink 3 down\n", "kb-14", "gpu.nvlink_inactive", None),
        ("NodeName=kb-14 State=IDLE+DRAIN Reason=nvidia-smi timed out\n", "kb-14", "gpu.driver_no_answer", None),
        ("[nhc] kb-14: Health check failed: expected 8 GPUs, found 7\n", "kb-14", "gpu.not_visible", None),
        ("nhc on kb-14: GPU count 6, expected 8\n", "kb-14", "gpu.not_visible", None),
        ('{"status":"firing","labels":{"alertname":"GpuDoubleBit","node":"kb-14"}}\n', "kb-14", "gpu.ecc_uncorrected",
         None),
    ],
)  # fmt: skip
def test_a_condition_is_of_the_node_and_the_gpu_that_are_named(
    text: str, node: str, code: str, gpu: int | None
) -> None:
    assert conditions.TOOL.fits(text, "x.txt")
    assert told(text) == {node: [(code, gpu)]}


@pytest.mark.parametrize(
    "text",
    [
        "[RESOLVED] GpuRowRemapFailure on kb-14\n",
        "Problem has been resolved: GPU 1 thermal throttling on kb-14\n",
        "drained nodes: if a GPU is lost, power-cycle it\n",
        "[nhc] kb-14: check passed for all, expected 8 GPUs, found 8\n",
        "prolog on kb-14: NVLink errors: 0, row remap pending: no, uncorrectable ECC errors 0\n",
        "health check of kb-14: no uncorrectable ECC errors, no GPU lost\n",
        "[FIRING:1] DiskFull (kb-14)\n",
        "the job reports uncorrectable ECC errors\n",
    ],
)
def test_what_is_over_or_advice_or_of_nobody_who_watches_is_none(text: str) -> None:
    assert not conditions.TOOL.fits(text, "x.txt")
    with pytest.raises(ParseError):
        conditions.read(text if "the job" not in text else "")


def test_the_time_of_a_reason_is_kept_so_that_an_old_one_can_be_told() -> None:
    text = "REASON               USER      TIMESTAMP           NODELIST\n"
    text += "GPU 2 uncorrectable ECC root    2026-03-02T11:14:02 kb-[14-15]\n"
    found = conditions.by_node(text)
    assert set(found) == {"kb-14", "kb-15"}
    assert found["kb-15"].verdicts[0].stamp == "2026-03-02 11:14:02"
