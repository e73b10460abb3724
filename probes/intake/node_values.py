"""One quantity of every node, as people write it down: a table, a list below a title, or `node: value` lines.

    | node | rdma0 mtu |        # active IB ports per node (expect 8)      NCCL bootstrap interface per node
    | n1   | 9000      |        node-12: 7/8 active                         n3  docker0  172.17.0.1

What the quantity is, the head of the column tells, or the title, or the row itself (`n1: rdma0 mtu 9000`).

Shape    by_values(text, name) -> (node, label, text): what a tool on that node would have printed, for its reader;
         value_items(item, text) -> an Item for each, of that node
Units    as the tools': bytes of an MTU, KiB of locked memory, Gb/s
Errors   none: where no quantity is known, nothing
Source   the forms of ip link, ibv_devinfo, ulimit -l, lsmod, mlnx_qos, ethtool, pip freeze and NCCL's log
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from probes.core import lines_of
from probes.intake.hosts import alike
from probes.intake.items import Item
from probes.intake.names import is_address, is_host, is_other, looks_like_a_node, stem
from probes.intake.own_tables import cells
from probes.intake.prefixed import MOST_NODES
from probes.intake.tools.network._counter_sets import candidates, device

Row = tuple[str, str, str]  # node, what stands behind it, the line
Made = tuple[str, str]  # label, text
_FIRST = re.compile(
    r"^[\s\[(<|*-]{0,8}([A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3})[\])>]?(?:\s{0,4}[:,;|=]\s{0,4}|\s{1,40})(?=\S)"
)
_HEADS = ("host", "node", "hostname", "nodename", "server", "machine", "worker", "pod")
_NONE = re.compile(
    r"(?:no|not?[ -]?(?:loaded|present|found|set)?|\(not loaded\)|missing|absent|false|off|disabled|none|0|-|✗|x)", re.I
)
_YES = re.compile(
    r"(?:yes|y|loaded|present|true|on|enabled|ok|✓|[1-9]\d{0,6}|nvidia_peermem[ \d]{0,20}|nv_peer_mem[ \d]{0,20})", re.I
)
_IFACE = re.compile(
    r"(?<![\w.-])((?:en[opsx]|eth|bond|rdma|roce|ib|rail|docker|virbr|br-|wlan|usb|lo|veth|cni|flannel|tailscale|wg)[\w.]{0,20})(?![\w.-])"
)
_ADDRESS = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])")
_VARIABLE = re.compile(r"(?<![\w])((?:NCCL|RCCL|UCX|GLOO|TORCH_NCCL)_[A-Z0-9_]{2,60})(?:=| is |: ?| )(\S{1,120})")
_UNSET = re.compile(r"(?:unset|not|none|<unset>|-|\(unset\)|\(none\))[,;]?", re.I)
_LATELY = re.compile(
    r"\b(?:last|past) (?:\d{1,3} ?)?(?:min|m|hour|h)\w{0,6}\b|\bper hour\b"
    r"|\bsince (?:the )?(?:job|run|start|restart|midnight)|\btoday\b|\bduring the (?:job|run)"
    r"|\bin \d{1,3} ?(?:min|m|h)\b",
    re.I,
)
MOST_LINES, LONGEST, MOST_TITLE = 20_000, 500, 8


def by_values(text: str, name: str) -> list[tuple[str, str, str]]:
    """[] where it is no such list of two nodes at least."""
    lines = [line.strip() for line in lines_of(text[:1_048_576], LONGEST) if line.strip(" |+-=:\t\r")][:MOST_LINES]
    rows, others = _rows(lines)
    if len({node for node, _, _ in rows}) < 2 or len(rows) * 2 < len(lines):
        return []
    heads = [line for line in others if _first(line).lower() in _HEADS and _columns(line, rows[0])]
    title = " ".join(line for line in others if line not in heads)[:800]
    said = f"{title} {name.replace('_', ' ')}"
    made: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        node, rest, _ = row
        for label, told in _told(node, rest, _columns(heads[0], row) if heads else [], said):
            if told not in (mine := made.setdefault((node, label), [])):
                mine.append(told)
    labels = [label for _, label in made]
    return [(node, label, "".join(told)) for (node, label), told in made.items() if labels.count(label) > 1]


def value_items(item: Item, text: str) -> list[Item]:
    return [
        Item(f"{item.ref}: {node}", item.inside.parent / node / label, told.encode(), mtime=item.mtime, node=node)
        for node, label, told in by_values(text, stem(item.name))
    ]


def _first(line: str) -> str:
    found = _FIRST.match(line)
    return found[1] if found else ""


def _rows(lines: list[str]) -> tuple[list[Row], list[str]]:
    """(rows that begin with a node, the other lines)."""
    found = [(line, None if line[:1] in "#$" else _FIRST.match(line)) for line in lines]
    words = {match[1] for _, match in found if match is not None and match[1].lower() not in _HEADS}
    named = {word for word in words if looks_like_a_node(word) and not device(word)}
    nodes = alike(candidates(words)) | named | {word for word in words if is_address(word)}
    if any(match and match[1].lower() in _HEADS for _, match in found):  # it says that they are nodes: also x1, sirius
        nodes |= {word for word in words if is_host(word) and not device(word) and not is_other(word)}
    if not 2 <= len(nodes) <= MOST_NODES:
        return [], lines
    rows = [(match[1], line[match.end() :].strip(" |"), line) for line, match in found if match and match[1] in nodes]
    return rows, [line for line, match in found if match is None or match[1] not in nodes][:MOST_TITLE]


def _columns(head: str, row: Row) -> list[tuple[str, str]]:
    """(head, cell) of each column behind the node's; [] where they are not as many."""
    for mark in ("|", ";", ",", "\t", "  ", " "):
        names, told = cells(head, mark), cells(row[2], mark)
        if len(names) == len(told) and len(names) > (2 if mark == " " else 1):
            return list(zip(names[1:], told[1:], strict=True))
    found = _FIRST.match(head)
    return [(head[found.end() :].strip(" |"), row[1])] if found and "  " not in row[1] else []


