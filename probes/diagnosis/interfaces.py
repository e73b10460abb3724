"""Which network interfaces the job uses, as far as anything tells."""

from __future__ import annotations

from probes.diagnosis.core import Evidence
from probes.diagnosis.ports import Ports

NOT_TRAINING = (
    "lo",
    "docker",
    "veth",
    "br-",
    "virbr",
    "cni",
    "flannel",
    "cali",
    "tun",
    "wg",
    "kube",
    "cilium",
    "dummy",
)


def training_interfaces(evidence: Evidence, ports: Ports) -> set[str]:
    """Interfaces that the job uses: of RDMA ports, by its settings, or as NCCL wrote."""
    names = {view.facts.netdev for view in ports.of_nodes if view.facts is not None and view.facts.netdev}
    names |= {name for view in ports.of_nodes if view.facts is not None for name in view.facts.netdevs}
    for seen in evidence.of("host.settings"):
        for key in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
            names |= {part.lstrip("=^") for part in seen.facts.env.get(key, "").split(",") if part and part[0] != "^"}
    for event, _, _ in evidence.job.said("nccl_net"):
        devices = str(event.more.get("devices", ""))
        names |= {part.partition(":")[2].partition("<")[0] for part in devices.split("[") if ":" in part}
        names |= {devices.partition(":")[0]} if devices[:1] != "[" and ":" in devices else set()
        names |= {part.partition("OOB ")[2].partition(":")[0] for part in [devices] if "OOB " in part}
    return {name for name in names if name}
