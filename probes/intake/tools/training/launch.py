"""With which command each node started its ranks: torchrun, torch.distributed.run and launch, accelerate, deepspeed.

Read from commands that people typed, from scripts and from tables of processes. Only what nodes must agree on, or must
not share, is kept; the text before the command names the node where it is a prompt.

Source   torch/distributed/run.py; accelerate launch --help; options have either - or _ between their words
Shape    Settings.launches
Errors   ParseError where no such command is in it
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.network.net_facts import Launch, Settings
from probes.core import clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

KEPT = {
    "rdzv_id": "rdzv_id", "rdzv_endpoint": "rdzv_endpoint", "rdzv_backend": "rdzv_backend", "nnodes": "nnodes",
    "num_machines": "nnodes", "node_rank": "node_rank", "machine_rank": "node_rank", "master_addr": "master_addr",
    "main_process_ip": "master_addr", "master_port": "master_port", "main_process_port": "master_port",
}  # fmt: skip
PROGRAMS = re.compile(r"(?:\b|/)(?:torchrun|torch\.distributed\.(?:run|launch)|accelerate launch)(?=\s|[\"'\],])")
_OPTION = re.compile(r"(?:^|\s)--([a-z][a-z_-]{3,24})(?:=|\s{1,4})['\"]?([^\s'\"-][^\s'\"]{0,200})")
_POD = re.compile(r"(?:Name:|  name:)\s{1,24}([a-z][\w.-]{1,80})\s{0,4}$")  # kubectl describe, a pod's metadata
_PROMPT = re.compile(r"\s{0,4}(?:\[?[\w.-]{1,32}@)?([A-Za-z][\w.-]{0,62})(?::[^#$\n]{0,80}| [^#$\n]{0,80}\])?[$#] ")


def fits(head: str, name: str) -> bool:
    """The commands and little else: a log that begins with its command stays one."""
    lines = sum(bool(line.strip()) for line in lines_of(_joined(head[:16384]), 4000))
    told = sum(_told(line) is not None for line in _commands(head[:16384]))
    return told > 0 and (told * 4 >= lines or any(_POD.match(line) for line in lines_of(head[:4096])))


def tells(head: str) -> bool:
    """Whether such a command is anywhere in it, as in a table of processes."""
    return any(_told(line) for line in _commands(head))


def read(text: str) -> Settings:
    found: list[Launch] = []
    pod = ""
    for line in lines_of(_joined(text[:4_194_304]), 4000):
        if named := _POD.match(line):
            pod = clean(named[1])
        elif PROGRAMS.search(line) and (told := _told(line)):
            found.append(replace(told, where=told.where or pod))
    if not found:
        raise refuse("a command that starts ranks", text)
    return Settings(launches=tuple(dict.fromkeys(found))[:4096])


def _commands(text: str) -> list[str]:
    """Lines, with those that end in a backslash as one with the next."""
    return [line for line in lines_of(_joined(text), 4000) if PROGRAMS.search(line)]


def _joined(text: str) -> str:
    """Commands that stand in several lines as one: after a backslash, or an option a line as pods list them."""
    text = re.sub(r"\\\n\s{0,40}", " ", text)
    return re.sub(r"\n[ \t]{1,40}(?:- )?['\"]?(?=--[a-z])", " ", text)


def _told(line: str) -> Launch | None:
    at = PROGRAMS.search(line)
    if at is None or line.lstrip().startswith("#") or "Traceback" in line:
        return None
    options: dict[str, str] = {}
    for name, value in _OPTION.findall(line[at.end() :]):
        key = KEPT.get(name.replace("-", "_"), "")
        if key and "$" not in value and "<" not in value:
            options.setdefault(key, clean(value)[:120])
    prompt = _PROMPT.match(line)
    return Launch(clean(prompt[1]) if prompt else "", tuple(sorted(options.items()))) if options else None


TOOL = Tool("launch", "host.settings", fits, read, quiet, host_in, log=True)
