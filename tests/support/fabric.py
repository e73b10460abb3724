"""A whole fabric by script: each node's ports from a recorded H100 node with GUIDs of its own, and a sweep to match.

The recorded node (tests/fixtures/ib.ports/h100_connectx7.out) has eight InfiniBand adapters and an Ethernet bond.
Rail r of node n is cabled to port n of leaf r. What ibnetdiscover prints is written as it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from probes import catalog
from probes.core import Capture, Outcome, Reading, interpret
from tests.support.people import manage
from tests.support.server import BASE, Golden15

HCAS = ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9")
RECORDED = (BASE / "tests" / "fixtures" / "ib.ports" / "h100_connectx7.out").read_text()
DOWN = {"ports/1/state": "1: DOWN", "ports/1/phys_state": "2: Polling"}
SLOW = {"ports/1/rate": "200 Gb/sec (4X HDR)"}
Changes = Mapping[str, Mapping[str, str]]  # adapter -> file below it -> what stands in it


Place = tuple[int, int]  # node, rail


def name(number: int) -> str:
    return f"gpu-{number:03d}"


def guid(number: int, rail: int) -> int:
    return 0xB83FD20300000000 + number * 16 + rail


def leaf_guid(rail: int) -> int:
    return 0xFC6A1C0300000000 + rail


def ports_text(number: int, changes: Changes | None = None, gone: Iterable[str] = ()) -> str:
    """What ib.ports brings from node `number`, with these files changed and these adapters gone."""
    blocks = []
    for block in re.split(r"(?=^==> )", RECORDED, flags=re.MULTILINE):
        place = re.match(r"==> (?:\S*/)?infiniband/(\w+)/(\S+) <==", block)
        if place is None or place[1] in gone:
            continue
        text = (changes or {}).get(place[1], {}).get(place[2])
        blocks.append(f"{block.splitlines()[0]}\n{text}\n\n" if text is not None else block.rstrip("\n") + "\n\n")
    for rail, hca in enumerate(HCAS):
        if hca not in gone:
            digits = f"{guid(number, rail):016x}"
            colons = ":".join(re.findall("....", digits))
            blocks.append(f"==> /sys/class/infiniband/{hca}/node_guid <==\n{colons}\n\n")
            blocks.append(
                f"==> /sys/class/infiniband/{hca}/device/uevent <==\nPCI_SLOT_NAME=0000:{0x18 + rail * 16:02x}:00.0\n\n"
            )
    return "".join(blocks)


def sweep_text(numbers: Iterable[int], gone: Iterable[Place] = (), moved: Mapping[Place, int] | None = None) -> str:
    """What ibnetdiscover prints of these nodes: `gone` ones have no link, `moved` ones end in another port."""
    numbers, gone, moved = list(numbers), set(gone), moved or {}
    first = f"{guid(numbers[0], 0):016x}"
    out = [
        f"#\n# Topology file: generated on Sun Nov 29 14:15:31 2026\n#\n# Initiated from node {first} port {first}\n"
    ]
    hcas = []
    for rail, hca in enumerate(HCAS):
        switch, desc = f"{leaf_guid(rail):016x}", f'"MF0;leaf-{rail:02d}:MQM9700/U1"'
        out.append(f"\nvendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x{switch}\nswitchguid=0x{switch}({switch})\n")
        out.append(f'Switch\t65 "S-{switch}"\t\t# {desc} enhanced port 0 lid {rail + 1} lmc 0\n')
        for n in numbers:
            if (n, rail) in gone:
                continue
            one, port, who = f"{guid(n, rail):016x}", moved.get((n, rail), n), f'"{name(n)} {hca}"'
            lid = 100 + n * 8 + rail
            out.append(f'[{port}]\t"H-{one}"[1]({one}) \t\t# {who} lid {lid} 4xNDR\n')
            hcas.append(f"\nvendid=0x2c9\ndevid=0x1021\nsysimgguid=0x{one}\ncaguid=0x{one}\n")
            hcas.append(f'Ca\t1 "H-{one}"\t\t# {who}\n')
            hcas.append(f'[1]({one}) \t"S-{switch}"[{port}]\t\t# lid {lid} lmc 0 {desc} lid {rail + 1} 4xNDR\n')
    return "".join(out + hcas)


def read_text(node: str, probe: str, text: str) -> Reading:
    return interpret(catalog.load()[probe], Capture(node, probe, "ok", text.encode()))


def ports(number: int, changes: Changes | None = None, gone: Iterable[str] = ()) -> Reading:
    """A node's answer to ib.ports."""
    return read_text(name(number), "ib.ports", ports_text(number, changes, gone))


def silent(number: int, outcome: Outcome = "timeout", why: str = "no answer within 5 s") -> Reading:
    return Reading(Capture(name(number), "ib.ports", outcome, why=why))


def sweep(
    number: int, numbers: Iterable[int], gone: Iterable[Place] = (), moved: Mapping[Place, int] | None = None
) -> Reading:
    """Node `number`'s answer to ib.fabric."""
    return read_text(name(number), "ib.fabric", sweep_text(numbers, gone, moved))


def given(server: Golden15, address: str, readings: str) -> None:
    """Stores `readings`, an expression in the words of this module, in the incident of a running Golden15."""
    number = re.search(r"/incidents/(\d+)", address)
    assert number
    code = f"""
from incidents.models import Incident
from tests.support.evidence import store
from tests.support.fabric import *
store(Incident.objects.get(pk={number[1]}), {readings}, suite="fabric")
"""
    manage(server, "shell", "-v", "0", "-c", code)
