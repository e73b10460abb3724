"""ib.resources: what adapters have in use, asked through tools that stand in for rdma and ibv_devinfo."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes import catalog
from probes.core import Capture, Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.intake.tools import tool_of
from tests.support.collectors import capture_here

RDMA = """#!/bin/sh
[ "$*" = "resource show" ] || exit 1
echo "0: mlx5_0: pd 9 cq 310 qp 612 cm_id 0 mr 4410 ctx 8 srq 2 "
echo "1: mlx5_1: pd 9 cq 310 qp {used} cm_id 0 mr 4400 ctx 8 srq 2 "
"""
DEVINFO = """#!/bin/sh
[ "$3" = "{hangs}" ] && exec sleep 600
printf 'hca_id:\\t%s\\n\\tmax_qp:\\t\\t\\t\\t131072\\n\\tmax_qp_wr:\\t\\t\\t32768\\n' "$3"
printf '\\tphys_port_cnt:\\t\\t\\t1\\n\\t\\tport:\\t1\\n\\t\\t\\tstate:\\t\\t\\tPORT_{state}\\n'
printf '\\t\\t\\tmax_mtu:\\t\\t4096 (5)\\n\\t\\t\\tactive_mtu:\\t\\t{mtu}\\n\\t\\t\\tlink_layer:\\t\\t{layer}\\n'
"""
REFUSED = "gpu-7:91:97 [1] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory"


def asked(
    tmp_path: Path, used: int = 600, hangs: str = "none", mtu: str = "4096 (5)", layer: str = "InfiniBand",
    state: str = "ACTIVE (4)",
) -> Reading:  # fmt: skip
    devinfo = DEVINFO.format(hangs=hangs, mtu=mtu, layer=layer, state=state)
    tools, sysfs = tmp_path / "bin", tmp_path / "infiniband"
    tools.mkdir(parents=True)
    for name, script in (("rdma", RDMA.format(used=used)), ("ibv_devinfo", devinfo)):
        (tools / name).write_text(script)
        (tools / name).chmod(0o755)
    for hca in ("mlx5_0", "mlx5_1"):
        (sysfs / hca).mkdir(parents=True)
    probe = catalog.load()["ib.resources"]
    capture = capture_here(probe, path=str(tools), instead={"/sys/class/infiniband": str(sysfs)})
    assert capture.outcome == "ok", capture.why
    return catalog.read(capture)


def judged(*readings: Reading) -> tuple[str, dict[str, str | int], float]:
    found = diagnose([seen(one) for one in readings], ["gpu-7", "gpu-8"]).verdict
    return found.hypothesis.cause, dict(found.hypothesis.subject), found.probability


def test_queue_pairs_that_are_all_in_use_on_a_live_node_are_why_the_next_was_refused(tmp_path: Path) -> None:
    full = asked(tmp_path, used=131_060)
    assert [(one.code, one.subject) for one in full.findings] == [("ib.queue_pairs_full", {"hca": "mlx5_1"})]
    reading = catalog.read(Capture("gpu-7", "ib.resources", "ok", full.capture.out))
    log = catalog.read(Capture("gpu-7", "rank.log", "ok", b"==> /jobs/rank1.log <==\n" + REFUSED.encode() + b"\n"))
    cause, subject, probability = judged(reading, log)
    assert (cause, subject) == ("ib.qp_exhausted", {"node": "gpu-7", "hca": "mlx5_1"})
    assert probability > 0.9


def test_adapters_with_room_say_nothing(tmp_path: Path) -> None:
    reading = asked(tmp_path)
    assert reading.findings == () and judged(reading)[0] == "unknown"
    assert reading.facts.resources["mlx5_1 qp"] == 600 and reading.facts.resources["mlx5_0 max_qp"] == 131_072


def test_a_dead_adapter_costs_its_own_limit_only(tmp_path: Path) -> None:
    reading = asked(tmp_path, hangs="mlx5_0")
    assert "ibv_devinfo -v -d mlx5_0: timeout" in reading.capture.text
    told = reading.facts.resources
    assert "mlx5_0 max_qp" not in told and (told["mlx5_0 qp"], told["mlx5_1 max_qp"]) == (612, 131_072)


@pytest.mark.parametrize(
    "text",
    [
        "3: mlx5_3: pd 4/8388608 cq 9/16777216 qp 131072/131072 cm_id 0 mr 40/16777216 ctx 2\n",
        '[{"ifindex":3,"ifname":"mlx5_3","pd":4,"pd-max":8388608,"qp":131072,"qp-max":131072}]',
    ],
)
def test_limits_that_newer_releases_of_rdma_print_are_read_from_files_too(text: str) -> None:
    tool = tool_of(text, "rdma.txt")
    assert tool is not None
    told = tool.read(text).resources
    assert (told["mlx5_3 qp"], told["mlx5_3 max_qp"], told["mlx5_3 max_pd"]) == (131_072, 131_072, 8_388_608)


def mtus(tmp_path: Path, odd: str, layer: str = "InfiniBand", state: str = "ACTIVE (4)") -> list[Reading]:
    """Four nodes, the last with another MTU, as ibv_devinfo tells it."""
    texts = {n: asked(tmp_path / str(n), mtu=odd if n == 4 else "4096 (5)", layer=layer, state=state) for n in (1, 4)}
    return [
        catalog.read(Capture(f"gpu-{n}", "ib.resources", "ok", texts[4 if n == 4 else 1].capture.out))
        for n in range(1, 5)
    ]


def test_the_node_whose_infiniband_mtu_is_smaller_is_named_and_listed_as_a_difference(tmp_path: Path) -> None:
    readings = mtus(tmp_path, "2048 (4)")
    assert readings[3].facts.mtus == {"mlx5_0/1": 2048, "mlx5_1/1": 2048}
    found = diagnose([seen(one) for one in readings], ["gpu-1", "gpu-2", "gpu-3", "gpu-4"])
    first = found.verdict
    assert (first.hypothesis.cause, first.hypothesis.subject) == ("net.mtu_mismatch", {"node": "gpu-4"})
    assert "mlx5_0 on gpu-4: MTU 2048" in [one.says for one in first.hypothesis.because]
    assert "ib.resources" in first.hypothesis.because[0].reading
    assert [one.says for one in found.differences if "MTU" in one.what] == [
        "MTU of InfiniBand ports: 4096 on gpu-1, gpu-2, gpu-3, 2048 on gpu-4"]  # fmt: skip


def test_ports_of_one_mtu_or_that_are_down_or_ethernet_say_nothing_of_it(tmp_path: Path) -> None:
    for number, told in enumerate((("4096 (5)",), ("2048 (4)", "Ethernet"), ("2048 (4)", "InfiniBand", "DOWN (1)"))):
        readings = mtus(tmp_path / str(number), *told)
        assert judged(*readings)[0] == "unknown", told
        assert (readings[0].facts.mtus == {}) == (len(told) > 1)
