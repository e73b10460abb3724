"""What ports carried and which errors rose between the two looks of ib.ports, on the evidence page."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from incidents.models import Incident, Node, Reading, SuiteRun
from incidents.queries.port_rates import Way, port_rates
from probes.catalog.ib_ports import parse
from probes.core import facts_as_json
from tests.support.fleets import main, person

# 400 Gb/s are 12.5e9 words of 4 octets a second. Two seconds pass by the node's own clock.
NDR = 12_500_000_000
BEFORE = {"port_xmit_data": 10**15, "port_rcv_data": 10**15, "symbol_error": 9, "port_rcv_errors": 4}


def facts(later: dict[str, int] | None = None, hw: dict[str, int] | None = None) -> Any:
    text = "==> /sys/class/infiniband/mlx5_3/ports/1/rate <==\n400 Gb/sec (4X NDR)\n"
    text += "".join(f"==> /sys/class/infiniband/mlx5_3/ports/1/counters/{n} <==\n{v}\n" for n, v in BEFORE.items())
    text += "==> /sys/class/infiniband/mlx5_3/ports/1/hw_counters/out_of_buffer <==\n70\n"
    text += "==> golden15/clock mlx5_3/1 <==\n1764465100.0 500.0\n"
    if later is not None:
        again = {
            "at": 1764465999.0,
            "mono": 502.0,
            "counters": {**BEFORE, **later},
            "hw_counters": hw or {"out_of_buffer": 70},
        }
        text += f"==> golden15/again mlx5_3/1 <==\n{json.dumps(again)}\n"
    return facts_as_json(parse(text))


def test_what_a_port_carries_is_told_beside_its_rate_and_errors_per_second() -> None:
    later = {"port_xmit_data": 10**15 + NDR, "port_rcv_data": 10**15 + 4 * NDR // 10, "port_rcv_errors": 9}
    (row,) = port_rates(Reading(probe="ib.ports", facts=facts(later, {"out_of_buffer": 7070})))
    assert (row.port, row.rate_gbps) == ("mlx5_3/1", 400.0)
    assert (row.sends, row.receives) == (Way(200.0, 50.0), Way(80.0, 20.0))
    assert row.errors == "out_of_buffer 3,500/s, port_rcv_errors 2.50/s" and row.unknown == ""


def test_what_cannot_be_compared_is_not_known_and_no_zero() -> None:
    cleared = port_rates(Reading(probe="ib.ports", facts=facts({"symbol_error": 0, "port_rcv_errors": 65_535})))[0]
    assert cleared.sends == Way(None, None) and cleared.errors == ""
    assert cleared.unknown == "port_rcv_errors saturated, symbol_error reset"


def test_one_look_and_other_readings_have_no_rates() -> None:
    assert port_rates(Reading(probe="ib.ports", facts=facts())) == ()
    assert port_rates(Reading(probe="ib.ports", facts={"of": "another form"})) == ()
    assert port_rates(Reading(probe="host.load", facts=facts({}))) == ()


@pytest.mark.django_db
def test_the_page_of_a_nodes_ports_shows_their_rates(client: Client) -> None:
    client.force_login(person("ada"))
    incident = Incident.objects.create(fleet=main(), title="x", t0=timezone.now())
    run = SuiteRun.objects.create(
        fleet=main(), suite="capture", incident=incident, started_at=incident.t0, node_count=1
    )
    node, _ = Node.objects.get_or_create(fleet=main(), name="gpu-7", defaults={"changed_at": timezone.now()})
    more = {"out": zlib.compress(b""), "sha256": "0" * 64, "took_s": 0.1, "recorded_at": timezone.now()}
    told = {"run": run, "probe": "ib.ports", "outcome": "ok", "node": node, **more}
    moving = Reading.objects.create(facts=facts({"port_xmit_data": 10**15 + NDR, "port_rcv_errors": 8}), **told)
    page = client.get(f"/incidents/{incident.pk}/evidence/{moving.pk}").content.decode()
    assert "Table of ports&#x27; rates" in page or "Table of ports' rates" in page
    assert "200.0 (50 %)" in page and "0.0 (0 %)" in page and "port_rcv_errors 2.00/s" in page
    Reading.objects.filter(pk=moving.pk).update(facts=facts())
    assert "Errors that rose" not in client.get(f"/incidents/{incident.pk}/evidence/{moving.pk}").content.decode()
