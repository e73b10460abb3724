"""A file of NCCL_GRAPH_FILE or NCCL_GRAPH_DUMP_FILE: the rings and trees that NCCL is told to build, or has built.

Source   NCCL graph/search.cc, as in _nccl_xml
Units    GB/s
Shape    facts nccl.graphs
Errors   ParseError where no <graph> is in it
"""

from __future__ import annotations

from probes.catalog.nccl.xml import Graphs, graphs, is_graphs
from probes.core import Finding
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse


def read(text: str) -> Graphs:
    try:
        return graphs(text)
    except ValueError:
        raise refuse("graphs as NCCL writes them", text) from None


def quiet(facts: Graphs) -> tuple[Finding, ...]:
    """A graph is right or wrong only for a machine."""
    return ()


TOOL = Tool("NCCL graph", "nccl.graphs", lambda head, name: is_graphs(head), read, quiet)
