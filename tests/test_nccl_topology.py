"""nccl.topology: the files that ranks' environments name, read as the ranks see them, and what they lead to."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from probes.catalog.gpu.facts import Gpu, GpuState
from probes.catalog.nccl.xml import graphs, system
from probes.catalog.nccl_topology import PROBE, NcclFile, NcclFiles, findings, parse
from probes.diagnosis import Seen, diagnose
from tests.support.collectors import capture_here, old_and_new_pythons
from tests.support.hardware import facts_of
from tests.support.namespaces import unshare_mounts
from tests.support.ranks import Processes, new_job, processes, rank_env

TOOLS = Path(__file__).parent / "fixtures" / "tools"
FOUND, GIVEN, RINGS = (TOOLS / f"nccl_{name}.xml" for name in ("system_ncv4", "system_ndv5", "graphs_ncv4"))
READY = "say('ready', 1); sleep()"


@pytest.fixture
def job() -> Iterator[Processes]:
    with processes() as group:
        yield group


def files_of(place: Path, python: str = sys.executable) -> dict[str, NcclFile]:
    """What is told of the files below `place`; other jobs may run on this machine. By their names."""
    capture = capture_here(PROBE, python)
    assert capture.outcome == "ok", capture.why
    files = parse(capture.text).files
    return {Path(one.path).name: one for one in files if str(place) in one.path or one.path.startswith("rel")}


def test_what_nccl_found_is_told_as_its_file_says() -> None:
    machine = system(FOUND.read_text())
    assert (machine.gpus, machine.links, machine.numa_nodes, machine.seen) == (4, 48, 4, True)
    assert (machine.adapters, machine.direct) == (("eth0",), ())
    given = system(GIVEN.read_text())
    assert (given.gpus, given.seen, given.numa_nodes) == (0, False, 2)
    ring, tree, _ = graphs(RINGS.read_text()).graphs
    assert (ring.pattern, ring.channels, ring.intra, ring.inter, ring.gbytes) == ("ring", 2, "SYS", "PIX", 12.0)
    assert (tree.pattern, tree.channels) == ("tree", 4)
    assert facts_of(FOUND) == machine, "the files door has the same reader"


@pytest.mark.parametrize("python", old_and_new_pythons())
def test_files_that_ranks_name_are_read_once_and_with_all_their_ranks(
    tmp_path: Path, job: Processes, python: str
) -> None:
    for file in (FOUND, GIVEN, RINGS):
        (tmp_path / file.name).write_text(file.read_text())
    os.utime(tmp_path / GIVEN.name, (time.time() - 60, time.time() - 60))  # the kernel tells its start to a second
    os.mkfifo(tmp_path / "pipe.xml")
    env = {"NCCL_TOPO_FILE": str(tmp_path / GIVEN.name), "NCCL_GRAPH_FILE": str(tmp_path / "gone.xml")}
    for rank in range(2):
        job.start(READY, rank_env(rank, 2, new_job(), **env))
    dumps = {"NCCL_GRAPH_DUMP_FILE": "rel/../" + RINGS.name, "NCCL_TOPO_DUMP_FILE": str(tmp_path / "pipe.xml")}
    (tmp_path / "rel").mkdir()
    job.start(f"import os; os.chdir({str(tmp_path)!r}); {READY}", rank_env(2, 3, new_job(), **dumps))
    began = time.monotonic()
    told = files_of(tmp_path, python)
    assert time.monotonic() - began < 5
    assert set(told) == {GIVEN.name, "gone.xml", RINGS.name, "pipe.xml"}
    assert (told[GIVEN.name].ranks, told[GIVEN.name].outcome, told[GIVEN.name].old) == ((0, 1), "ok", True)
    assert told[GIVEN.name].system is not None and told[GIVEN.name].system.numa_nodes == 2
    assert (told["gone.xml"].outcome, told["gone.xml"].why) == ("missing", "No such file or directory")
    assert [one.channels for one in told[RINGS.name].graphs] == [2, 4, 4] and not told[RINGS.name].old
    assert told["pipe.xml"].outcome == "failed" and "no file" in told["pipe.xml"].why
    codes = [(one.code, one.subject["file"]) for one in findings(NcclFiles(tuple(told.values())))]
    assert codes == [("nccl.file_missing", str(tmp_path / "gone.xml"))], "a dump that cannot be read is no fault"


@pytest.mark.needs_root
def test_a_file_of_a_container_is_read_in_the_container(tmp_path: Path, job: Processes) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    env = rank_env(0, 1, new_job(), NCCL_TOPO_FILE=str(inside / "topo.xml"))
    mounts = f'mount -t tmpfs tmpfs {inside} && cp {FOUND} {inside}/topo.xml && exec "$@"'
    job.start(READY, env, argv=("unshare", *unshare_mounts(), "sh", "-c", mounts, "sh"))
    assert not (inside / "topo.xml").exists()
    told = files_of(tmp_path)["topo.xml"]
    assert told.system is not None and told.system.gpus == 4


def told(node: str, *files: NcclFile) -> Seen:
    facts = NcclFiles(files)
    return Seen(f"{node}/nccl.topology", node, "nccl.topology", "ok", "", facts, tuple(findings(facts)))


def gpus(node: str) -> Seen:
    rows = tuple(Gpu(f"0000:{at:02x}:00.0", at, name="NVIDIA H100 80GB HBM3") for at in range(4))
    return Seen(f"{node}/gpu.state", node, "gpu.state", "ok", "", GpuState("570.1", rows), ())


TOPO = NcclFile("NCCL_TOPO_FILE", "/opt/topo.xml", (0,), "ok", "", True, (), system(GIVEN.read_text()))
LACKS = dataclasses.replace(TOPO, outcome="missing", why="No such file or directory", system=None)


def test_a_topology_file_that_is_missing_on_one_node_is_what_leads() -> None:
    found = diagnose([told("n1", TOPO), told("n2", TOPO), told("n3", LACKS)]).verdict.hypothesis
    assert (found.cause, found.subject) == ("nccl.topology_degraded", {"node": "n3"})
    well = diagnose([told("n1", TOPO), told("n2", TOPO)]).verdict.hypothesis
    assert well.cause in ("unknown", "none")


def test_a_dump_without_nvlink_speaks_against_the_given_file_only_when_this_job_wrote_it() -> None:
    machine = dataclasses.replace(system(FOUND.read_text()), links=0)
    dump = NcclFile("NCCL_TOPO_DUMP_FILE", "/tmp/found.xml", (0,), "ok", "", False, (), machine)
    share: Callable[[NcclFile], float] = lambda one: sum(  # noqa: E731
        ranked.probability
        for ranked in diagnose([told("n1", TOPO, one), gpus("n1")]).ranked
        if ranked.hypothesis.cause == "nccl.topology_degraded"
    )
    assert share(dump) > 0.5
    assert share(dataclasses.replace(dump, old=True)) == 0
    assert share(dataclasses.replace(dump, system=dataclasses.replace(machine, links=48))) == 0
