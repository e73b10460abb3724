"""The suite `capture` on nodes that are sick in ways of their own: what is sick costs its own answer, no other's."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from probes import catalog, suites
from probes.transport import Plan
from tests.support import dead_mount
from tests.support.asking import ask
from tests.support.collectors import old_and_new_pythons
from tests.support.control_groups import MakeGroup
from tests.support.ranks import rank_env
from tests.support.sshd_nodes import Lab
from tests.support.wait import until

pytestmark = pytest.mark.needs_root
CAPTURE = suites.SUITES["capture"]


def rank_on(place: Path, lab: Lab) -> str:
    """Shell lines that start a rank whose working folder and log are on the mount."""
    program = lab.folder / "train.py"
    ready = f"open({str(lab.folder / 'ready')!r}, 'w')"
    program.write_text(f"import time\nprint('step 1', flush=True)\n{ready}\ntime.sleep(600)\n")
    env = rank_env(0, 2, {"MASTER_ADDR": "gpu-1", "MASTER_PORT": "29500"}, NCCL_DEBUG_FILE=f"{place}/nccl.%h.%p")
    env |= {"TORCH_FR_DUMP_TEMP_FILE": f"{place}/fr_", "NCCL_TOPO_FILE": f"{place}/topo.xml"}
    told = " ".join(f"{name}={value}" for name, value in env.items())
    start = f"env {told} {dead_mount.PYTHON} -I -S {program} >{place}/train.log 2>&1 &"
    return f"cd {place}\n{start}\ncd /"


def test_a_rank_on_a_dead_mount_costs_what_lies_there_and_nothing_else(lab: Lab) -> None:
    """Its working folder, its log, NCCL's log and its dumps are on the mount, whose server then stops answering."""
    if not Path("/dev/fuse").exists():
        pytest.skip("cannot run here: needs /dev/fuse")
    place, flag = lab.folder / "export", lab.folder / "dead"
    mount = dead_mount.shell(place, lab.folder / "dead_mount.py", flag)
    lab.start("nfs", mounts=f"{mount}\n{rank_on(place, lab)}")
    until(lambda: (lab.folder / "ready").exists(), 10, "the rank to start")
    flag.touch()
    plan = Plan((*CAPTURE.members(), catalog.load()["nccl.topology"]), deadline_s=CAPTURE.deadline_s)
    captures, ends = ask(lab, ["nfs"], plan, node_s=28, run_s=40)
    assert (ends["nfs"].reason, ends["nfs"].took_s < CAPTURE.deadline_s) == ("", True)
    told = {name: catalog.read(captures["nfs", name]) for _, name in captures}
    assert {one.outcome for one in told.values()} <= {"ok", "absent"}, {
        n: (r.outcome, r.capture.why) for n, r in told.items()
    }
    says = [finding.says for finding in told["rank.log"].findings]
    for file in ("train.log", "nccl.nfs."):
        assert any(f"{place}/{file}" in one and "could not be read" in one and "state D" in one for one in says), says
    dumps = [finding.says for finding in told["rank.flight_recorder"].findings]
    assert any(f"{place}/fr_" in one and "did not answer" in one for one in dumps), dumps
    (file,) = told["nccl.topology"].facts.files
    assert (file.path, file.outcome) == (f"{place}/topo.xml", "hung")
    assert [rank.rank for rank in told["rank.map"].facts.ranks] == [0], "who runs there does not depend on the mount"


# Writes a file of 192 MiB and touches its pages in no order: in a group of 96 MiB each has to be brought back.
THRASHES = """
import mmap, random, sys
with open(sys.argv[1], "w+b") as file:
    for _ in range(192):
        file.write(bytes(1 << 20))
    file.flush()
    pages = mmap.mmap(file.fileno(), 0)
    while True:
        pages[random.randrange(len(pages))]
"""
SWAPS = "some avg10=83.10 avg60=61.00 avg300=20.00 total=9\nfull avg10=64.25 avg60=50.00 avg300=18.00 total=8\n"


