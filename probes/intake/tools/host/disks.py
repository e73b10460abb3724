"""df -h, df -i, df -k and -T, and mount or /proc/mounts.

Source   df(1), mount(8), proc(5). Sizes with -h are rounded by df
Shape    facts of host.storage
Errors   ParseError when no line has the form of its header
"""

from __future__ import annotations

import json
import re
from typing import Any

from probes.catalog.host.storage_facts import JOURNALED, NETWORK, Disk, NetworkMount, SharedMemory, Storage
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool

_HEAD = re.compile(
    r"(?:Filesystem|UUID)\s{1,200}(Type\s{1,60})?(?:(Inodes)|\S{1,12})\s{1,60}"
    r"I?Used\s{1,60}\S{4,10}\s{1,60}\S{4,8}\s{1,60}Mounted on"
)
# Any language's: words, of which one ends in a percent sign. `Sys. de fichiers Taille Utilisé Dispo Uti% Monté sur`
_FOREIGN = re.compile(
    r"(?!Filesystem|UUID)(?=[^\n]{0,160}[^\W\d]% )(?:1[KMG]-)?[^\W\d][^\n/:=]{3,100}[^\W\d]%\s{1,60}[^\W\d][^\n/]{1,40}"
)
_ROW = re.compile(
    r"(\S{1,200})\s{1,200}(?:([a-zA-Z][\w.]{1,20})\s{1,60})?(-|[\d.,]{1,18}[BKMGTPE]?i?)\s{1,60}(-|[\d.,]{1,18}[BKMGTPE]?i?)"
    r"\s{1,60}(-|[\d.,]{1,18}[BKMGTPE]?i?)\s{1,60}(-|\d{1,3}%)\s{1,60}(/\S{0,300})"
)
_INODES = re.compile(r"(?i)\bi-?n(?:o|œ|oe)(?:de|ud)|i节点|i ?ノード|아이노드")
_MOUNT = re.compile(r"(\S{1,300}) on (/\S{0,300}) type (\w[\w.]{1,20}) \(([^)]{1,600})\)")
_PROC = re.compile(r"(\S{1,300}) (/\S{0,300}) (\w[\w.]{1,20}) ((?:rw|ro)(?:,\S{1,600})?) 0 0")
_UNITS = {"": 1024, "B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50, "E": 2**60}
IMAGES = ("/dev/loop", "/dev/sr", "/dev/cdrom")  # full by nature
PSEUDO = frozenset(("proc", "sysfs", "cgroup", "cgroup2", "devpts", "squashfs", "iso9660", "devtmpfs", "efivarfs"))


def _fits(head: str, name: str) -> bool:
    lines = [line for line in lines_of(head[:8192]) if line.strip()][:6]
    if any(_HEAD.match(line) for line in lines[:2]) or _as_json(head):
        return True
    # `df | grep scratch`, `df | tail -1`: rows without their header, or with one in another language
    if lines and len(lines) > 1 and _FOREIGN.fullmatch(lines[0].strip()):
        lines.pop(0)
    if lines and all((row := _ROW.fullmatch(line.strip())) and row[6] != "-" for line in lines):
        return True
    mounted = sum(bool(_MOUNT.fullmatch(line.strip()) or _PROC.fullmatch(line.strip())) for line in lines)
    return mounted >= 3 or 0 < mounted == len(lines)  # all of a few: `grep ' / ' /proc/mounts`


def read(text: str) -> Storage:
    disks: list[Disk] = []
    network: list[NetworkMount] = []
    shm: list[SharedMemory] = []
    inodes, known, typed = False, False, False
    pending = ""
    for row in _json_rows(text) if text.lstrip()[:1] in "{[" else ():
        known = True
        disks.append(row)
    bare = not any(_HEAD.match(line.strip()) for line in lines_of(text[:8192], 1000))
    known = known or (bare and not disks)
    for raw in lines_of(text, 1000):
        line = pending + raw.strip()
        pending = ""
        if bare and not disks and _FOREIGN.fullmatch(line):
            inodes = bool(_INODES.search(line))
        elif head := _HEAD.match(line):
            inodes, known, typed = bool(head[2]), True, bool(head[1])
        elif found := _MOUNT.fullmatch(line) or _PROC.fullmatch(line):
            known = True
            device, point, kind = (clean(found[at]) for at in (1, 2, 3))
            if kind in NETWORK:
                network.append(NetworkMount(point, kind, device, False, None, None, None, None))
            elif kind not in PSEUDO:
                disks.append(_mounted(device, point, kind, found[4].split(",")))
        elif known and (one := _ROW.fullmatch(line)) and (bare or bool(one[2]) == typed):
            _row(one, inodes, disks, shm)
        elif known and "/" in line and " " not in line:
            pending = line + " "  # df without -P breaks lines behind a long device
    if not known or not (disks or network or shm):
        raise ParseError("expected df or mount, found no line of a file system")
    return Storage(tuple(disks[:2000]), tuple(network[:500]), (), tuple(shm[:16]))


_MOUNTS = ("mounted_on", "mountpoint", "target", "mount")
_PERCENTS = ("use_percent", "used_percent", "use%", "pcent", "capacity_percent")


def _as_json(head: str) -> bool:
    return head.lstrip()[:1] in "{[" and all(any(f'"{key}"' in head for key in keys) for keys in (_MOUNTS, _PERCENTS))


def _json_rows(text: str) -> list[Disk]:
    """jc, findmnt -J and the like: objects with a mount point and how full it is."""
    try:
        todo: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return []
    found: list[Disk] = []
    while todo and len(found) < 2000:
        one = todo.pop()
        if isinstance(one, list):
            todo += one[:5000]
        elif isinstance(one, dict):
            todo += [inner for inner in one.values() if isinstance(inner, list | dict)]
            mount = next((one[key] for key in _MOUNTS if isinstance(one.get(key), str)), "")
            percent = next((str(one[key]) for key in _PERCENTS if one.get(key) is not None), "").rstrip("%")
            if mount.startswith("/") and re.fullmatch(r"\d{1,3}(?:\.\d{1,4})?", percent):
                device = str(one.get("filesystem") or one.get("source") or "")
                if not device.startswith(IMAGES):
                    disks = Disk(
                        clean(mount)[:300],
                        "",
                        clean(device)[:300],
                        False,
                        False,
                        "ok",
                        None,
                        None,
                        float(percent),
                        None,
                    )
                    found.append(disks)
    return found


def _mounted(device: str, point: str, kind: str, options: list[str]) -> Disk:
    read_only = "ro" in options
    # A journalled file system with errors=remount-ro and read-only was turned so by an error, or by hand.
    turned = read_only and "errors=remount-ro" in options and kind in JOURNALED
    return Disk(point, kind, device, read_only, turned or "emergency_ro" in options, "", None, None, None, None)


def _row(row: re.Match[str], inodes: bool, disks: list[Disk], shm: list[SharedMemory]) -> None:
    device, kind, point = clean(row[1]), row[2] or "", clean(row[7])
    percent = None if row[6] == "-" else float(row[6].rstrip("%"))
    size, free = _bytes(row[3]), _bytes(row[5])
    if point == "/dev/shm" and not inodes:
        shm.append(SharedMemory((), "ok", size, percent))
    elif device.startswith(IMAGES) or point.startswith(("/snap/", "/sys/", "/proc/")) or kind in PSEUDO:
        return  # images are full by nature
    elif inodes:
        disks.append(Disk(point, kind, device, False, False, "ok", None, None, None, percent))
    else:
        disks.append(Disk(point, kind, device, False, False, "ok", size, free, percent, None))


def _bytes(word: str) -> int | None:
    found = re.fullmatch(r"([\d.]{1,18}?)([BKMGTPE]?)i?", word.replace(",", "."))
    try:
        return int(float(found[1]) * _UNITS[found[2]]) if found else None
    except ValueError:
        return None


TOOL = Tool("df or mount", "host.storage", _fits, read)
