"""The environment as `env` prints it, or nccl.conf: how many threads a program may start, and NCCL's settings.

nccl.conf has NAME=value lines and comments (NCCL's manual, Environment Variables: /etc/nccl.conf and ~/.nccl.conf).

The environment of a rank, with RANK in it, is read as one (see _process_extract).
"""

from __future__ import annotations

import re

from probes.catalog._net_facts import Settings
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.limits import quiet

NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY",
    "OMP_PROC_BIND", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX")  # fmt: skip
_LINE = re.compile(r"^(?:export |declare -x )?([A-Z][A-Z0-9_]{2,60})=\"?([^\n\"]{0,200})\"?$", re.M)


def fits(head: str, name: str) -> bool:
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("#")]
    pairs = _LINE.findall(head)
    return len(pairs) * 2 > len(lines) and any(key in NAMES or key == "PATH" or _ours(key) for key, _ in pairs)


def _ours(key: str) -> bool:
    return key.startswith(("NCCL_", "RCCL_", "GLOO_"))


def read(text: str) -> Settings:
    pairs = dict(_LINE.findall(text[:262144]))
    if not pairs:
        raise refuse("lines NAME=value", text)
    return Settings(env={key: pairs[key] for key in pairs if key in NAMES or _ours(key)} | {"": "told"})


TOOL = Tool("thread settings", "host.settings", fits, read, quiet, host_in)
