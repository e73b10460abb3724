"""Nodes with ranks below real sshds: of three alike, one has another driver on disk, a rank at its limits, one with
another setting, a container without RDMA devices, and a process that NCCL has lost. Each probe tells its fault there
and nothing of the healthy twins.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from probes import catalog
from probes.core import Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.transport import Plan
from tests.support.asking import ask
from tests.support.control_groups import MakeGroup
from tests.support.dead_mount import PYTHON
from tests.support.namespaces import unshare_mounts
from tests.support.ranks import rank_env
from tests.support.sshd_nodes import OWN_DEV, Lab

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(shutil.which("ip") is None, reason="cannot run here: needs ip (iproute2)"),
]
FIXTURES = Path(__file__).parent / "fixtures/nccl.ras"
NODES = ("well-1", "well-2", "sick")
DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.90.07  Release Build\n"
# A rank that maps torch and NCCL, and in whose network NCCL's RAS answers, as src/ras/client_support.cc does; the sick
# one takes its open files and its tasks up to their limits.
RANK = """
import json, mmap, os, socket, sys, threading, time
told = json.loads(sys.argv[1])
files = [open(path, "rb") for path in told["maps"]]
held = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]
if told["group"]:
    open(told["group"] + "/cgroup.procs", "w").write("0")
    for _ in range(19):
        threading.Thread(target=lambda: time.sleep(600), daemon=True).start()
    while len(os.listdir("/proc/self/fd")) < 63:
        os.open("/dev/null", os.O_RDONLY)
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
if told["answers"]:
    listener.bind(("127.0.0.1", 28028))
    listener.listen(4)
open("/tmp/ready" + os.environ["RANK"], "w").close()
while told["answers"]:
    link, _ = listener.accept()
    with link, link.makefile("rwb") as lines:
        for line in lines:
            if line.strip() == b"VERBOSE STATUS":
                told["answers"].append(told["answers"].pop(0))
                lines.write(told["answers"][-1].encode())
                break
            lines.write(b"OK\\n")
            lines.flush()
time.sleep(600)
"""
# Probe -> what it must tell of the sick node, and of no other.
FAULTS = {
    "host.versions": {"host.driver_mismatch"},
    "host.settings": {"host.limit_near", "host.no_rdma_device"},
    "nccl.ras": {"nccl.dead"},
    "rank.env": {"rank.env_differs"},
}


def polls(case: str) -> list[str]:
    """The two answers of NCCL in a recorded case."""
    text = (FIXTURES / f"{case}.out").read_text()
    return [part.partition(" <==\n")[2] for part in text.split("==> poll ")[1:]]


def installed(site: Path, torch: str) -> list[str]:
    """Files of pip's torch and NCCL as far as a rank maps them or a version is read from them."""
    files = [site / "torch/lib/libtorch_cpu.so", site / "nvidia/nccl/lib/libnccl.so.2"]
    for path in files:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"\x7fELF" + bytes(4092))
    (site / "torch/version.py").write_text(f"__version__ = '{torch}'\ncuda: Optional[str] = '12.4'\n")
    (site / "nvidia_nccl_cu12-2.21.5.dist-info").mkdir()
    return [str(path) for path in files]


def start(lab: Lab, name: str, group: Path | None = None) -> None:
    """A node with a job of two ranks of its own, in a network and mounts of their own as in a container: on the sick
    node one that was started without RDMA devices."""
    place = lab.folder / f"job-{name}"
    maps = installed(place / "site-packages", "2.4.0+cu121" if group else "2.5.1+cu124")
    (place / "nvidia").write_text(DRIVER)
    (place / "rank.py").write_text(RANK)
    lines = [
        f"{OWN_DEV}mkdir /dev/infiniband; touch /dev/infiniband/uverbs0 /dev/infiniband/uverbs1",
        "mount -t tmpfs tmpfs /proc/driver",
        f"mkdir /proc/driver/nvidia; cp {place}/nvidia /proc/driver/nvidia/version",
    ]
    lines += [
        "cat >/tmp/job <<'END'",
        "ip link set lo up",
        *(["mount -t tmpfs tmpfs /dev/infiniband"] if group else []),
    ]
    for rank in range(2):
        told = {"maps": maps, "answers": [], "group": str(group) if group and rank else ""}
        told["answers"] = polls("json_dead" if group else "json_in_step") if not rank else []
        (place / f"rank{rank}.json").write_text(json.dumps(told))
        env = rank_env(rank, 2, {"MASTER_ADDR": name, "MASTER_PORT": "29500"}, CUDA_VISIBLE_DEVICES="0,1")
        env["NCCL_ALGO"] = "Tree" if group and rank else "Ring"
        words = " ".join(f"{key}={value}" for key, value in env.items())
        lines.append(f'ulimit -n 64; env {words} {PYTHON} -I -S {place}/rank.py "$(cat {place}/rank{rank}.json)" &')
    lines += [
        "wait",
        "END",
        f"unshare --net {' '.join(unshare_mounts())} sh /tmp/job &",
        "until [ -e /tmp/ready0 ] && [ -e /tmp/ready1 ]; do sleep 0.1; done",
    ]
    modinfo = f"#!/bin/sh\necho {'550.144.03' if group else '550.90.07'}\n"
    lab.start(name, mounts="\n".join(lines), tools={"modinfo": modinfo})


def loud(reading: Reading) -> set[str]:
    return {one.code for one in reading.findings if one.severity in ("warn", "bad")}


def test_what_is_set_up_wrong_on_one_node_is_told_of_it_alone(group: MakeGroup, lab: Lab) -> None:
    start(lab, "well-1")
    start(lab, "well-2")
    start(lab, "sick", group("pids", {"pids.max": "20"}))
    plan = Plan(tuple(catalog.load()[name] for name in FAULTS), deadline_s=16)
    captures, ends = ask(lab, list(NODES), plan, node_s=24, run_s=40)
    assert {end.reason for end in ends.values()} == {""}
    readings = {key: catalog.read(capture) for key, capture in captures.items()}
    assert {one.outcome for one in readings.values()} == {"ok"}, [
        (one.capture.why, one.parse_error) for one in readings.values()
    ]
    assert {probe: loud(readings["sick", probe]) for probe in FAULTS} == FAULTS
    near = [one.says for one in readings["sick", "host.settings"].findings if one.code == "host.limit_near"]
    lacking = [one for one in readings["sick", "host.settings"].findings if one.code == "host.no_rdma_device"]
    assert len(lacking) == 2 and "none of the node's 2 RDMA devices" in lacking[0].says
    assert {room.verbs for room in readings["well-1", "host.settings"].facts.rooms} == {2}
    assert [("open files" in says, "tasks" in says) for says in near] == [(True, False), (False, True)], near

    twins = {key: one for key, one in readings.items() if key[0] != "sick"}
    assert {key: loud(one) for key, one in twins.items() if loud(one)} == {}
    alone = diagnose([seen(reading) for reading in twins.values()], NODES[:2])
    assert alone.verdict.hypothesis.cause in ("none", "unknown"), alone.verdict
    assert alone.differences == ()
    together = diagnose([seen(reading) for reading in readings.values()], NODES)
    assert "PyTorch: 2.5.1+cu124 on well-1, well-2, 2.4.0+cu121 on sick" in [one.says for one in together.differences]
