"""Tables with a row per node: MTUs of interfaces, or settings of NCCL, as inventories and loops print them; and those
with a row per step, as monitoring exports them.

    node,iface,mtu              node    NCCL_ALGO  NCCL_PROTO
    gpu-1,ens1f0,9000           gpu-1   Ring       Simple

    _step,train/loss,step_time_s

Shape    steps_in(text) -> lines of a log that tell the same; by_rows(text) -> (node, label, the row in the form in
         which a node by itself would have told it)
Errors   none: what is no such table gives nothing
"""

from __future__ import annotations

import re

from probes.catalog._log_tables import unit_of
from probes.catalog._log_timings import part_of
from probes.core import lines_of
from probes.intake.names import is_address, is_host

_NODE = re.compile(r"(?:node|host|machine|server|instance|pod)(?:_?name)?", re.I)
_IFACE = re.compile(r"i?face|interface|dev(?:ice)?|nic|if_?name|netdev|link", re.I)
_SETTING = re.compile(r"(?:NCCL|RCCL|UCX|GLOO|FI)_[A-Z0-9_]{2,60}")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,12})?")
_UNSET = ("-", "unset", "None", "<unset>", "n/a")
MOST = 20_000


def by_rows(text: str) -> list[tuple[str, str, str]]:
    first = text[:8192].lstrip("-+=| \t\r\n").partition("\n")[0]
    split = _splitter(first)
    names = _cells(first, split)
    if not any(map(_NODE.fullmatch, names)):
        return []
    lines = [line for line in lines_of(text[:4_194_304], 4000) if line.strip() and set(line.strip()) - set("-+=| ")]
    node = next((at for at, name in enumerate(names) if _NODE.fullmatch(name)), None)
    mtu = next((at for at, name in enumerate(names) if name.lower().partition("(")[0].strip() == "mtu"), None)
    iface = next((at for at, name in enumerate(names) if _IFACE.fullmatch(name)), None)
    settings = [at for at, name in enumerate(names) if _SETTING.fullmatch(name)]
    if node is None or not (settings or (mtu is not None and iface is not None)):
        return []
    found: dict[str, list[str]] = {}
    for line in lines[1:MOST]:
        cells = _cells(line, split)
        if len(cells) != len(names) or not (is_host(cells[node]) or is_address(cells[node])):
            return []
        told = found.setdefault(cells[node], [])
        if mtu is not None and iface is not None and cells[mtu].isdecimal():
            told.append(f"{len(told) + 1}: {cells[iface]}: <UP,LOWER_UP> mtu {cells[mtu]}")
        told += [f"{names[at]}={'' if cells[at] in _UNSET else cells[at]}" for at in settings]
    label = "env" if settings else "ip_link"
    return [(name, label, "\n".join(told) + "\n") for name, told in found.items()] if len(found) > 1 else []


def steps_in(text: str) -> str:
    """A table of steps and how long each took, of nobody in particular, as lines of a log; "" for none."""
    head, _, rest = text[:4_194_304].partition("\n")
    split = _splitter(head)
    names = [name.rpartition("/")[2].lstrip("_").lower() for name in _cells(head, split)]
    step = next((at for at, name in enumerate(names) if name in ("step", "global_step", "iteration", "iter")), None)
    took = next((at for at, name in enumerate(names) if _is_total(name)), None)
    data = next((at for at, name in enumerate(names) if part_of(unit_of(name)[0]) == "data"), None)
    if not split or step is None or took is None or any("rank" in name for name in names):
        return ""
    scale = unit_of(names[took])[1]
    found: list[tuple[str, float, str]] = []
    for line in lines_of(rest, 4000):
        cells = _cells(line, split)
        if len(cells) == len(names) and cells[step].isdecimal() and _NUMBER.fullmatch(cells[took]):
            loads = data is not None and _NUMBER.fullmatch(cells[data])
            of_data = (
                f" data_time: {float(cells[data]) * unit_of(names[data])[1]:.6f} s"
                if data is not None and loads
                else ""
            )
            found.append((cells[step], float(cells[took]) * scale, of_data))
        if len(found) >= MOST:
            break
    if len(found) < 2 or _since_start([seconds for _, seconds, _ in found]):
        return ""
    return "".join(f"step {number} step_time {seconds:.6f} s{of_data}\n" for number, seconds, of_data in found)


def _is_total(name: str) -> bool:
    """`end_to_end(s)` is TorchTitan's."""
    return part_of(unit_of(name)[0]) == "total" or name in ("seconds", "end_to_end(s)")


def _since_start(times: list[float]) -> bool:
    """Times that only grow, to more than twice the first: of a clock, not of a step."""
    return all(a < b for a, b in zip(times, times[1:], strict=False)) and times[-1] > 2 * times[0]


def _splitter(head: str) -> str:
    return next((mark for mark in (",", "\t", "|", ";") if mark in head), "")


def _cells(line: str, split: str) -> list[str]:
    cells = line.strip().strip("|").split(split) if split else line.split()
    return [cell.strip().strip("\"'") for cell in cells]
