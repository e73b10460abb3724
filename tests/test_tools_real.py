"""Faults on a simulated fabric, told by what the real tools print: iblinkinfo, ibqueryerrors, ibnetdiscover."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brought import told
from tests.support.ibsim import TOOLS, Fabric, net

pytestmark = pytest.mark.skipif(
    shutil.which("ibsim", path=TOOLS) is None, reason="cannot run here: needs ibsim, opensm and infiniband-diags"
)


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    (tmp_path / "sim").mkdir()
    with Fabric(tmp_path / "sim", net(2, 4), "gpu-001 mlx5_0") as running:
        yield running


def say(fabric: Fabric, *command: str) -> str:
    """What a tool prints as that adapter. ibqueryerrors ends with 1 where it found errors."""
    place = fabric.folder / "tools"
    place.mkdir(exist_ok=True)
    env = fabric.env("gpu-001 mlx5_0")
    done = subprocess.run(command, cwd=place, env=env, capture_output=True, text=True, timeout=30)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_errors_that_rise_at_a_leaf_are_told_with_the_adapter_behind_it(fabric: Fabric, tmp_path: Path) -> None:
    fabric.say('PerformanceSet "leaf-01"[3] PortCounters.PortRcvErrors=5')
    files = {"ibqueryerrors.before": say(fabric, "ibqueryerrors", "-r")}
    fabric.say('PerformanceSet "leaf-01"[3] PortCounters.PortRcvErrors=905')
    files["ibqueryerrors.after"] = say(fabric, "ibqueryerrors", "-r")
    found = told(tmp_path / "files", files)
    assert (found.cause, found.subject) == ("ib.link_degraded", {"node": "gpu-003", "hca": "mlx5_1", "port": 1})
    assert found.probability >= 0.9
    assert "leaf-01" in found.says


def test_a_counter_at_its_end_in_both_looks_accuses_nobody(fabric: Fabric, tmp_path: Path) -> None:
    fabric.say('PerformanceSet "leaf-01"[3] PortCounters.SymbolErrorCounter=65535')
    files = {f"ibqueryerrors.{look}": say(fabric, "ibqueryerrors", "-r") for look in ("before", "after")}
    assert told(tmp_path / "files", files).cause == "unknown"


def test_an_adapter_that_was_pulled_between_two_sweeps_is_named(fabric: Fabric, tmp_path: Path) -> None:
    files = {"ibnetdiscover.before": say(fabric, "ibnetdiscover")}
    fabric.say('Unlink "gpu-002 mlx5_1"[1]')
    files["ibnetdiscover.after"] = say(fabric, "ibnetdiscover")
    found = told(tmp_path / "files", files)
    assert (found.cause, found.subject) == ("ib.link_down", {"node": "gpu-002", "hca": "mlx5_1"})


def test_two_sweeps_of_a_sound_fabric_accuse_nobody(fabric: Fabric, tmp_path: Path) -> None:
    files = {f"iblinkinfo.{look}": say(fabric, "iblinkinfo") for look in ("1", "2")}
    files |= {f"ibnetdiscover.{look}": say(fabric, "ibnetdiscover") for look in ("1", "2")}
    found = told(tmp_path / "files", files)
    assert found.cause == "unknown"
    assert found.unread == ()
