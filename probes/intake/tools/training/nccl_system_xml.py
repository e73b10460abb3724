"""A file of NCCL_TOPO_FILE or NCCL_TOPO_DUMP_FILE: the machine as NCCL is told that it is, or as it has found it.

Source   NCCL graph/xml.cc and topo.cc, as in _nccl_xml
Units    none
Shape    facts nccl.system
Errors   ParseError where no <system> is in it
"""

from __future__ import annotations

from probes.catalog.nccl.xml import System, is_system, system
from probes.core import Finding
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse


def read(text: str) -> System:
    try:
        return system(text)
    except ValueError:
        raise refuse("a system as NCCL writes it", text) from None


def quiet(facts: System) -> tuple[Finding, ...]:
    """It is right or wrong only for a machine."""
    return ()


TOOL = Tool("NCCL topology", "nccl.system", lambda head, name: is_system(head), read, quiet)
