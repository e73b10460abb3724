"""The network of nodes, faked below real sshds: what interfaces count, what adapters have in use, ranks' connections.

One node is sick and two are its healthy twins. Counters of a driver come by an ioctl that only a driver answers, so
here a file in /sys stands in for them. Connections are real ones, of processes that call themselves ranks.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from probes import catalog
from probes.core import Reading
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.judging import Diagnosis
from probes.transport import Plan
from tests.support.asking import ask
from tests.support.dead_mount import PYTHON
from tests.support.sshd_nodes import Lab, Node
from tests.support.wait import until

pytestmark = pytest.mark.needs_root
NODES = ("sick", "well-1", "well-2")
PROBES = ("ib.counters", "ib.resources", "rank.sockets")
COUNTER = "rx_discards_phy"
# The interface drops: its driver counts some hundreds more a second.
RISES = "n=100; while sleep 0.05; do n=$((n + 40)); echo $n > {0}.new; mv {0}.new {0}; done &\n"
RDMA = (
    '#!/bin/sh\n[ "$*" = "resource show" ] || exit 1\necho "0: mlx5_0: pd 9 cq 310 qp {used} cm_id 0 mr 4410 ctx 8"\n'
)
DEVINFO = """#!/bin/sh
printf 'hca_id:\\t%s\\n\\tmax_qp:\\t\\t\\t\\t131072\\n\\tphys_port_cnt:\\t\\t\\t1\\n\\t\\tport:\\t1\\n' "$3"
printf '\\t\\t\\tstate:\\t\\t\\tPORT_ACTIVE (4)\\n\\t\\t\\tactive_mtu:\\t\\t{mtu}\\n'
printf '\\t\\t\\tlink_layer:\\t\\tInfiniBand\\n'
"""
CLIENT = """
import socket, sys, time
one = socket.socket()
one.connect((sys.argv[1], int(sys.argv[2])))
time.sleep(600)
"""


def start(lab: Lab, name: str, rank: int, server: tuple[str, int]) -> None:
    sick, place = name == "sick", lab.folder / f"network-{name}"
    net, hca = place / "net/ens1f0", place / "infiniband/mlx5_0"
    for folder in (net / "device", net / "statistics", hca):
        folder.mkdir(parents=True)
    (net / "statistics" / COUNTER).write_text("100\n")
    (place / "rank.py").write_text(CLIENT)
    environment = f"RANK={rank} WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1"
    mounts = f"mount --bind {place} /sys/class\n" + (RISES.format(net / "statistics" / COUNTER) if sick else "")
    mounts += f"{environment} {PYTHON} -I -S {place}/rank.py {server[0]} {server[1]} &\n"
    tools = {
        "rdma": RDMA.format(used=131_050 if sick else 612),
        "ibv_devinfo": DEVINFO.format(mtu="2048 (4)" if sick else "4096 (5)"),
    }
    lab.start(name, mounts=mounts, tools=tools)


@pytest.fixture
def readings(lab: Lab) -> Iterator[dict[tuple[str, str], Reading]]:
    with socket.create_server(("127.0.0.1", 0)) as answers, socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # This takes the one place in its queue, which nobody empties: what comes next is dropped, as by a filter.
        with socket.create_connection(full.getsockname()):
            for rank, name in enumerate(NODES):
                start(lab, name, rank, (full if name == "sick" else answers).getsockname())
            found = {}

            def silent() -> bool:
                """Seven seconds after its first try the third was in vain."""
                plan = Plan(tuple(catalog.load()[name] for name in PROBES), deadline_s=14.0)
                captures, ends = ask(lab, list(NODES), plan)
                assert {end.reason for end in ends.values()} == {""}
                found.update({key: catalog.read(capture) for key, capture in captures.items()})
                return bool(found["sick", "rank.sockets"].findings)

            until(silent, 20, "the connection to have tried three times")
            yield found
    for node in lab.nodes.values():

        def only_ours(node: Node = node) -> bool:
            return all(one.split()[1].startswith(("python", "sh", "sleep", "mv")) for one in node.processes())

        until(only_ours, 10, f"{node.name} to be rid of what was asked")
        assert node.left_behind() == {}, node.name


def judged(readings: dict[tuple[str, str], Reading], *probes: str, nodes: tuple[str, ...] = NODES) -> Diagnosis:
    return diagnose([seen(readings[node, probe]) for node in nodes for probe in probes], nodes)


def test_the_network_of_the_sick_node_is_told_and_its_twins_are_quiet(
    readings: dict[tuple[str, str], Reading],
) -> None:
    assert {one.outcome for one in readings.values()} == {"ok"}, [one.capture.why for one in readings.values()]
    loud = {key: [finding.code for finding in one.findings] for key, one in readings.items() if one.findings}
    assert loud == {
        ("sick", "ib.resources"): ["ib.queue_pairs_full"],
        ("sick", "rank.sockets"): ["rank.syn_unanswered"],
    }
    lost = judged(readings, "ib.counters").verdict.hypothesis
    assert (lost.cause, lost.subject["node"]) == ("ib.lossless_misconfigured", "sick")
    assert COUNTER in lost.because[0].says and "1 s" in lost.because[0].says
    small = judged(readings, "ib.resources")
    assert (small.verdict.hypothesis.cause, small.verdict.hypothesis.subject["node"]) == ("net.mtu_mismatch", "sick")
    assert [one.what for one in small.differences] == ["MTU of InfiniBand ports"]
    sockets = {node: readings[node, "rank.sockets"].facts.ranks[0].sockets for node in NODES}
    assert [[one.state for one in sockets[node]] for node in NODES] == [["SYN-SENT"], ["ESTAB"], ["ESTAB"]]
    twins = judged(readings, *PROBES, nodes=("well-1", "well-2"))
    assert twins.verdict.hypothesis.cause == "unknown" and not twins.differences
