"""A node's name by itself, above what is that node's, whatever somebody puts around it."""

from __future__ import annotations

import pytest

from probes.intake.pasted import parts_of

TABLE = "index, pci.bus_id, temperature.gpu\n0, 00000000:07:00.0, 33\n1, 00000000:0F:00.0, 34\n"
FORMS = [
    ">>> {}", ">> {}", "> {}", "-- {} --", "--- {}", "-> {}", "==> {} <==", "[{}]", "({})", "@ {}", "%% {}", "* {}",
    "• {}", "{} >", "{} :", "HOST {}", "node {}:", "=={}==", "──── {} ────", "{} says:", "on {}", "output of {}:",
    "{} (suspect)", "{}: (healthy)", "1) {}", "// {}", "{}\n-----", "{}\n=====", "{}", "[{}] $ nvidia-smi",
    "{} $ nvidia-smi", "{}> nvidia-smi",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("names", [("10.40.3.11", "10.40.3.12"), ("n031", "n032"), ("kestrel-a", "kestrel-b")])
def test_the_same_below_two_names_is_each_ones(form: str, names: tuple[str, str]) -> None:
    parts = parts_of("".join(f"{form.format(name)}\n{TABLE}" for name in names))
    assert [part.nodes for part in parts] == [(names[0],), (names[1],)]
    assert all(part.text.lstrip().startswith("index, pci.bus_id") for part in parts)


def test_names_without_a_number_need_a_frame_and_the_same_columns_below() -> None:
    parts = parts_of(f"== oak ==\n{TABLE}== ash ==\n{TABLE}")
    assert [part.nodes for part in parts] == [("oak",), ("ash",)]


def test_closed_frames_need_lines_of_one_shape_below_only() -> None:
    parts = parts_of("--- oak ---\nhca_id: mlx5_2\n--- ash ---\nhca_id: mlx5_0\n")
    assert [part.nodes for part in parts] == [("oak",), ("ash",)]


@pytest.mark.parametrize("pair", [("before", "after"), ("Volatile", "Aggregate"), ("good", "bad"), ("rank0", "rank1")])
def test_looks_and_sections_of_one_machine_are_no_nodes(pair: tuple[str, str]) -> None:
    body = "        DRAM Correctable              : 0\n        DRAM Uncorrectable            : 0\n"
    parts = parts_of("".join(f"{form}{name}\n{body}" for form in ("== ", "    ") for name in pair))
    assert not {node for part in parts for node in part.nodes}


def test_a_list_of_names_is_above_nothing() -> None:
    assert parts_of("> n031\n> n032\n> n033\nthe three that are left\n") == []


def test_the_frame_of_a_table_is_no_rule_below_a_name() -> None:
    table = "+-----------------------+\n| NVIDIA-SMI 550.54.15  |\n+-----------------------+\n"
    parts = parts_of(f"n031\n{table}n032\n{table}")
    assert [part.text.strip() for part in parts] == [table.strip()] * 2


@pytest.mark.parametrize(
    ("prompt", "node"),
    [
        ("[root@oak ~]# dmesg -T", "oak"),
        ("root@oak:/var/log# cat kern.log", "oak"),
        ("me@oak:~$ nvidia-smi -L", "oak"),
        ("me@oak:~$ cat notes.txt", ""),
        ("root@login:~# nvidia-smi -L", ""),
        ("root@3f2a9c81d0e4:/workspace# nvidia-smi -L", ""),
    ],
)
def test_a_host_without_a_number_is_a_node_to_its_root_and_to_what_reads_its_gpus(prompt: str, node: str) -> None:
    parts = parts_of(f"{prompt}\nGPU 0: NVIDIA H100 80GB HBM3\n{prompt}\nGPU 0: NVIDIA H100 80GB HBM3\n")
    assert {name for part in parts for name in part.nodes} == ({node} if node else set())


def test_rows_that_uniq_counted_are_as_many_as_it_counted() -> None:
    command = "nvidia-smi --query-gpu=ecc.mode.current --format=csv,noheader | sort | uniq -c"
    (part,) = parts_of(f"[root@n031 ~]# {command}\n      3 Enabled\n      1 Disabled\n")
    assert part.text == "ecc.mode.current\nEnabled\nEnabled\nEnabled\nDisabled\n\n"


def test_a_row_of_an_alert_is_no_heading() -> None:
    assert parts_of("Problem name: a disk is full\nHost: n031\nSeverity: High\n") == []
