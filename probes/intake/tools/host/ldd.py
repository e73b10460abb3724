"""ldd and LD_DEBUG=libs: libraries that a program needs and the loader does not find.

Source   ldd(1): `name => not found`; ld.so(8): "cannot open shared object file", "symbol lookup error"
Shape    facts host.libraries
Errors   ParseError when no line is of ldd
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import normpath

from probes.core import Finding, clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

# What training on GPUs loads; a tool's own libraries stop no job.
OF_TRAINING = re.compile(r"lib(?:nccl|cuda|cudart|cudnn|cublas|cufft|nvrtc|nvidia|torch|c10|ibverbs|rdmacm|mlx5|fabric"
    r"|mpi|gdrapi|rccl|amdhip|hsa)")  # fmt: skip
_ROW = re.compile(r"^\s{1,8}(\S{1,120}) => (not found|/\S{1,300})(?: \(0x[0-9a-f]{4,16}\))?\s{0,4}$", re.M)


@dataclass(frozen=True, slots=True)
class Libraries:
    """Names that were not found; `seen`: how many were looked for. `places`: where those of training lie."""

    missing: tuple[str, ...]
    seen: int
    places: dict[str, str] = field(default_factory=dict)


def _fits(head: str, name: str) -> bool:
    return bool(_ROW.search(head[:16384]))


def read(text: str) -> Libraries:
    rows = _ROW.findall(text[:1_048_576])
    if not rows:
        raise refuse("ldd", text)
    places = {clean(name): clean(normpath(path)) for name, path in rows if OF_TRAINING.match(name) and path[0] == "/"}
    missing = dict.fromkeys(clean(name) for name, where in rows if where == "not found")
    return Libraries(tuple(missing)[:100], len(rows), dict(list(places.items())[:100]))


def _findings(facts: Libraries) -> Iterable[Finding]:
    missing = [name for name in facts.missing if OF_TRAINING.match(name)]
    if missing:
        yield Finding("host.library_missing", "bad", f"the loader does not find {', '.join(missing[:4])}")


TOOL = Tool("ldd", "host.libraries", _fits, read, _findings)
