"""How many queue pairs and other resources does each RDMA adapter have in use and may it have, with which MTU?

Source   `rdma resource show` of iproute2, rdma-resource(8), over netlink: no right is needed for the sums. Limits and
         MTU: `ibv_devinfo -v` of each adapter, ibv_devinfo(1), which opens /dev/infiniband/uverbs*; limits also by
         newer `rdma` itself. Each in a process of its own: the driver of a dead adapter may hold them. Never run on an
         adapter
Units    counts; bytes
Shape    Settings: `resources` and, of InfiniBand ports that are up, `mtus`; what no tool tells is not in it
Errors   Absent without an adapter or without both tools; RuntimeError where neither tells anything. ParseError when
         nothing that they print is there
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from probes.catalog.network import ib_fabric_collect
from probes.catalog.network.ibv_devinfo import ports
from probes.catalog.network.net_facts import Settings
from probes.catalog.network.rdma_resources import FULL, at_most, in_use
from probes.core import Finding, ParseError, Probe, clean, sections
from probes.runner import Absent, isolate, sh

__all__ = ["PROBE", "Settings", "findings", "parse"]


def _collect() -> Mapping[str, str]:
    import os

    def asking(argv: list[str]) -> Callable[[], str]:
        def ask() -> str:
            status, out, err = sh(argv)
            if status or not out.strip():
                raise RuntimeError(f"status {status}: {err.strip()[-200:] or 'no word'}")
            return out

        return ask

    try:
        hcas = sorted(os.listdir("/sys/class/infiniband"))[:64]
    except OSError:
        hcas = []
    if not hcas:
        raise Absent("no InfiniBand or RoCE adapter: /sys/class/infiniband is empty or not there")
    rdma, devinfo = ib_fabric_collect.place_of("rdma"), ib_fabric_collect.place_of("ibv_devinfo")
    if not rdma and not devinfo:
        raise Absent("neither rdma (package iproute2) nor ibv_devinfo (package ibverbs-utils) is installed here")
    calls = [("rdma resource show", asking([rdma, "resource", "show"]))] if rdma else []
    if devinfo:
        calls += [(f"ibv_devinfo -v -d {hca}", asking([devinfo, "-v", "-d", hca])) for hca in hcas]
    found, whys = {}, []
    for answer in isolate(calls, 3.0):
        if answer["outcome"] == "ok":
            found[answer["name"]] = answer["text"].replace("\n==> ", "\n= => ")
        else:
            whys.append(f"{answer['name']}: {answer['outcome']} {answer['why']}")
    if not found:
        raise RuntimeError("; ".join(whys)[:600])
    if whys:
        found["golden15/silent"] = "\n".join(whys)[:2000]
    return found


def parse(text: str) -> Settings:
    """The outputs below their commands."""
    resources: dict[str, int] = {}
    mtus: dict[str, int] = {}
    parts = {title: body for title, body in sections(text).items() if not title.startswith("golden15/")}
    for title, body in parts.items():
        told = in_use(body) if title.startswith("rdma ") else at_most(body)
        resources |= {key: value for key, value in told.items() if not key.startswith(" ")}
        for port in ports(body) if title.startswith("ibv_devinfo ") else ():
            if port.mtu and port.link_layer == "InfiniBand" and port.state == "ACTIVE":  # Ethernet: see net.links
                mtus[port.name] = port.mtu
    if not resources:
        first = next(iter(parts.values()), "").strip()
        raise ParseError(f"expected a line such as '0: mlx5_0: pd 4 cq 9 qp 12', found {clean(first)[:80]!r}")
    return Settings(resources=resources, mtus=mtus)


def findings(settings: Settings) -> Iterator[Finding]:
    """An adapter whose queue pairs are nearly all in use: the next that is asked for is refused."""
    for key, used in settings.resources.items():
        hca, _, what = key.partition(" ")
        most = settings.resources.get(f"{hca} max_qp")
        if what == "qp" and most and used >= FULL * most:
            says = f"{hca} has {used:,} of {most:,} queue pairs in use: the next ones are refused"
            yield Finding("ib.queue_pairs_full", "warn", says, {"hca": hca})


PROBE = Probe(
    "ib.resources",
    "How many queue pairs does each RDMA adapter have in use and may it have, and which MTU have its ports?",
    parse,
    findings,
    collect=_collect,
    by_hand="rdma resource show; ibv_devinfo -v | grep -E 'hca_id|max_(qp|cq|mr|pd):|port:|active_mtu'",
    timeout_s=4.0,
    max_bytes=2_097_152,
    touches="stack",
    needs="rdma of iproute2; for limits and MTU ibv_devinfo and read and write on /dev/infiniband/uverbs*",
    cost="not measured: there was no such hardware",
    brings=(ib_fabric_collect,),
)
