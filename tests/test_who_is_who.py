"""Whose a fault is, whatever people call their machines and wherever a rank's number stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from probes.intake.first_words import parts_by_first_word
from probes.intake.node_values import by_values
from probes.intake.tools.network import counters_in_text, fabric_events
from tests.support.brought import told

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.1 GiB\n"
FINE = "step 3 loss 2.1\nstep 4 loss 2.0\n"
FIRST, SECOND = "orion", "lyra"


def _launch(first: str, second: str, ranks: int = 4) -> dict[str, str]:
    files = {f"{node}/attempt_0/{rank}/stderr.log": FINE for node in (first, second) for rank in range(ranks)}
    return files | {f"{second}/attempt_0/2/stderr.log": OOM}


def test_local_ranks_of_nodes_that_are_numbered_are_ranks_of_the_job(tmp_path: Path) -> None:
    assert told(tmp_path, _launch("node0", "node1")).subject == {"rank": 6, "node": "node1"}


def test_local_ranks_of_nodes_without_an_order_are_no_ranks_but_their_nodes(tmp_path: Path) -> None:
    assert told(tmp_path, _launch(FIRST, SECOND)).subject == {"node": SECOND}


def test_a_rank_in_the_lines_counts_before_the_folder(tmp_path: Path) -> None:
    files = {path: f"[rank{9 if 'lyra' in path else 1}]: {text}" for path, text in _launch(FIRST, SECOND).items()}
    found = told(tmp_path, {path: text for path, text in files.items() if "/2/" in path})
    assert (found.cause, found.subject["rank"]) == ("gpu.out_of_memory", 9)


def test_attempts_of_one_launch_are_no_nodes(tmp_path: Path) -> None:
    files = {f"run/attempt_{attempt}/{rank}/stderr.log": FINE for attempt in (0, 1) for rank in range(3)}
    assert told(tmp_path, files | {"run/attempt_1/2/stderr.log": OOM}).subject["rank"] == 2


@pytest.mark.parametrize("mark", ["[{}]<stderr>", "[{}]<stderr>:", "[1,{}]<stderr>:"])
def test_the_rank_that_an_mpi_launcher_marks_its_lines_with(mark: str, tmp_path: Path) -> None:
    others = "".join(f"{mark.format(rank)}step 2\n" for rank in (0, 2, 3))
    assert told(tmp_path, {"job.log": others + mark.format(5) + OOM}).subject["rank"] == 5


@pytest.mark.parametrize(("bad", "good"), [("lyra.dmesg", "orion.dmesg"), ("kern_lyra.log", "kern_orion.log")])
def test_words_that_differ_in_names_of_kernel_logs_are_their_nodes(bad: str, good: str, tmp_path: Path) -> None:
    line = "[911.2] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    found = told(tmp_path, {bad: line, good: "[910.1] nvidia-nvlink: Nvlink Core is being initialized\n"})
    assert (found.cause, found.subject["node"]) == ("gpu.fell_off_bus", "lyra")


@pytest.mark.parametrize(("bad", "other"), [("dmesg_errors.txt", "dmesg_full.txt"), ("hang.dmesg", "before.dmesg")])
def test_what_people_say_of_a_file_is_no_node(bad: str, other: str, tmp_path: Path) -> None:
    line = "[911.2] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    found = told(tmp_path, {bad: line, other: "[910.1] nvidia-nvlink: Nvlink Core is being initialized\n"})
    assert "node" not in found.subject


def test_a_heading_that_says_so_makes_nodes_of_names_without_a_number() -> None:
    rows = "orion mlx5_0 DOWN\nlyra mlx5_0 ACTIVE\n"
    assert {part.nodes[0] for part in parts_by_first_word(f"node dev state\n{rows}")} == {FIRST, SECOND}
    assert {node for node, _, _ in by_values("host mtu\norion 9000\nlyra 1500\n", "t")} == {FIRST, SECOND}
    assert not parts_by_first_word(f"what dev state\n{rows}")


def test_two_numbers_below_a_title_with_two_times_are_two_looks() -> None:
    sets = counters_in_text.read("carrier_changes of rdma2 (03:00 / 03:30)\nr1-u7  2  2\nr1-u9  4  58\n").sets
    assert [one.counters["carrier_changes"] for one in sets if one.node == "r1-u9"] == [4, 58]


def test_an_interface_that_is_down_only_on_one_node_of_a_table(tmp_path: Path) -> None:
    rows = "".join(f"k{n},rdma{i},{'down' if (n, i) == (2, 1) else 'up'}\n" for n in (1, 2, 3) for i in (0, 1))
    table = f"host,netdev,operstate\n{rows}"
    found = told(tmp_path, {"links.csv": table})
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "k2", "device": "rdma1"})
    assert (
        told(tmp_path / "fine", {"links.csv": f"host,netdev,operstate\n{rows}".replace("down", "up")}).cause
        != found.cause
    )


def test_an_event_of_ufm_names_the_computer_and_the_adapter_behind_it() -> None:
    row = "2026-11-30 03:12:10 Critical Link went down: (Switch:leaf01)16 - (Computer:orion HDR)mlx5_1\n"
    assert fabric_events.fits(row, "ufm.txt")
    computer, switch = fabric_events.read(row).events[0].ends
    assert (computer.node, computer.hca, switch.switch, switch.port) == (FIRST, "mlx5_1", "leaf01", 16)
    assert fabric_events.read("2026-11-30 03:12:10 Critical Switch leaf03 is down\n").events[0].what == "gone"


def test_symbol_errors_at_an_unknown_speed_count_where_other_ports_have_none(tmp_path: Path) -> None:
    def looks(folder: str, others: int) -> dict[str, str]:
        return {
            f"{folder}{name}.txt": "".join(
                f"h{n} mlx5_0 symbol_error {(41_000 if n == 2 else others) * at}\n" for n in range(1, 5)
            )
            for at, name in enumerate(("before", "after"))
        }

    found = told(tmp_path, looks("", 0))
    assert (found.cause, found.subject["node"]) == ("ib.link_degraded", "h2")
    assert told(tmp_path / "noise", looks("noise-", 900)).share("ib.link_degraded") == 0


def test_a_node_without_peer_access_is_at_fault_where_the_others_have_it(tmp_path: Path) -> None:
    def rows(word: str) -> str:
        table = "".join(f" GPU{n}\t" + "\t".join("X" if m == n else word for m in range(3)) + "\n" for n in range(3))
        legend = "\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n"
        return f"$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\tGPU2\n{table}{legend}"

    found = told(tmp_path, {"k1/p2p.txt": rows("OK"), "k2/p2p.txt": rows("CNS")})
    assert (found.cause, found.subject["node"]) == ("gpu.p2p_blocked", "k2")
    assert told(tmp_path / "all", {"k1/p2p.txt": rows("CNS"), "k2/p2p.txt": rows("CNS")}).cause in ("unknown", "none")


def test_a_rank_among_other_keys_in_front_of_a_line(tmp_path: Path) -> None:
    rows = "".join(f"[node_rank=1 local_rank={n} global_rank={8 + n}] step 3 loss 2.1\n" for n in range(4))
    assert told(tmp_path, {"log.txt": f"{rows}[node_rank=1 local_rank=3 global_rank=11] {OOM}"}).subject["rank"] == 11


def test_words_beside_ranks_in_names_of_logs_are_nodes_where_no_rank_is_of_two(tmp_path: Path) -> None:
    files = {f"{node}.rank{rank}.log": FINE for node, ranks in ((FIRST, (0, 1)), (SECOND, (2, 3))) for rank in ranks}
    assert told(tmp_path, files | {"lyra.rank3.log": OOM}).subject == {"rank": 3, "node": SECOND}
    runs = {f"{name}.rank{rank}.log": FINE for name in (FIRST, SECOND) for rank in (0, 3)}
    assert "node" not in told(tmp_path / "runs", runs | {"lyra.rank3.log": OOM}).subject


@pytest.mark.parametrize("name", ["kern.csv", "kern.json"])
def test_kernel_lines_that_a_service_exported_are_of_the_machine_beside_them(name: str, tmp_path: Path) -> None:
    line = "NVRM: Xid (PCI:0000:9a:00): 79, pid=1, name=python, GPU has fallen off the bus."
    rows = [("i-0a1b2c3d4e5f60718", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module"), ("i-0b2c3d4e5f6071829", line)]
    keyed = [
        {"instance": node, "time": f"2026-11-30T03:1{at}:00Z", "message": said} for at, (node, said) in enumerate(rows)
    ]
    table = "instance,time,message\n" + "".join(
        f'{one["instance"]},{one["time"]},"{one["message"]}"\n' for one in keyed
    )
    found = told(tmp_path, {name: table if name.endswith("csv") else json.dumps(keyed)})
    assert (found.cause, found.subject["node"]) == ("gpu.fell_off_bus", "i-0b2c3d4e5f6071829")


def test_nodes_that_differ_in_a_capital_letter(tmp_path: Path) -> None:
    rows = "".join(f"Rig-{x}: mlx5_0 state: {'DOWN' if x == 'B' else 'ACTIVE'}\n" for x in "ABC")
    assert told(tmp_path, {"ports.txt": rows}).subject["node"] == "Rig-B"


def test_a_switch_that_came_back_is_not_lost(tmp_path: Path) -> None:
    lost = "2026-11-30 03:12:10 Critical Switch leaf03 is down\n"
    assert told(tmp_path, {"ufm.log": lost}).cause == "ib.switch_down"
    again = told(tmp_path / "again", {"ufm.log": f"{lost}2026-11-30 03:12:40 Info Switch leaf03 is up\n"})
    assert again.cause in ("unknown", "none")


def test_a_link_of_googles_adapter_goes_down_and_up(tmp_path: Path) -> None:
    rows = "".join(
        f"Nov 30 03:1{m}:10 a3-x-9 kernel: gve 0000:06:00.0 eth3: Device link is {'up' if m % 2 else 'down'}.\n"
        for m in range(8)
    )
    assert told(tmp_path, {"kern.log": rows}).cause == "ib.link_flapping"


def test_a_port_that_nccl_cannot_connect_to_as_it_is_remembered(tmp_path: Path) -> None:
    rows = "".join(
        f"n{n}.lab.org:51:90 [0] NCCL WARN Net : Connection to n2.lab.org<41233> failed : No route to host\n"
        for n in (1, 3, 4)
    )
    found = told(tmp_path, {"job.log": rows})
    assert (found.cause, found.subject["node"]) == ("net.bootstrap_blocked", "n2.lab.org")


def test_rates_of_ports_in_json_whatever_their_key_says_of_units(tmp_path: Path) -> None:
    ports = [
        {"hostname": f"hgx_b0{n}", "hca": f"mlx5_{i}", "state": "ACTIVE", "rate_gbps": 100 if (n, i) == (4, 1) else 400}
        for n in (3, 4, 5)
        for i in (0, 1, 2)
    ]
    found = told(tmp_path, {"rates.json": json.dumps({"ports": ports})})
    assert (found.cause, found.subject["node"], found.subject["hca"]) == ("ib.link_degraded", "hgx_b04", "mlx5_1")


def test_folders_of_two_runs_are_no_nodes(tmp_path: Path) -> None:
    found = told(tmp_path, _launch("llama-7b-0312", "llama-7b-0315"))
    assert (found.cause, "node" in found.subject) == ("gpu.out_of_memory", False)
