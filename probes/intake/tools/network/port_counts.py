"""How many RDMA ports a node has, counted by a pipe: `ibstat | grep -c Active`, `ibdev2netdev | grep -c Up`,
`ls /sys/class/infiniband | wc -l`, `cat /sys/class/infiniband/*/ports/1/state | grep -c ACTIVE`.

Units    ports; of "ports down" those that are not up
Shape    facts of host.settings: resources "ports counted: COMMAND", so that only like is compared with like
Errors   ParseError when it is no number of ports
Source   ibstat(8), ibv_devices(1), rdma-link(8)
"""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.core import ParseError
from probes.intake.tools import Tool
from probes.intake.tools.host.limits import quiet

COUNTED, DOWN = "ports counted: ", "ports down: "
_COMMAND = re.compile(
    r"(?<![\w-])(?:ibstat(?:us)?|ibdev2netdev|rdma link|ibv dev(?:ices|info)|sys class infiniband)(?![\w-])"
    r"[^\n]{0,120}?(?:wc -l|grep -[A-Za-z]{0,4}c)[^\n]{0,60}"
)
_DOWN = re.compile(r"down|polling|disabled|init", re.I)
MOST = 64  # ports of a node; more were lines of something else


def _command(name: str) -> str:
    found = _COMMAND.search(name.replace("_", " "))
    return found[0].strip()[:120] if found else ""


def _fits(head: str, name: str) -> bool:
    return bool(re.fullmatch(r"\s{0,8}\d{1,2}\s{0,8}", head)) and bool(_command(name))


def read(text: str) -> Settings:
    if not re.fullmatch(r"\s{0,8}\d{1,2}\s{0,8}", text) or int(text) > MOST:
        raise ParseError("counts of ports: no number of them")
    return Settings(resources={COUNTED: int(text)})


def _named(facts: Settings, path: str) -> Settings:
    command = _command(path.rpartition("/")[2])
    kind = DOWN if _DOWN.search(command.rpartition("grep")[2]) else COUNTED
    return Settings(resources={kind + command: facts.resources[COUNTED]}) if COUNTED in facts.resources else facts


TOOL = Tool("counts of ports", "host.settings", _fits, read, quiet, named=_named)