def _told(node: str, rest: str, columns: list[tuple[str, str]], title: str) -> Iterator[Made]:
    if variables := dict(_VARIABLE.findall(rest)):
        values = {key: "" if _UNSET.fullmatch(value) else value.rstrip(",;") for key, value in variables.items()}
        yield "env", "".join(f"{key}={value}\n" for key, value in values.items())
        return
    known = False
    row = " ".join(cell for _, cell in columns) or rest
    for head, cell in columns:
        for quantity, make in QUANTITIES:
            if quantity.search(head) and (told := make(node, cell, f"{head} {row}", title)):
                known = True
                yield told
                break
    if known:
        return
    for said in (rest, title):  # the row itself may say what it is of
        for quantity, make in QUANTITIES:
            if quantity.search(said) and (told := make(node, rest, rest, title)):
                yield told
                return


# What a tool on the node would have printed ---------------------------------------------------------------------------


def _interface(*texts: str) -> str:
    return next((found[1] for text in texts if (found := _IFACE.search(text))), "")


def _adapter(*texts: str) -> str:
    words = (word.strip(":,()|") for text in texts for word in text.split())
    return next((word.partition("/")[0] for word in words if (found := device(word)) and found[0] == "hca"), "")


def _number(cell: str, least: int, most: int) -> int | None:
    found = re.search(r"(?<![\w.])(\d{1,9})(?![\w.]|/s)", cell)
    return int(found[1]) if found and least <= int(found[1]) <= most else None


def _mtu(node: str, cell: str, row: str, title: str) -> Made | None:
    size = _number(_IFACE.sub(" ", cell), 500, 20_000)
    return ("ip_link", f"1: {_interface(row, title) or 'eth0'}: <UP,LOWER_UP> mtu {size}\n") if size else None


def _active_mtu(node: str, cell: str, row: str, title: str) -> Made | None:
    size = _number(cell, 256, 4096)
    adapter = _adapter(row, title) or "mlx5_0"
    return (
        (
            "ibv_devinfo",
            f"hca_id:\t{adapter}\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_ACTIVE (4)\n\t\t\tactive_mtu:\t\t{size} (5)\n",
        )
        if size
        else None
    )


def _channels(node: str, cell: str, row: str, title: str) -> Made | None:
    count = _number(cell, 0, 64)
    line = (
        f"{node}:1:1 [0] NCCL INFO {count} coll channels, 0 collnet channels, 0 nvls channels, {count} p2p channels\n"
    )
    return ("nccl.log", line) if count is not None else None


def _nccl(node: str, cell: str, row: str, title: str) -> Made | None:
    found = re.search(r"(?<![\w.])(2\.\d{1,2}\.\d{1,2})(?![\w.])", cell)
    return ("nccl.log", f"{node}:1:1 [0] NCCL INFO NCCL version {found[1]}\n") if found else None


def _memlock(node: str, cell: str, row: str, title: str) -> Made | None:
    found = re.search(r"(?<![\w.])(\d{1,15}|unlimited|infinity)(?: ?(k|m|g)i?b?)?(?![\w.])", cell, re.I)
    if found is None:
        return None
    times = {"k": 1, "m": 1024, "g": 1 << 20}.get((found[2] or "k").lower(), 1)
    return "ulimit_-l", f"{int(found[1]) * times if found[1].isdecimal() else 'unlimited'}\n"


def _peermem(node: str, cell: str, row: str, title: str) -> Made | None:
    cell = re.sub(r"^\s{0,8}(?:nvidia_peermem|nv_peer_mem)\s{1,40}(?=\D)", "", cell)
    there = bool(_YES.fullmatch(cell.strip())) and not _NONE.fullmatch(cell.strip())
    if not there and not _NONE.fullmatch(cell.strip()):
        return None
    modules = "nvidia 62746624 100\nib_uverbs 172032 10\n" + ("nvidia_peermem 16384 0\n" if there else "")
    return "lsmod", f"Module                  Size  Used by\n{modules}"


