"""How many GPUs a node has, counted by a pipe: `nvidia-smi -L | wc -l`, `lspci -d 10de: | grep -c 3D`.

Source   nvidia-smi(1): -L prints a line a GPU; lspci(8)
Shape    facts of gpu.state: that many GPUs, of which nothing else is known; by the command, which is the part's name
Errors   ParseError when the numbers are not those of the commands
"""

from __future__ import annotations

import re
from dataclasses import replace

from probes.catalog.gpu.facts import Gpu, GpuState
from probes.core import ParseError
from probes.intake.tools import Tool

_COMMAND = re.compile(r"(?<![\w-])(lspci|nvidia-smi)(?![\w-])[^\n]{0,120}?(?:wc -l|grep -[A-Za-z]{0,4}c)")
_NUMBERS = re.compile(r"\s{0,8}(?:\d{1,3}\s{1,4}){0,3}\d{1,3}\s{0,8}")
MOST = 32  # GPUs of a node; more were lines of something else


def _fits(head: str, name: str) -> bool:
    return len(head) < 60 and bool(_NUMBERS.fullmatch(head)) and bool(_commands(name))


def _commands(name: str) -> list[str]:
    return [found[1] for found in _COMMAND.finditer(name.replace("_", " "))]


def read(text: str) -> GpuState:
    """The first number as the driver's, the second as the bus's: which is which only the commands tell."""
    numbers = [int(one) for one in text.split()[:4] if one.isascii() and one.isdigit() and len(one) < 4]
    if not numbers or max(numbers) > MOST:
        raise ParseError("counts of GPUs: no number of them")
    return _state(numbers[0], numbers[1] if len(numbers) > 1 else None)


def _state(listed: int, on_pci: int | None) -> GpuState:
    return GpuState(None, tuple(Gpu("", index) for index in range(listed)), on_pci=on_pci)


def _named(facts: GpuState, path: str) -> GpuState:
    commands = _commands(path.rpartition("/")[2])
    if not commands or commands[0] == "nvidia-smi":
        return facts if len(commands) > 1 else replace(facts, on_pci=None)
    listed = facts.on_pci if commands[1:2] == ["nvidia-smi"] else None
    return _state(listed or 0, len(facts.gpus))


TOOL = Tool("counts of GPUs", "gpu.state", _fits, read, named=_named)
