"""Lines that tell whether the module for GPUDirect RDMA is loaded: of `lsmod | grep peermem`, modprobe(8), the kernel,
or somebody's notes; each alone, in a log, or with its node before it.

    nvidia_peermem         16384  0                                              what grep leaves of lsmod
    modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument         also FATAL: Module ... not found
    nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client
    n07: lsmod | grep peermem: (nothing)

Source   lsmod(8) and modprobe(8) of kmod 29; kernel/module: check_version, simplify_symbols; nvidia-peermem
Shape    facts host.settings: modules, with `nvidia` and, where it is loaded, nvidia_peermem
Errors   ParseError when no line tells it
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.network.net_facts import Settings
from probes.core import ParseError, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._told_of import leading, node_in
from probes.intake.tools.host.limits import quiet

_NAME = r"(?:nvidia[_-]peermem|nv_peer_?mem)"
_LOADED = re.compile(
    rf"(?<![\w./]){_NAME}(?:\s{{1,40}}\d{{3,8}}\s{{1,8}}\d{{1,4}}(?!\S)"
    r"|[ :=|\t]{1,12}(?:is )?(?:loaded|yes|present|ok)\b)",
    re.I,
)
_LACKS = re.compile(
    rf"could not insert ['\"]?{_NAME}|Module {_NAME}[\w.-]{{0,40}} not found"
    rf"|{_NAME}: (?:disagrees about version|Unknown symbol|no symbol version|exports duplicate)"
    rf"|(?<![\w./]){_NAME}[ :=|\t]{{1,12}}(?:is )?(?:not (?:loaded|found|present|there)|missing|absent|no\b)"
    rf"|\bno {_NAME}\b|{_NAME}[^\n]{{0,40}}\bfailed to (?:load|insert)|failed to (?:load|insert)[^\n]{{0,40}}{_NAME}",
    re.I,
)
_ASKED = re.compile(
    r"(?:lsmod|/proc/modules)[^\n]{0,40}peer_?mem['\"]?\s{0,4}(?:[:=]|->|=>)\s{0,4}([^\n]{0,80})$", re.I
)
_NOTHING = re.compile(r"\W{0,4}(?:nothing|empty|none|no output|no|0|not loaded|-{1,3})?\W{0,4}", re.I)
LOOKED_AT, MOST = 65_536, 1_048_576


def _told(text: str) -> Iterator[tuple[str, bool, int]]:
    """(line, whether the module is there, where it tells so)."""
    for line in lines_of(text, 2000):
        if "peer" not in line.lower():
            continue
        if (lacks := _LACKS.search(line)) is not None:
            yield line, False, lacks.start()
        elif (loaded := _LOADED.search(line)) is not None:
            yield line, True, loaded.start()
        elif (asked := _ASKED.search(line)) is not None and _NOTHING.fullmatch(asked[1]):
            yield line, False, asked.start()


def fits(head: str, name: str) -> bool:
    if "peer" not in head.lower() or "Used by" in head:  # a whole lsmod tells more
        return False
    return next(_told(head[:LOOKED_AT]), None) is not None


def by_node(text: str) -> dict[str, Settings]:
    there: dict[str, bool] = {}
    for line, loaded, at in _told(text[:MOST]):
        node = leading(line, at) or node_in(line[:at], at)
        if node or not there:
            there[node] = loaded and there.get(node, True)
    if not there:
        raise ParseError("lines of lsmod, modprobe or the kernel: none that tells of nvidia_peermem")
    return {
        node: Settings(modules=("nvidia", "nvidia_peermem") if loaded else ("nvidia",))
        for node, loaded in there.items()
    }


def read(text: str) -> Settings:
    return next(iter(by_node(text).values()))


TOOL = Tool("module for GPUDirect RDMA", "host.settings", fits, read, quiet, beside=True, by_node=by_node)