def _gdr(node: str, cell: str, row: str, title: str) -> Made | None:
    there = bool(_YES.fullmatch(cell.strip())) and not _NONE.fullmatch(cell.strip())
    if not there and not _NONE.fullmatch(cell.strip()):
        return None
    word = "Enabled" if there else "Disabled"
    return "nccl.log", f"{node}:1:1 [0] NCCL INFO GPU Direct RDMA {word} for HCA 0 'mlx5_0'\n"


def _bootstrap(node: str, cell: str, row: str, title: str) -> Made | None:
    name, address = _interface(row), _ADDRESS.search(row)
    if not name or address is None:
        return None
    return "nccl.log", f"{node}:1:1 [0] NCCL INFO Bootstrap : Using {name}:{address[1]}<0>\n"


def _ports_up(node: str, cell: str, row: str, title: str) -> Made | None:
    found = re.fullmatch(
        r"(\d{1,2})(?: ?(?:/|of) ?\d{1,2})?(?: (?:active|up|ports?|ok|linkup)){0,2}", cell.strip(" .!"), re.I
    )
    return ("ibstat_grep_-c_Active", f"{found[1]}\n") if found else None


def _speed(node: str, cell: str, row: str, title: str) -> Made | None:
    found = re.search(r"(?<![\w.])(\d{1,7})(?:\.\d)? ?(Mb|Gb|G)?(?:/s|ps|it)?(?:ec)?(?![\w.])", cell)
    where = _interface(row, title)
    if found is None or not where or where.startswith("ib"):
        return None
    size = int(found[1]) * (1 if found[2] == "Mb" or int(found[1]) > 2000 else 1000)
    return f"ethtool_{where}", f"Settings for {where}:\n\tSpeed: {size}Mb/s\n"


def _pfc(node: str, cell: str, row: str, title: str) -> Made | None:
    there = _YES.fullmatch(cell.strip()) and not _NONE.fullmatch(cell.strip())
    bits = re.fullmatch(r"(?:enabled\s{1,8})?([01](?:[ ,]{1,8}[01]){7})", cell.strip())
    if not there and not bits and not _NONE.fullmatch(cell.strip()):
        return None
    first = re.search(r"prio(?:rity)?[ _]?(\d)", f"{row} {title}", re.I)
    flags = [int(there is not None and there is not False and n == int(first[1] if first else 3)) for n in range(8)]
    told = bits[1].replace(",", " ") if bits else "   ".join(map(str, flags))
    return "mlnx_qos", f"PFC configuration:\n\tpriority    0   1   2   3   4   5   6   7\n\tenabled     {told}\n"


def _own_name(node: str, cell: str, row: str, title: str) -> Made | None:
    found = _ADDRESS.search(cell)
    return (f"getent_hosts_{node}", f"{found[1]} {node}\n") if found else None


def _flaps(node: str, cell: str, row: str, title: str) -> Made | None:
    """How often a link went down in some hours: without when it was, it is a count of a whole life."""
    count = _number(cell, 0, 100_000)
    if count is None or not _LATELY.search(title):
        return None
    where = _adapter(row, title) or _interface(row, title)
    return f"{where or 'link'}_downs", f"{where} link_downed +{count} in 3600 s\n".lstrip()


Make = Callable[[str, str, str, str], "Made | None"]
# The first that the head of a column, the row or the title names.
QUANTITIES: tuple[tuple[re.Pattern[str], Make], ...] = tuple(
    (re.compile(pattern, re.I), make)
    for pattern, make in (
        (r"\bactive[ _]?mtu\b|\bib(?:v)?[ _]mtu\b", _active_mtu),
        (r"\bmtu\b", _mtu),
        (r"\bcoll(?:ective)? channels\b|\bnccl channels\b|\bchannels per node\b", _channels),
        (r"\bnccl(?:[ _.]?ver(?:sion)?|\.version\(\))?\b(?=\s{0,4}$)|\b(?:lib)?nccl2? version|nvidia-nccl", _nccl),
        (r"\bulimit -l\b|\bmem[ _-]?lock\b|\blocked[ _-]mem(?:ory)?\b", _memlock),
        (r"\bnv(?:idia)?[_-]peer[_-]?mem\b|\bpeermem\b", _peermem),
        (r"\bGDR(?:DMA)?\b|\bGPU ?Direct\b", _gdr),
        (r"\bhostname -[iI]\b|\bgetent hosts\b|\bown name\b|\bresolves? (?:itself )?to\b", _own_name),
        (r"\bbootstrap\b|\bsocket[ _]if(?:name)?\b|\boob (?:if|interface)\b|\bNCCL (?:socket )?interface", _bootstrap),
        (r"\b(?:active|up|linkup)(?: (?:ib|rdma|hca))? ports\b|\bports (?:up|active)\b|\b\d/\d active\b", _ports_up),
        (r"\bPFC\b", _pfc),
        (r"\blink[ _/-]?(?:down|flap)|\bflaps?\b|\bcarrier (?:changes|losses|lost)\b", _flaps),
        (r"\b(?:link )?speed\b|\brate\b|\bethtool\b", _speed),
    )
)
