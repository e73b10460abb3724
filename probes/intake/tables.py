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
from collections.abc import Sequence

from probes.catalog.logs.legends import unit_of
from probes.catalog.logs.timings import part_of
from probes.intake.names import is_address, is_host
from probes.intake.own_tables import table_in

_NODE = re.compile(r"(?:node|host|machine|server|instance|pod)(?:_?name)?", re.I)
_IFACE = re.compile(r"i?face|interface|dev(?:ice)?|nic|if_?name|netdev|link", re.I)
_MTU = re.compile(r"mtu(?:\s{0,4}\(.{0,40})?", re.I)
_SETTING = re.compile(r"(?:NCCL|RCCL|UCX|GLOO|FI)_[A-Z0-9_]{2,60}")
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,12})?")
_UNSET = ("-", "unset", "None", "<unset>", "n/a")
_MARKS = (",", "\t", "|", ";")
MOST = 20_000


def by_rows(text: str) -> list[tuple[str, str, str]]:
    table = table_in(text, _is_of_nodes, MOST)
    if table is None:
        return []
    node, iface, mtu = table.at(_NODE), table.at(_IFACE), table.at(_MTU)
    settings = [at for at, name in enumerate(table.heads) if _SETTING.fullmatch(name)]
    found: dict[str, list[str]] = {}
    for row in table.rows if node is not None else ():
        name = row[node or 0]
        if not (is_host(name) or is_address(name)):
            return []
        told = found.setdefault(name, [])
        if mtu is not None and iface is not None and row[mtu].isdecimal():
            told.append(f"{len(told) + 1}: {row[iface]}: <UP,LOWER_UP> mtu {row[mtu]}")
        told += [f"{table.heads[at]}={'' if row[at] in _UNSET else row[at]}" for at in settings]
    label = "env" if settings else "ip_link"
    return [(name, label, "\n".join(told) + "\n") for name, told in found.items()] if len(found) > 1 else []


def _is_of_nodes(names: Sequence[str], above: str) -> bool:
    there = [any(word.fullmatch(name) for name in names) for word in (_NODE, _SETTING, _MTU, _IFACE)]
    return not above and there[0] and (there[1] or all(there[2:]))


def steps_in(text: str) -> str:
    """A table of steps and how long each took, of nobody in particular, as lines of a log; "" for none."""
    table = table_in(text, _is_of_steps, MOST)
    if table is None or table.mark not in _MARKS:
        return ""
    step, took, data = _places(table.heads)
    names = [_plain(name) for name in table.heads]
    found: list[tuple[str, float, str]] = []
    for row in table.rows if step is not None and took is not None else ():
        number, seconds = row[step or 0], row[took or 0]
        if not (number.isdecimal() and _NUMBER.fullmatch(seconds)):
            continue
        of_data = ""
        if data is not None and _NUMBER.fullmatch(row[data]):
            of_data = f" data_time: {float(row[data]) * unit_of(names[data])[1]:.6f} s"
        found.append((number, float(seconds) * unit_of(names[took or 0])[1], of_data))
    if len(found) < 2 or _since_start([seconds for _, seconds, _ in found]):
        return ""
    return "".join(f"step {number} step_time {seconds:.6f} s{of_data}\n" for number, seconds, of_data in found)


def _is_of_steps(names: Sequence[str], above: str) -> bool:
    step, took, _ = _places(names)
    return not (above or step is None or took is None or any("rank" in name.lower() for name in names))


def _places(heads: Sequence[str]) -> tuple[int | None, int | None, int | None]:
    """The columns of the step, of what it took, and of its data."""
    names = [_plain(head) for head in heads]
    return (
        next((at for at, name in enumerate(names) if name in ("step", "global_step", "iteration", "iter")), None),
        next((at for at, name in enumerate(names) if _is_total(name)), None),
        next((at for at, name in enumerate(names) if part_of(unit_of(name)[0]) == "data"), None),
    )


def _plain(head: str) -> str:
    return head.rpartition("/")[2].lstrip("_").lower()


def _is_total(name: str) -> bool:
    """`end_to_end(s)` is TorchTitan's."""
    return part_of(unit_of(name)[0]) == "total" or name in ("seconds", "end_to_end(s)")


def _since_start(times: list[float]) -> bool:
    """Times that only grow, to more than twice the first: of a clock, not of a step."""
    return all(a < b for a, b in zip(times, times[1:], strict=False)) and times[-1] > 2 * times[0]
