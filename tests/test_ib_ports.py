"""ib.ports beyond its recorded outputs: rates of two readings, the collector on a tree of files, the widths."""

from __future__ import annotations

import dataclasses
import inspect
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probes import runner
from probes.catalog.ib_ports import PROBE, IbPorts, Port, findings, parse, rates, saturated
from probes.core import ParseError
from probes.reference import rows
from probes.transport.plan import collector_source

FIXTURES = Path(__file__).parent / "fixtures" / "ib.ports"
H100 = (FIXTURES / "h100_connectx7.out").read_text()


def _reading(mono: float, boot_id: str = "one", **counters: int | None) -> IbPorts:
    return IbPorts(boot_id, (Port("mlx5_0", 1, counters=counters, mono=mono),))


def test_a_rate_is_change_by_the_nodes_own_clock() -> None:
    change = rates(_reading(100.0, port_xmit_data=1000), _reading(102.5, port_xmit_data=6000))
    assert change == {"mlx5_0/1": {"port_xmit_data": 2000.0}}  # units of 4 octets per second: 8000 octets per second


def test_a_counter_at_its_end_gives_no_rate_of_zero() -> None:
    """gpud's H100 node has link_downed at 255, the end of 8 bits: a change of 0 there would read as healthy."""
    change = rates(_reading(1.0, link_downed=255, symbol_error=7), _reading(2.0, link_downed=255, symbol_error=7))
    assert change["mlx5_0/1"] == {"link_downed": "saturated", "symbol_error": 0.0}


def test_clearing_counters_spoils_the_whole_group_and_not_only_those_that_fell() -> None:
    """5 -> (cleared) -> 9 looks like a growth of 4 unless its neighbour tells that all were cleared."""
    change = rates(_reading(1.0, symbol_error=5, port_rcv_errors=3), _reading(2.0, symbol_error=9, port_rcv_errors=0))
    assert change["mlx5_0/1"] == {"symbol_error": "reset", "port_rcv_errors": "reset"}


def test_a_reboot_between_two_readings_gives_no_rates() -> None:
    change = rates(_reading(900.0, "one", symbol_error=5), _reading(950.0, "two", symbol_error=9))
    assert change["mlx5_0/1"] == {"symbol_error": "rebooted"}


@pytest.mark.parametrize("later", [_reading(1.0, symbol_error=9), _reading(2.0, symbol_error=None)])
def test_without_time_or_value_a_rate_is_unknown(later: IbPorts) -> None:
    assert rates(_reading(1.0, symbol_error=5), later)["mlx5_0/1"] == {"symbol_error": "unknown"}


def test_hw_counters_are_not_spoiled_by_a_reset_of_the_others() -> None:
    old, new = _reading(1.0, symbol_error=5), _reading(2.0, symbol_error=0)
    old = dataclasses.replace(old, ports=(dataclasses.replace(old.ports[0], hw_counters={"out_of_sequence": 4}),))
    new = dataclasses.replace(new, ports=(dataclasses.replace(new.ports[0], hw_counters={"out_of_sequence": 10}),))
    assert rates(old, new)["mlx5_0/1"] == {"symbol_error": "reset", "out_of_sequence": 6.0}


def test_every_recorded_port_counter_has_a_known_width_and_unit() -> None:
    table = {row["name"]: row for row in rows("ib_counters")}
    recorded = {name for port in parse(H100).ports for name in port.counters}
    assert recorded <= set(table)
    assert all(row["unit"] and row["meaning"] and row["bits"] in (4, 8, 16, 32, 64) for row in table.values())
    assert [name for name in ("port_xmit_data", "port_rcv_data") if table[name]["unit"] != "4 octets"] == []


@pytest.mark.parametrize(
    ("counter", "last"),
    [("local_link_integrity_errors", 15), ("link_downed", 255), ("symbol_error", 65535), ("port_xmit_wait", 2**32 - 1)],
)
def test_a_counter_is_saturated_at_its_last_value_only(counter: str, last: int) -> None:
    assert saturated(counter, last)
    assert not saturated(counter, last - 1)


@pytest.mark.parametrize("prefix", ["", "/", "./", "/sys/class/", "/tmp/case 7/node003/sys/class/"])
def test_recorded_trees_are_read_wherever_they_lay(prefix: str) -> None:
    text = H100.replace("==> infiniband/", f"==> {prefix}infiniband/")
    assert parse(text) == parse(H100)


