"""How full the file systems of each node are, as node_exporter tells it.

Source   node_exporter's filesystem collector: avail is what others than root may use, files are inodes
Units    bytes
Shape    facts of host.storage, of each node
Errors   ParseError when no series is in it
"""

from __future__ import annotations

from probes.catalog.host.storage_facts import NETWORK, Disk, SharedMemory, Storage
from probes.intake.samples import names_one_of, samples
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse
from probes.intake.tools.host.disks import PSEUDO

BEGIN = "node_filesystem_"
NAMES = tuple(f"{BEGIN}{what}" for what in ("avail_bytes", "size_bytes", "files", "files_free", "readonly"))


def _fits(head: str, name: str) -> bool:
    return names_one_of(head, NAMES)


def by_node(text: str) -> dict[str, Storage]:
    told: dict[tuple[str, str], dict[str, float]] = {}
    kinds: dict[tuple[str, str], tuple[str, str]] = {}
    for one in samples(text, NAMES):
        key = (one.node, one.labels.get("mountpoint", "")[:300])
        told.setdefault(key, {})[one.name.removeprefix(BEGIN)] = one.value
        kinds[key] = one.labels.get("fstype", ""), one.labels.get("device", "")[:300]
    found: dict[str, tuple[list[Disk], list[SharedMemory]]] = {}
    for (node, mount), values in list(told.items())[:20_000]:
        disks, shm = found.setdefault(node, ([], []))
        kind, device = kinds[node, mount]
        size, free = values.get("size_bytes"), values.get("avail_bytes")
        used = _percent(size, free)
        if mount == "/dev/shm" and size is not None:
            shm.append(SharedMemory((), "ok", int(size), used))
        elif (
            kind not in PSEUDO and kind not in NETWORK and mount.startswith("/") and not device.startswith("/dev/loop")
        ):
            inodes = _percent(values.get("files"), values.get("files_free"))
            disks.append(Disk(mount, kind, device, values.get("readonly") == 1.0, False, "ok",
                None if size is None else int(size), None if free is None else int(free), used, inodes))  # fmt: skip
    if not found:
        raise refuse("file systems of nodes", text)
    return {node: Storage(tuple(disks), (), (), tuple(shm)) for node, (disks, shm) in found.items()}


def _percent(size: float | None, free: float | None) -> float | None:
    return round(100 * (1 - free / size), 1) if size and free is not None else None


def read(text: str) -> Storage:
    return next(iter(by_node(text).values()))


TOOL = Tool("file systems of nodes", "host.storage", _fits, read, by_node=by_node)
