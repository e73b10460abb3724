"""Words of a port's state, rate and width wherever a line has them, with the adapter or interface that it names.

    mlx5_2  1: DOWN  2: Polling  10 Gb/sec (4X SDR)       State: Down | Physical state: Polling | Rate: 10
    5: LinkUp 5: LinkUp 2: Polling                        eth4 Speed: 25000Mb/s Link detected: no

Units    Gb/s
Shape    ports_told(text) -> Told, one a port in the order of the text; share of its lines that told something
Errors   none
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

from probes.core import lines_of
from probes.intake.tools.network._counter_sets import device

_SAYS = r"[\"']?\s{0,4}[:= ][\s.]{0,48}[\"']?"
_WORDS = re.compile(
    r"(?P<phys>(?<![\w.])\d: ?(?:Polling|LinkUp|Disabled|Sleep|PortConfigurationTraining|LinkErrorRecovery)\b"
    rf"|\bphys(?:ical)?[ _-]?(?:link[ _-]?)?state{_SAYS}(?:Polling|LinkUp|LINK_UP|Disabled|Sleep)\b"
    r"|(?<![\w:])(?:Polling|LinkUp|LINK_UP)\b)"
    r"|(?P<state>(?<![\w.])[1-5]: ?(?:NOP|DOWN|INIT|ARMED|ACTIVE)\b"
    rf"|\b(?:logical[ _-]?|port[ _-]?|link[ _-]?|log[ _-]?)?state{_SAYS}(?:PORT_)?(?:Down|Active|Init\w{{0,8}}|Armed)\b"
    r"|\bPORT_(?:DOWN|ACTIVE|INIT|ARMED)\b)"
    r"|(?P<rate>(?<![\w.])\d{1,4}(?:\.\d)? ?(?-i:Gb/s)(?:ec)?(?: ?\(\d{1,2}X(?: \w{2,6})?\))?"
    rf"|(?<!learning[ _-])\bRate(?:[_ ]?\(?(?:gbps|gbit|gb/s|gb)\)?)?{_SAYS}\d{{1,4}}(?:\.\d)?(?![\w.])(?! ?[KMk]B)"
    rf"|\bSpeed{_SAYS}\d{{1,7}} ?[MG]b/?p?s)"
    rf"|(?P<link>\bLink detected{_SAYS}(?:yes|no)\b|\bNO-CARRIER\b)", re.I
)  # fmt: skip
_BESIDE = re.compile(  # what tools tell of a port besides
    r"\s{0,24}(?:link[ _]layer|LMC|(?:base|sm) lid|CA type|Number of ports|Firmware|Hardware|[\w ]{0,16}GUID"
    r"|Capability|default gid|active_mtu|max_mtu|CA '|hca_id|Infiniband device"
    r"|[^\n]{0,60}\bmlx\d_core |[^\n]{0,300}\bcurr(?:ent)? state )", re.I
)  # fmt: skip
_BARE = re.compile(
    r"(?<![\w.,_])(DOWN|UP|Down|down|[Uu]p(?=[\s,;|]{0,8}(?:\d|$))|ACTIVE|Active|INIT|Init|ARMED|Armed)(?![\w.-])"
)
_RATE = re.compile(r"(\d{1,7}(?:\.\d)?) ?([MG]?)")
_WIDTH = re.compile(r"\((\d{1,2})X(?: (\w{2,6}))?\)")


@dataclass(slots=True)
class Told:
    kind: str = ""  # hca, netdev; "" where nothing names the port
    name: str = ""
    port: int | None = None
    values: dict[str, object] = field(default_factory=dict)


QUICK = (
    "linkup",
    "polling",
    "active",
    "down",
    "init",
    "armed",
    "gb/s",
    "speed:",
    "speed=",
    "rate:",
    "no-carrier",
    "link detected",
    " up",
)


@functools.lru_cache(4)  # two readers look at the same text
def ports_told(text: str) -> tuple[list[Told], float]:
    found: list[Told] = []
    here: Told | None = None
    lines = used = 0
    for line in lines_of(text, 1000):
        if not line.strip() or line.lstrip().startswith("#") or _BESIDE.match(line):
            continue
        lines += 1
        named = _device(line)
        if named is not None:
            here = Told(*named)
            same = next((one for one in found if (one.kind, one.name, one.port) == named), None)
            here = same or here
            if same is None:
                found.append(here)
        words = list(_WORDS.finditer(line))[:256]
        bare = list(_BARE.finditer(line)) if named is not None and not any(one["state"] for one in words) else []
        used += bool(words or bare) or (named is not None and len(line) < 40)
        for one in bare[:1]:
            if here is not None and here.kind == "netdev":
                here.values.setdefault("up", one[1].lower() in ("up", "active"))
            elif here is not None:
                here.values.setdefault("state", one[1])
        for one in words:
            key = one.lastgroup or ""
            if here is None or (key in here.values and not here.name):
                here = Told()
                found.append(here)
            _take(here, key, one[0])
    return [one for one in found if one.values][:4096], used / lines if lines else 0.0


def _device(line: str) -> tuple[str, str, int | None] | None:
    port = re.search(r"\bports?[ /:=](\d{1,3})\b", line[:300], re.I)
    for word in re.findall(r"[^\s,;|()\[\]{}\"'<>=]{2,120}", line[:300])[:16]:
        for part in (word, *word.split("/")) if "/" in word else (word,):
            if (found := device(part.rstrip(":"))) and found[0] in ("hca", "netdev"):
                return found[0], found[1], found[2] or (int(port[1]) if port else None)
    return None


def _take(here: Told, key: str, word: str) -> None:
    value = re.split(r"[:=]\s{0,12}|\s(?=\S{1,30}$)", word)[-1].strip("\"' ")
    if key == "rate":
        if (size := _RATE.search(word)) is not None:
            gbps = float(size[1]) / (1000 if size[2] == "M" or float(size[1]) > 2000 else 1)
            here.values.setdefault("rate_gbps", gbps)
        if width := _WIDTH.search(word):
            here.values.setdefault("width", int(width[1]))
            here.values.setdefault("speed", width[2] or None)
        here.values.setdefault("rate", True)
    elif key == "link":
        here.values.setdefault("up", value.lower() == "yes")
        here.values.setdefault("link", True)
    else:
        here.values.setdefault("phys_state" if key == "phys" else "state", value.removeprefix("PORT_"))
        here.values.setdefault(key, True)
