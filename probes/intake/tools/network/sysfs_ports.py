"""Lines `FILE:value` or `FILE value` of files below /sys/class/infiniband, as `grep -H .` or loops with cat print.

Several looks in one text, with a line of date(1) between them or without, become samples of the counters.
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.ib_ports import parse
from probes.catalog.network.ib_facts import IbPorts, Port, Sample
from probes.core import lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, looks, refuse

_LINE = re.compile(
    r"^(?:\.?/?(?:[\w.@-]{1,60}/){0,8}infiniband/|\.?/)?([a-zA-Z][\w.-]{1,40})/"
    r"(ports/\d{1,3}/[\w./-]{1,80}|node_guid|node_desc|fw_ver|hca_type|board_id|device/uevent)"
    r"\s{0,4}[:= ]\s{0,4}(\S.{0,120})$"
)


def fits(head: str, name: str) -> bool:
    found = [line for line in lines_of(head, 400) if line.strip()][:60]
    return sum("/ports/" in line and bool(_LINE.match(line)) for line in found) * 3 > len(found) > 0


def read(text: str) -> IbPorts:
    sets: list[tuple[float | None, dict[str, str]]] = []
    for at, body in looks(text):
        files: dict[str, str] = {}
        for line in lines_of(body, 400):
            if not (found := _LINE.match(line.strip())):
                continue
            name = f"/sys/class/infiniband/{found[1]}/{found[2]}"
            if name in files:  # it begins anew: another look
                sets.append((at, files))
                files, at = {}, None
            files[name] = found[3]
        if files:
            sets.append((at, files))
    if not sets:
        raise refuse("lines such as 'mlx5_0/ports/1/state:4: ACTIVE'", text)
    return _together([(at, _parsed(files)) for at, files in sets[:1000]])


def _parsed(files: dict[str, str]) -> IbPorts:
    return parse("\n".join(f"==> {name} <==\n{value}" for name, value in files.items()))


def _together(found: list[tuple[float | None, IbPorts]]) -> IbPorts:
    """The last look at each port, the earlier ones as its samples."""
    ports: dict[str, Port] = {}
    for at, facts in found:
        for new in facts.ports:
            there = ports.get(new.name)
            if there is None:
                ports[new.name] = replace(new, at=at)
                continue
            told = {
                name: getattr(new, name)
                for name in (
                    "state",
                    "phys_state",
                    "rate_gbps",
                    "width",
                    "speed",
                    "link_layer",
                    "lid",
                    "sm_lid",
                    "pkeys",
                )
                if getattr(new, name) not in (None, ())
            }
            if new.counters or new.hw_counters:
                samples = there.samples
                if there.counters or there.hw_counters:
                    samples = (*samples, Sample(there.counters, there.hw_counters, there.at))
                told |= {"counters": new.counters, "hw_counters": new.hw_counters, "at": at, "samples": samples[-200:]}
            ports[new.name] = replace(there, **told)
    return IbPorts("", tuple(ports.values()))


TOOL = Tool("sysfs of ports", "ib.ports", fits, read, host=host_in)
