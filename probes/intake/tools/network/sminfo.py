"""sminfo(8): the subnet manager that a node sees; and `rdma resource show`, how many queue pairs are in use."""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.catalog.network.rdma_resources import SUMMARY, in_use
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_SM = re.compile(
    r"^sminfo: sm lid (\d{1,6}) sm guid 0x[0-9a-f]{1,16}, activity count \d{1,12}"
    r" priority \d{1,3} state \d{1,2} (\w{3,30})",
    re.M,
)
_NONE = re.compile(r"(?:ibpanic|sminfo): [^\n]{0,80}(?:failed|iberror|can't|could not)[^\n]{0,120}", re.I)


def fits(head: str, name: str) -> bool:
    return bool(_SM.search(head) or SUMMARY.search(head) or ("sminfo" in head[:400] and _NONE.search(head[:2000])))


def read(text: str) -> Settings:
    """`sm_state` is "none" where the tool could not reach any."""
    resources = in_use(text)
    if found := _SM.search(text):
        return Settings(sm_lid=int(found[1]), sm_state=clean(found[2]), resources=resources)
    if _NONE.search(text[:4000]):
        return Settings(sm_state="none", resources=resources)
    if not resources:
        raise refuse("a line 'sminfo: sm lid ...'", text)
    return Settings(resources=resources)


TOOL = Tool("sminfo", "host.settings", fits, read, quiet, host_in)