def test_a_node_that_swaps_tells_all_in_time_and_names_its_memory(lab: Lab, group: MakeGroup) -> None:
    """The node has less memory than it uses, so the kernel takes pages away and brings them back all the time. A
    machine of tests has no swap: pages of a file stand in, and the kernel's words for it are of one that has."""
    limit = str(96 << 20)
    place = group("memory", {"memory.high": limit, "memory.limit_in_bytes": limit})
    (lab.folder / "thrashes.py").write_text(THRASHES)
    (lab.folder / "pressure").write_text(SWAPS)
    hog = f"{dead_mount.PYTHON} -I -S {lab.folder}/thrashes.py {lab.folder}/pages &"
    swaps = f"mount --bind {lab.folder}/pressure /proc/pressure/memory"
    lab.start("swaps", mounts=f"echo 0 > {place}/cgroup.procs\n{hog}\n{swaps}")
    until(
        lambda: (lab.folder / "pages").exists() and (lab.folder / "pages").stat().st_size >= 192 << 20, 30, "the file"
    )
    captures, ends = ask(lab, ["swaps"], CAPTURE.plan(), node_s=28, run_s=40)
    assert ends["swaps"].reason == ""
    told = {name: catalog.read(captures["swaps", name]) for name in CAPTURE.probes}
    assert {one.outcome for one in told.values()} <= {"ok", "absent"}
    found = {finding.code: finding.says for finding in told["host.load"].findings}
    assert "64.25 %" in found["host.memory_pressure"] and "memory" in found["host.memory_pressure"]
    counts = [place / name for name in ("memory.failcnt", "memory.events") if (place / name).exists()]
    assert any(int(word) > 100 for word in counts[0].read_text().split() if word.isdecimal()), "it did want for memory"
    lab.stop(lab.nodes["swaps"])


def old_python() -> Path:
    """A Python before 3.8, which has no memfd_create(2) of its own."""
    found = [path for path in old_and_new_pythons() if path != sys.executable]
    if not found:
        pytest.skip("cannot run here: needs a Python 3.6 or 3.7")
    return Path(found[0]).resolve()


def test_full_disks_cost_nothing_where_python_is_old_either(lab: Lab) -> None:
    """Every place for temporary files is a full file system of 1 MB, as /dev/shm is when loaders have filled it."""
    python = old_python()
    home = lab.folder / "python"
    lib = f"lib/{python.name}"
    without = shutil.ignore_patterns("test", "tests", "site-packages", "config-*", "__pycache__")
    shutil.copytree(python.parents[1] / lib, home / lib, ignore=without)
    for file in (python, *(python.parents[1] / "lib").glob("libpython*.so*")):
        shutil.copy(file, home / "lib" / (file.name + ".run" * (file == python)))
    fill = "mount -t tmpfs -o size=1m tmpfs {0}; head -c 1048576 /dev/zero >{0}/full || true"
    mounts = [fill.format(place) for place in ("/dev/shm", "/var/tmp", "/run", "/root")]
    mounts.append("mount -o remount,size=1m /tmp; head -c 1048576 /dev/zero >/tmp/full || true; mkdir -p /run/sshd")
    tool = f'#!/bin/sh\nLD_LIBRARY_PATH={home}/lib PYTHONHOME={home} exec {home}/lib/{python.name}.run "$@"\n'
    lab.start("full", mounts="\n".join(mounts), tools={"python3": tool})
    captures, ends = ask(lab, ["full"], CAPTURE.plan(), node_s=28, run_s=40)
    assert (ends["full"].reason, ends["full"].python[:3] in ("3.6", "3.7")) == ("", True)
    told = {name: (one.outcome, one.why) for (_, name), one in captures.items()}
    assert {outcome for outcome, _ in told.values()} <= {"ok", "absent"}, told
