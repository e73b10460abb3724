"""The same faults of fabrics and CPUs in other forms: what other tools, drivers and libraries print of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.brought import told

NODES = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")
NO_PAIR = (
    "gpu-02:41:43 [1] misc/ibvwrap.cc:252 NCCL WARN Call to ibv_create_qp failed with error Cannot allocate memory\n"
)


def rdma_link(*down: int) -> str:
    return "".join(
        f"link mlx5_{n}/1 state {'DOWN physical_state DISABLED' if n in down else 'ACTIVE physical_state LINK_UP'}"
        f" netdev eth{n} \n"
        for n in range(4)
    )


def test_a_port_of_roce_that_is_down_on_one_node_alone_is_named(tmp_path: Path) -> None:
    files = {f"{node}/rdma_link.txt": rdma_link(*((2,) if node == "gpu-03" else ())) for node in NODES}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "gpu-03", "hca": "mlx5_2", "port": 1})


def test_a_port_of_roce_that_is_down_on_every_node_is_not_meant_to_be_up(tmp_path: Path) -> None:
    found = told(tmp_path, {f"{node}/rdma_link.txt": rdma_link(3) for node in NODES})
    assert found.share("ib.link_down") < 0.5


def test_the_driver_tells_that_a_limit_of_the_adapter_was_reached(tmp_path: Path) -> None:
    """mlx5_cmd_out_err of drivers/net/ethernet/mellanox/mlx5/core/cmd.c"""
    dmesg = (
        "[Mon Nov 30 02:00:01 2026] mlx5_core 0000:1a:00.0: mlx5_cmd_out_err:838:(pid 41): CREATE_QP(0x500) "
        "op_mod(0x0) failed, status limits exceeded(0x8), syndrome (0x65b500), err(-12)\n"
    )
    found = told(tmp_path, {"gpu-02/dmesg.txt": dmesg, "gpu-02/rank1.log": NO_PAIR})
    assert (found.cause, found.subject) == ("ib.qp_exhausted", {"node": "gpu-02"})
    assert found.probability >= 0.9


def test_ucx_tells_the_limit_beside_the_refusal(tmp_path: Path) -> None:
    line = (
        "[1764468000.123456] [gpu-02:4121 :0]  ib_md.c:295  UCX  ERROR ibv_reg_mr(address=0x7f0e60000000, "
        "length=8388608, access=0xf) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to "
        "'unlimited' (current: 8192 kbytes)\n"
    )
    found = told(tmp_path, {"gpu-02/rank1.log": line})
    assert (found.cause, found.subject) == ("ib.memlock_limit", {"node": "gpu-02"})
    assert found.probability >= 0.9


def test_all_rails_of_a_node_with_another_mtu_are_one_fault(tmp_path: Path) -> None:
    def devinfo(mtu: str) -> str:
        return "".join(
            f"hca_id:\tmlx5_{n}\n\ttransport:\t\t\tInfiniBand (0)\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n"
            f"\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t{mtu}\n"
            for n in range(4)
        )

    files = {f"{node}.ibv_devinfo.txt": devinfo("1024 (3)" if node == "gpu-04" else "4096 (5)") for node in NODES}
    found = told(tmp_path, files)
    assert (found.cause, found.subject) == ("net.mtu_mismatch", {"node": "gpu-04"})
    assert found.probability >= 0.9


@pytest.mark.parametrize("names", ["{}.ibstat.txt", "ibstat_{}.txt", "{}/ibstat"])
def test_short_names_of_nodes_are_names_as_well(tmp_path: Path, names: str) -> None:
    def ibstat(state: str) -> str:
        return "".join(
            f"CA 'mlx5_{n}'\n\tCA type: MT4129\n\tPort 1:\n"
            f"\t\tState: {state if n == 1 else 'Active'}\n"
            f"\t\tPhysical state: {'Polling' if state == 'Down' and n == 1 else 'LinkUp'}\n\t\tRate: 400\n"
            f"\t\tBase lid: {n + 7}\n\t\tSM lid: 1\n\t\tLink layer: InfiniBand\n"
            for n in range(4)
        )

    files = {names.format(node): ibstat("Down" if node == "n3" else "Active") for node in ("n1", "n2", "n3", "n4")}
    found = told(tmp_path, files)
    assert (found.cause, found.subject.get("node")) == ("ib.link_down", "n3")


def pidstat(rows: int, used: float, waits: float) -> str:
    return (
        "Linux 5.15.0-91-generic (gpu-07) \t11/30/2026 \t_x86_64_\t(16 CPU)\n\n"
        "01:10:01 AM   UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command\n"
    ) + "".join(
        f"01:10:06 AM  1000      {4000 + n}   {used:.2f}    2.00    0.00   {waits:.2f}   {used:.2f}     {n}  "
        "pt_main_thread\n"
        for n in range(rows)
    )


VMSTAT = (
    "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n"
    " r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n"
    "{}  0      0 881203   1203 401203    0    0     1     3    2   11 70 30  0  0  0\n"
)


def test_far_more_that_want_to_run_than_ranks_are_their_threads(tmp_path: Path) -> None:
    """vmstat names no node: pidstat in the same folder does."""
    found = told(tmp_path / "a", {"pidstat.txt": pidstat(8, 192, 71), "vmstat.txt": VMSTAT.format(198)})
    assert (found.cause, found.subject) == ("cpu.thread_oversubscription", {"node": "gpu-07"})
    assert found.probability >= 0.8
    calm = told(tmp_path / "b", {"pidstat.txt": pidstat(8, 100, 0.5), "vmstat.txt": VMSTAT.format(9)})
    assert calm.cause == "unknown"


def test_a_mask_whose_few_cpus_have_no_time_left_is_a_collision(tmp_path: Path) -> None:
    masks = "".join(f"pid {4000 + n}'s current affinity mask: f\n" for n in range(8))
    table = "    PID    PPID %CPU COMMAND\n" + "".join(f"{4000 + n:>7}       1 50.0 python\n" for n in range(8))
    files = {"taskset.txt": masks, "ps.txt": table, "nproc": "64\n"}
    pressed = "some avg10=63.20 avg60=58.11 avg300=40.02 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    found = told(tmp_path, {f"gpu-02/{name}": text for name, text in (files | {"psi.txt": pressed}).items()})
    assert (found.cause, found.subject) == ("cpu.affinity_collision", {"node": "gpu-02"})


def test_the_tables_of_mlxlink_are_known_without_those_of_troubleshooting(tmp_path: Path) -> None:
    rows = (("State", "Active"), ("Physical state", "LinkUp"), ("Speed", "IB-NDR"), ("Width", "4x"))
    errors = (("Symbol Errors", "99123"), ("Symbol BER", "3E-08"), ("Effective Physical BER", "4E-09"))
    text = "\nOperational Info\n----------------\n" + "".join(f"{key:<35}: {value}\n" for key, value in rows)
    text += "\nPhysical Counters and BER Info\n----\n" + "".join(f"{key:<35}: {value}\n" for key, value in errors)
    found = told(tmp_path, {"gpu-02/mlxlink-mlx5_3.txt": text})
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.link_degraded", "gpu-02", "mlx5_3")


def test_another_program_in_python_beside_ranks_that_say_who_they_are_is_none_of_the_job(tmp_path: Path) -> None:
    rows = "".join(
        f"train      {4000 + n}  95.0  1.1 125000 22012 ?   Rl   Mar20 200:10 python -u train.py --local_rank {n}\n"
        for n in range(8)
    )
    other = "bob       99001 2400.0  0.1 125000 22012 ?   Rl   Mar20 200:10 python /home/bob/convert.py --threads 24\n"
    head = "USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\n"
    pressed = "some avg10=63.20 avg60=58.11 avg300=40.02 total=919281\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    files = {"gpu-02/ps_aux.txt": head + rows + other, "gpu-02/nproc": "32\n", "gpu-02/psi": pressed}
    found = told(tmp_path, files)
    assert (found.cause, found.subject["pid"]) == ("cpu.process_hotspot", 99001)
