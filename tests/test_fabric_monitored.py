"""Ports and adapters as kernels, monitoring and libraries tell of them, and what is no fault of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brought import told

MATRIX = (
    '{"status":"success","data":{"resultType":"matrix","result":[%s]}}',
    '{"metric":{"__name__":"node_infiniband_port_transmit_wait_total","instance":"w%d:9100","device":"mlx5_0",'
    '"port":"1"},"values":[[1796000000,"1000"],[1796000030,"900"],[1796000060,"%d"]]}',
)
WATCHDOG = (
    "[rank{rank}]:[E1130 03:12:02.123456789 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=8121, OpType=ALLREDUCE, NumelIn=26, NumelOut=26, Timeout(ms)=600000) ran for "
    "600049 milliseconds before timing out.\n"
)
MLXLINK = (
    "Operational Info\n----------------\nState                              : {state}\n"
    "Physical state                     : {phys}\nSpeed                              : IB-NDR\n"
    "Width                              : 4x\n\nTroubleshooting Info\n--------------------\n"
    "Status Opcode                      : {code}\nRecommendation                     : {says}\n"
)


def downs(stamp: str) -> str:
    return (
        f"Nov 30 {stamp} w5 kernel: mlx5_core 0000:3b:00.0: Port module event: module 0, Cable unplugged\n"
        f"Nov 30 {stamp} w5 kernel: mlx5_core 0000:3b:00.0 ens3f0np0: Link down\n"
    )


def test_a_range_of_prometheus_tells_how_long_ports_waited(tmp_path: Path) -> None:
    """200e9 ticks of 8 bytes in 60 s are 27 GB/s: a quarter of even the fastest port."""
    rows = ",".join(MATRIX[1] % (n, 200_000_000_000) for n in (1, 2, 3))
    assert told(tmp_path, {"wait.json": MATRIX[0] % rows}).cause == "ib.congestion"


def test_a_range_in_which_nothing_waited_tells_of_no_congestion(tmp_path: Path) -> None:
    rows = ",".join(MATRIX[1] % (n, 2000) for n in (1, 2, 3))
    assert told(tmp_path, {"wait.json": MATRIX[0] % rows}).share("ib.congestion") == 0


def test_a_panel_with_a_column_for_each_port_is_read(tmp_path: Path) -> None:
    rows = "".join(f"2026-11-30 02:{m:02d}:00,0,{2 + m // 5}\n" for m in range(0, 50, 5))
    found = told(tmp_path, {"link_downed.csv": "Time,hx-1 mlx5_0,hx-2 mlx5_0\n" + rows})
    assert (found.cause, found.subject) == ("ib.link_flapping", {"node": "hx-2", "hca": "mlx5_0", "port": 1})


def test_a_panel_whose_columns_are_labels_is_read(tmp_path: Path) -> None:
    head = (
        '"Time","{device=""mlx5_1"", instance=""hx-7:9100"", port=""1""}","{device=""mlx5_1"", instance=""hx-8:9100""}"'
    )
    rows = "".join(f"{1796000000000 + 60_000 * m},{9 * m},0\n" for m in range(6))
    found = told(tmp_path, {"port_rcv_errors.csv": f"{head}\n{rows}"})
    assert (found.cause, found.subject.get("node")) == ("ib.link_degraded", "hx-7")


def test_a_port_that_mlxlink_finds_without_a_cable_is_down(tmp_path: Path) -> None:
    text = MLXLINK.format(state="Polling", phys="ETH_AN_FSM_ENABLE", code=1024, says="Cable is unplugged")
    found = told(tmp_path, {"gpu-8/mlxlink_mlx5_4.txt": text})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "gpu-8", "hca": "mlx5_4", "port": 1})
    fine = MLXLINK.format(state="Active", phys="LinkUp", code=0, says="No issue was observed")
    assert told(tmp_path / "fine", {"gpu-8/mlxlink_mlx5_4.txt": fine}).share("ib.link_down") == 0


@pytest.mark.parametrize(("stamp", "counts"), [("03:02:11", True), ("20:15:00", False)])
def test_a_link_that_went_down_as_the_job_stopped_counts(tmp_path: Path, stamp: str, counts: bool) -> None:
    found = told(tmp_path, {"w5-journal.txt": downs(stamp), "rank40.err": WATCHDOG.format(rank=40)})
    assert (found.share("ib.link_down") > 0.5) is counts


def test_one_short_loss_that_nobody_complains_of_does_not_lead(tmp_path: Path) -> None:
    log = (
        "[Sun Nov 29 22:04:51 2026] mlx5_core 0000:9a:00.0 ibs3: Link down\n"
        "[Sun Nov 29 22:05:20 2026] mlx5_core 0000:9a:00.0 ibs3: Link up\n"
    )
    found = told(tmp_path, {"gpu-07.dmesg.txt": log})
    assert found.cause == "unknown" and found.share("ib.link_flapping") < 0.5


def test_kernel_and_nccl_tell_of_one_adapter(tmp_path: Path) -> None:
    kernel = (
        "Nov 30 02:11:40 hx3 kernel: mlx5_core 0000:ca:00.0: print_health_info:415: Health issue observed, firmware "
        "internal error, severity(3) ERROR:\n"
    )
    log = (
        "hx3:33:35 [6] transport/net_ib/common.cc:88 NCCL WARN NET/IB : mlx5_6:1 async fatal event: local catastrophic "
        "error\n"
    )
    found = told(tmp_path, {"hx3.kern.log": kernel, "train.log": log})
    assert (found.cause, found.subject) == ("ib.hca_fault", {"node": "hx3", "hca": "mlx5_6"})
    assert sum(one.hypothesis.cause == "ib.hca_fault" for one in found.diagnosis.ranked) == 1


def test_a_fatal_bus_error_of_an_adapter_is_the_adapters(tmp_path: Path) -> None:
    kernel = (
        "[Mon Nov 30 02:11:40 2026] mlx5_core 0000:ca:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), "
        "type=Transaction Layer, (Receiver ID)\n"
    )
    found = told(tmp_path, {"gpu-21/dmesg.txt": kernel})
    assert (found.cause, found.subject) == ("ib.hca_fault", {"node": "gpu-21", "hca": "0000:ca:00.0"})


def test_an_adapter_that_its_bus_no_longer_reads_failed(tmp_path: Path) -> None:
    name = "Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]"
    text = f"17:00.0 {name}\n3d:00.0 {name} (rev ff)\n5d:00.0 {name}\n"
    found = told(tmp_path, {"gpu-21/lspci.txt": text})
    assert (found.cause, found.subject) == ("ib.hca_fault", {"node": "gpu-21", "hca": "0000:3d:00.0"})


def test_the_state_of_a_queue_pair_is_none_of_a_port(tmp_path: Path) -> None:
    log = (
        "gpu-1:8:9 [0] misc/ibvwrap.cc:290 NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument, on dev "
        "mlx5_0:1, curr state INIT, next state RTR\n"
    )
    found = told(tmp_path, {"t.log": log})
    assert found.cause == "ib.gid_or_route" and "subnet manager" not in found.says


def test_who_is_in_other_partitions_is_named(tmp_path: Path) -> None:
    def pkeys(first: str) -> str:
        folder = "/sys/class/infiniband/mlx5_0/ports/1/pkeys"
        return f"{folder}/0:{first}\n{folder}/1:0x0000\n"

    files = {f"gpu-{n}/pkeys.txt": pkeys("0x7fff" if n == 2 else "0xffff") for n in (1, 2, 3, 4)}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.gid_or_route", {"node": "gpu-2"})
    alike = told(tmp_path / "alike", {f"gpu-{n}/pkeys.txt": pkeys("0xffff") for n in (1, 2, 3, 4)})
    assert alike.share("ib.gid_or_route") == 0


def test_adapters_before_their_states_are_no_hosts(tmp_path: Path) -> None:
    files = {f"gpu-{n}/state.txt": "".join(f"mlx5_{d}: {'DOWN' if (n, d) == (2, 3) else 'ACTIVE'}\n" for d in range(4))
        for n in (1, 2, 3)}  # fmt: skip
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "gpu-2", "hca": "mlx5_3", "port": 1})


def test_a_lost_link_of_a_node_that_is_not_the_jobs_does_not_lead(tmp_path: Path) -> None:
    job = "".join(f"kd0{n}:8:9 [0] NCCL INFO Bootstrap : Using eno1:10.0.0.{n}<0>\n" for n in (1, 2))
    fabric = (
        "Nov 30 02:41:10 123456 [7F1B4700] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xe8ebd30300a11c40 LID "
        "range [12, 12] of node:kd77 mlx5_0\n"
    )
    assert told(tmp_path, {"job.log": job, "opensm.log": fabric}).probability < 0.8
    assert told(tmp_path / "alone", {"opensm.log": fabric}).cause == "ib.link_down"


def swept(*ports: tuple[int, int]) -> str:
    rows = "".join(
        f"   GUID 0xe8ebd30300a11c40 port {port}: [LinkErrorRecoveryCounter == 12] [PortRcvErrors == {count}]\n"
        f"         Link info:     12   {port}[  ] ==( 4X        106.25 Gbps Active/  LinkUp)==>  "
        f'0xa088c20300a1b2c3    431    1[  ] "gpu-{port:02d} mlx5_2" ( )\n'
        for port, count in ports
    )
    head = 'Errors for 0xe8ebd30300a11c40 "MF0;leaf03:MQM9700/U1"'
    return f"{head}\n{rows}## Summary: 130 nodes checked, 1 bad nodes found\n"


def test_the_one_cable_of_a_sweep_with_thousands_of_errors_is_suspected(tmp_path: Path) -> None:
    found = told(tmp_path, {"ibqueryerrors.txt": swept((3, 40_120), (5, 9))})
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "gpu-03", "hca": "mlx5_2", "port": 1})
    assert found.probability < 0.8
    many = told(tmp_path / "many", {"ibqueryerrors.txt": swept((3, 40_120), (5, 39_000), (6, 41_000))})
    assert many.share("ib.link_degraded") == 0


def test_a_ring_that_leaves_a_machine_for_each_gpu_is_no_good_one(tmp_path: Path) -> None:
    def log(ring: str) -> str:
        places = "".join(
            f"qa{rank // 4}:4{rank}:5{rank} [{rank % 4}] NCCL INFO comm 0x7f{rank} rank {rank} nRanks 8 nNodes 2 "
            f"localRanks 4 localRank {rank % 4} MNNVL 0\n"
            for rank in range(8)
        )
        return f"{places}qa0:40:50 [0] NCCL INFO Channel 00/02 :    {ring}\n"

    crossed = told(tmp_path, {"job.log": log("0   4   1   5   2   6   3   7")})
    assert crossed.cause == "nccl.topology_degraded"
    assert told(tmp_path / "good", {"job.log": log("0   1   2   3   4   5   6   7")}).cause == "unknown"


def test_a_loop_of_states_tells_how_often_a_port_went_down(tmp_path: Path) -> None:
    def loop(*down: int) -> str:
        return "".join(
            f"Mon Nov 30 02:0{n}:00 UTC 2026\nState: {'Down' if n in down else 'Active'}\n" for n in range(8)
        )

    found = told(tmp_path, {"gpu-7/mlx5_1_states.txt": loop(2, 5)})
    assert (found.cause, found.subject) == ("ib.link_flapping", {"node": "gpu-7", "hca": "mlx5_1", "port": 1})
    assert told(tmp_path / "fine", {"gpu-7/mlx5_1_states.txt": loop()}).share("ib.link_flapping") == 0


def test_ucx_and_the_port_tell_of_one_link(tmp_path: Path) -> None:
    line = (
        "[1764468000.1] [vv-2:412 :0] ib_mlx5_log.c:171 UCX  ERROR Transport retry count exceeded on mlx5_1:1/IB (synd "
        "0x15 vend 0x81 hw_synd 0/0)\n"
    )
    port = (
        "CA 'mlx5_1'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: Down\n"
        "\t\tPhysical state: Polling\n\t\tRate: 10\n\t\tLink layer: InfiniBand\n"
    )
    both = told(tmp_path / "both", {"u.log": line, "vv-2/ibstat.txt": port})
    alone = told(tmp_path / "alone", {"vv-2/ibstat.txt": port})
    assert both.subject == {"node": "vv-2", "hca": "mlx5_1", "port": 1}
    assert both.share("ib.link_down") > alone.share("ib.link_down")


def using(*names: int) -> str:
    return "NET/IB : Using " + " ".join(f"[{place}]mlx5_{name}:1/IB" for place, name in enumerate(names)) + " [RO]"


def test_an_adapter_that_nccl_takes_everywhere_but_on_one_machine(tmp_path: Path) -> None:
    files = {
        f"co-{n}.log": f"co-{n}:8:9 [0] NCCL INFO {using(*([0, 2] if n == 3 else [0, 1, 2]))}\n" for n in range(1, 5)
    }
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "co-3", "hca": "mlx5_1"})
    assert found.probability < 0.8
    alike = told(tmp_path / "alike", {name: text.replace("[1]mlx5_2:1/IB [RO]", "[1]mlx5_1:1/IB [2]mlx5_2:1/IB [RO]")
        for name, text in files.items()})  # fmt: skip
    assert alike.share("ib.link_down") == 0


def test_no_room_for_a_queue_pair_is_no_full_disk(tmp_path: Path) -> None:
    line = (
        "co-1:41:43 [1] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_qp failed with error No space left on device "
        "errno 28\n"
    )
    found = told(tmp_path, {"rank.err": line})
    assert found.cause == "ib.qp_exhausted" and found.share("host.disk_full") == 0


def test_what_nccl_refuses_counts_before_what_an_adapter_can_do(tmp_path: Path) -> None:
    def log(n: int, off: bool) -> str:
        lead, word, far = f"tu-{n}:8:9 [0] NCCL INFO", "Disabled" if off else "Enabled", 7 if off else 4
        return (
            f"{lead} NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'\n"
            f"{lead} GPU Direct RDMA {word} for GPU 0 / HCA 0 (distance {far} > 5), read 0 mode Default\n"
            f"{lead} Channel 00/0 : {n}[0] -> 9[0] [send] via NET/IB/0{'' if off else '/GDRDMA'}\n"
        )

    found = told(tmp_path, {f"tu-{n}.log": log(n, n == 2) for n in (1, 2, 3)})
    assert (found.cause, found.subject) == ("ib.gpudirect_off", {"node": "tu-2"})
