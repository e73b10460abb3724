"""Which address a name has: /etc/hosts, getent, nslookup, dig, host, and what tools say of names that have none.

Source   hosts(5), getent(1), the tools of BIND 9 and busybox, getaddrinfo(3), curl(1)
Shape    Settings.names: (name, address); the address is "" where the name has none
Errors   ParseError where no name is told
"""

from __future__ import annotations

import re

from probes.catalog.network.net_facts import Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

_IP = r"(?P<at>\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})"
_NAME = r"(?P<name>[A-Za-z0-9](?:[\w.-]{0,120}\w)?)"
_HOSTS = re.compile(
    rf"{_IP}[ \t]{{1,40}}(?:(?:STREAM|DGRAM|RAW)[ \t]{{0,10}})?"
    rf"(?P<names>[A-Za-z][\w.-]{{0,120}}(?:[ \t]{{1,20}}[\w.-]{{1,120}}){{0,20}})\s{{0,8}}(?:#.{{0,200}})?$"
)
_ANSWERS = (
    re.compile(rf"{_NAME} has (?:IPv6 )?address {_IP}"),
    re.compile(rf"{_NAME}\.[ \t]{{1,60}}\d{{1,9}}[ \t]{{1,20}}IN[ \t]{{1,20}}A{{1,4}}[ \t]{{1,20}}{_IP}"),
)
_ASKED = re.compile(r"Name:[ \t]{1,20}([A-Za-z0-9][\w.-]{0,120})")
_ADDRESS = re.compile(rf"Address(?: \d{{1,2}})?:[ \t]{{1,20}}{_IP}(?:[# ]|$)")
_NONE = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\*\* server can't find {_NAME}\.?: (?:NXDOMAIN|SERVFAIL|REFUSED)",
        rf"nslookup: can't resolve '{_NAME}'",
        rf"Host {_NAME} not found",
        rf"(?:ping|ssh|nc|getent|telnet|traceroute)6?: (?:connect to host |getaddrinfo for host \"|cannot resolve )?"
        rf"\"?{_NAME}\"?:? .{{0,40}}(?:Name or service not known|Temporary failure in name|No address associated)",
        rf"(?:ping|ssh|nc): {_NAME}: (?:Name or service not known|Temporary failure in name|No address associated)",
        rf"curl: \(6\) Could not resolve host: {_NAME}",
    )
)
_QUESTION = re.compile(r";([A-Za-z0-9][\w.-]{0,120}?)\.[ \t]{1,60}IN[ \t]{1,20}A")
_SYSTEM = re.compile(r"(?:ip6-|localhost|broadcasthost|kubernetes\.docker)")


def fits(head: str, name: str) -> bool:
    if " NCCL " in head or "[rank" in head or "Traceback (" in head:
        return False
    lines = [line for line in lines_of(head[:16384], 400) if line.strip() and not line.startswith(("#", ";"))]
    rows = sum(bool(_HOSTS.match(line)) for line in lines)
    if rows * 3 > len(lines) * 2 and (re.search(r"hosts|getent", name) or "localhost" in head):
        return True
    if "->>HEADER<<-" in head or ("Name:" in head and "Address" in head and any(_ASKED.match(line) for line in lines)):
        return True
    return any(pattern.match(line) for line in lines for pattern in (*_ANSWERS, *_NONE))


def read(text: str) -> Settings:
    found: list[tuple[str, str]] = []
    asked = ""
    refused = "status: NXDOMAIN" in text or "no servers could be reached" in text
    for line in lines_of(text, 400):
        if row := _HOSTS.match(line):
            names = [one for one in row["names"].split() if not _SYSTEM.match(one)]
            found += [(clean(one), row["at"]) for one in names[:20]]
        elif told := next((hit for pattern in _ANSWERS if (hit := pattern.match(line))), None):
            found.append((clean(told["name"]), told["at"]))
        elif none := next((hit for pattern in _NONE if (hit := pattern.match(line))), None):
            found.append((clean(none["name"]), ""))
        elif named := _ASKED.match(line):
            asked = named[1].rstrip(".")
        elif asked and (address := _ADDRESS.match(line)):
            found.append((clean(asked), address["at"]))
        elif refused and (question := _QUESTION.match(line)):
            found.append((clean(question[1]), ""))
    if not found:
        raise refuse("names and their addresses", text)
    return Settings(names=tuple(dict.fromkeys(found))[:10_000])


TOOL = Tool("names", "host.settings", fits, read, quiet, host_in)
