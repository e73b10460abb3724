"""Settings of RoCE of a host or switch that are no output of mlnx_qos or dcb: `nv show qos roce` of Cumulus,
`show pfc priority` and `show ecn` of SONiC, files below /sys/class/net/*/ecn, tables with columns trust, pfc, ecn.

The name of a switch's table is that of its kind: switches are compared with each other.
"""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Links, NetLink
from probes.core import clean, lines_of
from probes.intake.first_words import parts_by_first_word
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, mentions, refuse
from probes.intake.tools.network.ip_link import quiet

_NVUE = re.compile(r"^(enable|mode|roce-mode)\s{1,40}(on|off|yes|no|lossless|lossy)\b", re.M)
_NVUE_HEAD = re.compile(r"nv show qos roce|^ {4,60}operational\s{1,12}applied", re.M)
_SYSFS = re.compile(r"/(?:net/)?([\w.@-]{2,40})/ecn/roce_[nr]p/enable/(\d)\s{0,2}[:= ]\s{0,4}([01])\b")
_SONIC = re.compile(r"^\s{0,8}(Ethernet\d{1,3})\s{1,24}(N/A|-|[0-7](?:,[0-7]){0,7})\s{0,8}$", re.M)
_COLUMNS = ("trust", "pfc", "ecn", "dcbx", "pause")
_ON, _OFF = ("on", "yes", "enabled", "1", "true"), ("off", "no", "disabled", "0", "false", "none", "-")


def fits(head: str, name: str) -> bool:
    if not mentions(head, ("roce", "operational", "lossless priorities", "trust", "pfc", "ecn", "dcbx")):
        return False
    nvue = _NVUE_HEAD.search(head) and _NVUE.search(head)
    return bool(nvue or _SYSFS.search(head) or ("Lossless priorities" in head and _SONIC.search(head)) or _of_one(head))


def _of_one(head: str) -> bool:
    """A table of one node: in one of many each row is its node's."""
    return bool(_table(head)) and not parts_by_first_word(head)


def read(text: str) -> Links:
    found: dict[str, dict[str, object]] = {}
    if _NVUE_HEAD.search(text):
        said = dict(_NVUE.findall(text[:1_048_576]))
        on = said.get("enable", "on") in _ON and said.get("mode", "lossless") == "lossless"
        found["switch"] = {"pfc": (3,) if on else ()}
    for dev, _, value in _SYSFS.findall(text[:1_048_576]):
        one = found.setdefault(dev, {"ecn": True})
        one["ecn"] = bool(one["ecn"]) and value == "1"
    if "Lossless priorities" in text:
        rows = [
            tuple(int(n) for n in value.split(",") if n.isdecimal()) for _, value in _SONIC.findall(text[:1_048_576])
        ]
        found["switch"] = {"pfc": max(set(rows), key=rows.count) if rows else ()}
    found |= _table(text)
    if not found:
        raise refuse("settings of RoCE", text)
    return Links(tuple(NetLink(clean(name), **told) for name, told in found.items()))  # type: ignore[arg-type]


def _table(text: str) -> dict[str, dict[str, object]]:
    """Rows below a head that names two such settings: those of a node, without its name."""
    columns: list[str] = []
    found: dict[str, dict[str, object]] = {}
    for line in lines_of(text[:65_536], 400):
        cells = [
            cell.strip().lower()
            for cell in re.split(r"\s{0,4}[|,\t]\s{0,4}|\s{1,40}", line.strip("| \t"))
            if cell.strip()
        ]
        names = [re.split(r"[(_ -]", cell)[0] for cell in cells]
        if sum(name in _COLUMNS for name in names) > 1:
            columns = names
        elif columns and len(cells) == len(columns):
            told: dict[str, object] = {}
            for name, cell in zip(columns, cells, strict=True):
                if name == "trust" and cell in ("dscp", "pcp", "l2", "l3", "port"):
                    told["trust"] = cell
                elif name == "dcbx":
                    told["dcbx"] = cell[:40]
                elif name in ("ecn", "pause") and cell in (*_ON, *_OFF):
                    told[name] = cell in _ON
                elif name == "pfc" and cell in (*_ON, *_OFF):
                    told["pfc"] = (3,) if cell in _ON else ()
            if len(told) > 1:
                found.setdefault("", told)
    return found


TOOL = Tool("RoCE settings", "net.links", fits, read, quiet, host_in)
