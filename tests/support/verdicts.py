"""Evidence put into a running Golden15 by a process of its own, as a worker would."""

from __future__ import annotations

from tests.support.people import manage
from tests.support.server import Golden15

STOPPED_RANK = '[*stopped_rank("nowhere-2"), read("nowhere-1", "ib.ports", "h100_five_bad_ports")]'
BAD_PORTS = '[read("nowhere-1", "ib.ports", "h100_five_bad_ports")]'


def given(server: Golden15, address: str, readings: str) -> None:
    """Stores `readings`, an expression in the words of tests.support.evidence, in the incident at this address."""
    code = f"""
from incidents.models import Incident
from tests.support.evidence import mapped, read, stopped_rank, store
store(Incident.objects.get(pk={int(address.rpartition("/")[2])}), {readings})
"""
    manage(server, "shell", "-v", "0", "-c", code)