def test_a_storage_adapter_is_not_measured_by_the_compute_rails() -> None:
    text = H100.replace("infiniband/mlx5_9/hca_type <==\nMT4129", "infiniband/mlx5_9/hca_type <==\nMT4123")
    head, _, tail = text.partition("infiniband/mlx5_9/ports/1/rate <==\n400 Gb/sec (4X NDR)")
    assert tail
    text = f"{head}infiniband/mlx5_9/ports/1/rate <==\n100 Gb/sec (4X EDR){tail}"
    assert [f.code for f in findings(parse(text))] == ["ib.counters_saturated", "ib.link_downed"]


def test_a_dead_rail_is_bad_and_an_empty_second_cage_is_not() -> None:
    rail = [Port(f"mlx5_{n}", 1, "InfiniBand", "ACTIVE", hca_type="MT4129") for n in range(2)]
    dead = Port("mlx5_2", 1, "InfiniBand", "DOWN", "Polling", hca_type="MT4129")
    cage = Port("mlx5_0", 2, "InfiniBand", "DOWN", "Polling", hca_type="MT4129")
    told = [(f.severity, f.subject["hca"], f.says) for f in findings(IbPorts("", (*rail, dead, cage)))]
    assert [severity for severity, _, _ in told] == ["bad", "warn"]
    assert told[0][2].endswith("it sees no signal: cable, transceiver or peer")


def _collected(root: Path, refusal: str = "EINVAL") -> dict[str, Any]:
    collect = collector_source(PROBE.collect).replace("/sys/class/infiniband", str(root))
    collect = collect.replace("errno.EINVAL", f"errno.{refusal}")
    plan = {"probes": [{"name": "ib.ports", "collect": collect, "timeout_s": 5, "max_bytes": 1 << 20}]}
    plan |= {"deadline_s": 10, "max_bytes": 1 << 22, "parallel": 1, "site": []}
    program = f"{inspect.getsource(runner)}\n\nmain(json.loads({json.dumps(plan)!r}), False)\n"
    python = shutil.which("python3.6") or sys.executable
    if subprocess.run([python, "-c", ""], capture_output=True).returncode:  # a pyenv shim without a version behind it
        old = sorted(Path.home().glob(".pyenv/versions/3.6.*/bin/python3"))
        python = str(old[0]) if old else sys.executable
    done = subprocess.run([python, "-I", "-S", "-"], input=program.encode(), capture_output=True, timeout=30)
    told = [json.loads(line.removeprefix(runner.MARK)) for line in done.stdout.decode().splitlines()]
    return next(line for line in told if line["kind"] == "capture")


def _tree(root: Path) -> Path:
    for hca in ("mlx5_0", "mlx5_1"):
        port = root / hca / "ports" / "1"
        (port / "counters").mkdir(parents=True)
        (port / "hw_counters").mkdir()
        for name, text in (("state", "4: ACTIVE\n"), ("phys_state", "5: LinkUp\n"), ("rate", "400 Gb/sec (4X NDR)\n")):
            (port / name).write_text(text)
        (port / "link_layer").write_text("InfiniBand\n")
        (port / "counters" / "link_downed").write_text("3\n")
        (port / "counters" / "symbol_error").mkdir()  # cannot be read, as some counters of some drivers
        (port / "hw_counters" / "lifespan").write_text("12\n")
        (root / hca / "node_desc").write_text("node003 HCA-1\n==> golden15/silent mlx5_0 <==\n")
        (root / hca / "device" / "net" / "ib0").mkdir(parents=True)
        (root / hca / "device" / "net" / "ib0" / "operstate").write_text("up\n")
        (root / hca / "device" / "uevent").write_text("DRIVER=mlx5_core\nPCI_SLOT_NAME=0000:19:00.0\n")
    return root


