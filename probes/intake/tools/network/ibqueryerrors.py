"""ibqueryerrors(8), one look or several, read by the parser of ib.fabric_errors."""

from __future__ import annotations

from probes.catalog.network.ib_queryerrors import SUMMARY, counted, is_output
from probes.catalog.network.net_facts import Counters
from probes.intake.tools import Tool
from probes.intake.tools._text import looks, refuse
from probes.intake.tools.network.perfquery import quiet


def fits(head: str, name: str) -> bool:
    return is_output(head)


def read(text: str) -> Counters:
    sets = [one for at, body in looks(text) for one in counted(body, at)]
    if not sets and SUMMARY not in text:
        raise refuse("rows such as 'Errors for \"leaf-01\"'", text)
    return Counters(tuple(sets[:100_000]))


TOOL = Tool("ibqueryerrors", "ib.fabric_errors", fits, read, quiet)
