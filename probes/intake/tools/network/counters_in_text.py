"""Any text in which known counters of ports stand beside numbers, and that is the output of no tool that is read by
itself: notes of two reads, loops over sysfs, tables of hosts, expositions of exporters, what tail -n +1 prints.
"""

from __future__ import annotations

from dataclasses import replace

from probes.catalog.network.net_facts import Counters
from probes.intake.tools import Tool
from probes.intake.tools._text import MOST_LINES, host_in, mentions, refuse
from probes.intake.tools.network import ethtool_stats, ibqueryerrors, mlxlink, perfquery, rdma_statistic, sysfs_ports
from probes.intake.tools.network._counter_lines import Lines
from probes.intake.tools.network.perfquery import quiet

_QUICK = (
    "port_xmit", "port_rcv", "port_trans", "port_recei", "port_disc", "port_err", "_prio", "cnp", "out_of_seq",
    "seq_err", "ack_timeout", "xmitwait", "xmit_wait", "xmtwait", "symbol_err", "symbolerr", "link_down", "linkdowned",
    "adp_retrans", "discards_phy", "rnr_nak", "retrans_", "pfc_pri", "pfc_ena", "ecn_marked", "oos", "impaired_remote",
    "portrcv", "portxmit", "transmit_wait", "pause_ctrl", "global_pause", "carrier_", "_ber", " ber", "pfc3",
    "rcv_errors",
)  # fmt: skip
_OWN = (perfquery, ethtool_stats, rdma_statistic, sysfs_ports, ibqueryerrors, mlxlink)
LOOKED_AT = 16_384
SHARE = 4  # of its lines one of so many tells a counter at least: a log that quotes one is none; judgement


def fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] == "{" or not mentions(head, _QUICK):
        return False
    if any(own.fits(head, name) for own in _OWN):
        return False
    lines = Lines(head[:LOOKED_AT])
    looks = lines.read()
    enough = looks.count > 1 or (looks.count == 1 and lines.used == lines.lines)
    return enough and lines.used * SHARE >= lines.lines


def read(text: str) -> Counters:
    if text.count("\n") > MOST_LINES:
        text = "\n".join(text.split("\n")[:MOST_LINES])
    lines = Lines(text)
    sets = lines.read().sets(lines.interval)
    if not sets:
        raise refuse("names of counters beside numbers", text)
    return Counters(sets)


def named(facts: Counters, path: str) -> Counters:
    """The interface or adapter by the file's name, where the text tells none."""
    if any(one.name for one in facts.sets):
        return facts
    found = ethtool_stats.named(facts, path)
    return Counters(tuple(replace(one, kind="netdev") if one.name else one for one in found.sets)) if found else facts


TOOL = Tool("counters in text", "ib.counters", fits, read, quiet, host_in, named)
