"""What RDMA adapters have in use and may have at most: `rdma resource show` in its forms, `ibv_devinfo -v`.

Source   rdma-resource(8) of iproute2: the summary `0: mlx5_0: pd 4 cq 9 qp 12 ...`, in newer releases with limits
         (`qp 12/4096`, as JSON `"qp-max"`), and one line or object for each queue pair; ibv_devinfo(1)
Shape    {"mlx5_0 qp": in use, "mlx5_0 max_qp": limit}, also of cq, mr, pd and what else the summary counts
Errors   none: {} where the text tells nothing of it; ValueError from `in_json` on what is no JSON
"""

from __future__ import annotations

import json
import re
from collections import Counter

from probes.core import clean

WHAT = ("qp", "cq", "mr", "pd")
FULL = 0.95  # of the adapter's queue pairs; judgement: some are reserved
_COUNT = r"(?:pd|cq|qp|cm_id|mr|ctx|srq) \d{1,10}(?:/\d{1,10})?"
SUMMARY = re.compile(rf"^\d{{1,4}}: ([\w.-]{{1,60}}): ((?:{_COUNT} ?){{1,10}})", re.M)
PAIR = re.compile(r"^link ([\w.-]{1,60})(?:/\d{1,3}|/-)? lqpn \d{1,10} ", re.M)
MOST = re.compile(
    r"^\s{0,16}(?:hca_id:\s{1,8}(?P<hca>\S{1,64})|max_(?P<what>qp|cq|mr|pd):\s{1,16}(?P<most>\d{1,12}))\s*$", re.M
)


def in_use(text: str) -> dict[str, int]:
    """The summary as text; of lines of single queue pairs their count."""
    found: dict[str, int] = {}
    for hca, rest in SUMMARY.findall(text):
        words = rest.split()
        for key, value in zip(words[::2], words[1::2], strict=False):
            used, _, most = value.partition("/")
            found[f"{clean(hca)} {key}"] = int(used)
            if most:
                found[f"{clean(hca)} max_{key}"] = int(most)
    return found | {f"{clean(name)} qp": used for name, used in Counter(PAIR.findall(text)).items()}


def in_json(text: str) -> dict[str, int]:
    """`rdma -j resource show`, and with `qp` one object for each."""
    rows = [row for row in json.loads(text)[:200_000] if isinstance(row, dict) and "ifname" in row]
    found: dict[str, int] = {}
    for row in rows:
        hca = clean(str(row["ifname"]))[:64]
        for key in WHAT:
            for name, value in ((key, row.get(key)), (f"max_{key}", row.get(f"{key}-max"))):
                if isinstance(value, int):
                    found[f"{hca} {name}"] = value
    pairs = Counter(clean(str(row["ifname"]))[:64] for row in rows if "lqpn" in row)
    return found | {f"{hca} qp": count for hca, count in pairs.items()}


def at_most(text: str) -> dict[str, int]:
    """`max_qp` and its like below each adapter; "" is the adapter where none is named above."""
    found: dict[str, int] = {}
    hca = ""
    for one in MOST.finditer(text[:4_194_304]):
        if one["hca"]:
            hca = clean(one["hca"])
        else:
            found[f"{hca} max_{one['what']}"] = int(one["most"])
    return found
