"""ib.counters: the collector on this machine against the kernel's own table, and what counters of two nodes lead to."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from probes.catalog.ib_counters import PROBE, parse
from probes.core import ParseError
from probes.diagnosis import Seen, diagnose
from tests.support.collectors import capture_here, old_and_new_pythons

DEVICES = [name for name in os.listdir("/sys/class/net") if Path(f"/sys/class/net/{name}/device").exists()]


def received() -> dict[str, int]:
    """Bytes by interface, from proc(5) /proc/net/dev: another way to the same counter."""
    rows = (line.split(":") for line in Path("/proc/net/dev").read_text().splitlines() if ":" in line)
    return {name.strip(): int(rest.split()[0]) for name, rest in rows}


@pytest.mark.skipif(not DEVICES, reason="no network device here")
@pytest.mark.parametrize("python", old_and_new_pythons())
def test_each_device_is_looked_at_twice_a_second_apart(python: str) -> None:
    before = received()
    capture = capture_here(PROBE, python)
    after = received()
    assert (capture.outcome, capture.why) == ("ok", "")
    for name in DEVICES:
        first, second = (one for one in parse(capture.text).sets if one.name == name)
        assert first.at is not None and second.at is not None and 1.0 <= second.at - first.at < 3.0
        assert "rx_dropped" in first.counters and "rx_crc_errors" in first.counters
        told = [before[name], first.counters["rx_bytes"], second.counters["rx_bytes"], after[name]]
        assert told == sorted(told), "as much as the kernel counted before, in between and after"


def test_a_machine_without_a_device_says_so(tmp_path: Path) -> None:
    (tmp_path / "lo").mkdir()
    capture = capture_here(PROBE, instead={"/sys/class/net": str(tmp_path)})
    assert (capture.outcome, capture.why) == ("absent", "no network interface here has a device behind it")


def looks(node: str, name: str, rises: dict[str, int]) -> Seen:
    """A node whose counters rose so much within a second."""
    sets = [{key: 5 + at * by for key, by in rises.items()} for at in (0, 1)]
    rows = [{"name": name, "at": 1000.0 + at, "counters": counters} for at, counters in enumerate(sets)]
    facts = parse(f"==> {name} <==\n" + "\n".join(json.dumps(row) for row in rows) + "\n")
    return Seen(f"{node}/ib.counters", node, "ib.counters", "ok", "", facts, ())


def test_an_interface_that_is_paused_most_of_the_time_is_congested() -> None:
    still = {"rx_prio3_pause_duration": 0, "tx_prio3_pause_duration": 0}
    nodes = [looks(f"n{n}", "ens1", still) for n in range(3)]
    found = diagnose([*nodes, looks("n9", "ens1", {"rx_prio3_pause_duration": 600_000})]).verdict.hypothesis
    assert found.cause == "ib.congestion" and "60 %" in str(found.because)
    assert diagnose(nodes).verdict.hypothesis.cause != "ib.congestion"


HOSTILE = ('{"name": "e", "at": 1, "counters": 3}', '{"name": "e", "at": "x", "counters": {}}', "{")


@pytest.mark.parametrize("row", HOSTILE)
def test_what_the_collector_does_not_write_is_refused(row: str) -> None:
    with pytest.raises(ParseError):
        parse(f"==> e <==\n{row}\n")
