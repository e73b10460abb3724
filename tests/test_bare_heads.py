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
