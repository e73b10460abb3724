"""Writes the recordings of drills: `python -m tests.lab.drills [NAME ...]`. drill.toml is written by hand and stays."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

from probes import drills
from probes.transport import replay
from tests.lab.drills import fabric, gpu_off_bus, port_down, rank_stopped
from tests.lab.drills.cluster import DRILLS

MADE: dict[str, ModuleType] = {module.NAME: module for module in (port_down, rank_stopped, gpu_off_bus)}


def make(name: str, folder: Path, fault: bool = True) -> None:
    """The recording of one drill and its stages into an empty folder."""
    replay.save(folder, MADE[name].recording(fault))
    place = folder / drills.EXPECTED
    place.parent.mkdir()
    body = fabric.expected(MADE[name].nodes()).body()
    place.write_text(json.dumps(body, separators=(",", ":")).replace("],[", "],\n[") + "\n")
    for stage, looks in MADE[name].stages().items():
        for number, captures in enumerate(looks, 1):
            replay.save(folder / "stages" / stage / f"look-{number}", captures)


def main(names: list[str]) -> None:
    for name in names or list(MADE):
        place = DRILLS / name
        for old in place.iterdir():
            if old.is_dir():
                shutil.rmtree(old)
        make(name, place)
        files = [file for file in place.rglob("*") if file.is_file()]
        print(f"{name}: {len(files)} files, {sum(file.stat().st_size for file in files) / 1e6:.1f} MB")


if __name__ == "__main__":
    main(sys.argv[1:])