def test_addresses_and_partitions_are_told_without_the_empty_places(tmp_path: Path) -> None:
    root = _tree(tmp_path / "infiniband")
    port = root / "mlx5_0/ports/1"
    for folder in ("gids", "gid_attrs/types", "gid_attrs/ndevs", "pkeys"):
        (port / folder).mkdir(parents=True)
    empty = "0000:0000:0000:0000:0000:0000:0000:0000"
    for at in range(40):
        (port / f"gids/{at}").write_text(f"{empty}\n")
    (port / "gids/3").write_text("0000:0000:0000:0000:0000:ffff:0a00:0107\n")
    (port / "gid_attrs/types/3").write_text("RoCE v2\n")
    (port / "gid_attrs/ndevs/3").write_text("ens4f0np0\n")
    for at, value in enumerate(("0xffff", "0x8012", "0x0000")):
        (port / f"pkeys/{at}").write_text(f"{value}\n")
    told = parse(_out(_collected(root))).ports
    assert told[0].gids == ("3 RoCE v2 0000:0000:0000:0000:0000:ffff:0a00:0107",)
    assert told[0].pkeys == ("0x8012", "0xffff")
    assert told[1].gids == ()


def test_counters_that_the_adapter_refuses_one_after_the_other_are_left_alone(tmp_path: Path) -> None:
    """Each refusal is a line in the kernel log of such a node. Here a folder stands for what cannot be read."""
    root = _tree(tmp_path / "infiniband")
    for name in ("a", "b", "c", "d", "e"):
        (root / "mlx5_1/ports/1/counters" / name).mkdir()
    text = _out(_collected(root, refusal="EISDIR"))
    asked = [name for name in "abcde" if f"mlx5_1/ports/1/counters/{name} <==" in text]
    assert asked == ["a", "b", "c"]
    assert "golden15/again mlx5_0/1" in text and "golden15/again mlx5_1/1" not in text, "nor at a second look"


def test_the_collector_reads_a_node_with_an_old_python(tmp_path: Path) -> None:
    told = _collected(_tree(tmp_path / "infiniband"))
    assert told["outcome"] == "ok", told
    facts = parse(_out(told))
    port = facts.ports[0]
    assert [port.name for port in facts.ports] == ["mlx5_0/1", "mlx5_1/1"]
    assert facts.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (port.pci, port.netdevs, port.hw_lifespan_ms) == ("0000:19:00.0", {"ib0": "up"}, 12)
    assert port.counters == {"link_downed": 3, "symbol_error": None}
    assert port.mono and port.at and facts.silent == ()
    (first,) = port.samples  # a second earlier
    assert first.counters == port.counters and port.at - (first.at or 0) >= 1.0


def test_an_hca_that_hangs_costs_only_its_own_ports(tmp_path: Path) -> None:
    import os

    root = _tree(tmp_path / "infiniband")
    (root / "mlx5_1" / "ports" / "1" / "counters" / "link_downed").unlink()
    os.mkfifo(root / "mlx5_1" / "ports" / "1" / "counters" / "link_downed")  # opening it waits for ever
    facts = parse(_out(_collected(root)))
    assert [port.name for port in facts.ports] == ["mlx5_0/1"]
    assert [(silent.hca, silent.outcome) for silent in facts.silent] == [("mlx5_1", "timeout")]
    assert [finding.code for finding in findings(facts)][0] == "ib.no_answer"


def test_a_node_without_adapter_says_absent(tmp_path: Path) -> None:
    told = _collected(tmp_path / "infiniband")
    assert told["outcome"] == "absent"
    assert "no InfiniBand or RoCE adapter" in told["why"]


def _out(told: dict[str, Any]) -> str:
    import base64
    import zlib

    return zlib.decompress(base64.b64decode(told["z"])).decode() if "z" in told else str(told["out"])


def test_a_stuck_count_of_link_losses_is_told_as_a_lower_bound() -> None:
    says = {finding.code: finding.says for finding in findings(parse(H100))}
    assert says["ib.link_downed"] == "mlx5_1/1 went down at least 255 times since its counters were cleared"


def test_ethernet_of_one_lane_is_whole() -> None:
    port = Port("mlx5_0", 1, "Ethernet", "ACTIVE", "LinkUp", rate_gbps=25.0, width=1, speed="EDR")
    assert list(findings(IbPorts("", (port,)))) == []
    ports = (dataclasses.replace(port, link_layer="InfiniBand"),)
    assert [finding.code for finding in findings(IbPorts("", ports))] == ["ib.width_low"]


def test_a_file_that_claims_a_thousand_ports_is_refused() -> None:
    text = "".join(f"==> infiniband/mlx5_{n}/ports/1/state <==\n4: ACTIVE\n" for n in range(1000))
    with pytest.raises(ParseError, match="more than 512"):
        parse(text)
