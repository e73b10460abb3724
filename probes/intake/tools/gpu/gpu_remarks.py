"""Lines that somebody retyped or cut short: a node, then what its driver, its kernel or a check said of a GPU.

    n14: Xid 79, gpu 0000:4e:00, fallen off bus         n14 kernel: Xid 149 (0000:1b:00) NETIR_LINK_EVT Fatal
    n14  fabricmanager failed, others active            n14: nvidia-nvswitch2 SXid 20034 Fatal, link 41

What stands as the kernel printed it, messages of the kernel read; an alert's words, alerts and checks of GPUs.

Source   words of the driver as in probes.catalog.kernel.gpu; conditions as in gpu_conditions
Shape    facts gpu.verdicts, of each node that is named
Errors   ParseError when no line tells so
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.core import ParseError, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._told_of import leading, node_in, placed
from probes.intake.tools.gpu import gpu_conditions
from probes.intake.tools.gpu.gpu_conditions import told
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings
from probes.intake.tools.host import kernel_messages

MOST, LOOKED_AT = 200, 65_536
LONGEST = 400  # characters of a line that a person writes
_XID = re.compile(
    r"(?<![A-Za-z])xids?(?: ?(?:error|code|no\.?|#|\([^)\n]{4,24}\)))?[ :=#]{1,3}\(?(\d{1,3})(?![\d:])", re.I
)
_SXID = re.compile(r"(?<![A-Za-z])sxids?[ :=#]{1,3}(?:\([^)\n]{4,24}\)[: ]{1,3})?(\d{4,6})(?!\d)", re.I)
_BUS = re.compile(r"(?<![\w:])(?:PCI:)?(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.0)?(?![\w:])", re.I)
_GPU = re.compile(r"(?<![A-Za-z])GPU[ _:=#-]{0,2}(\d{1,2})(?!\d|:[0-9a-f]{2}[:.]|[a-f]\w?:)", re.I)
_ABOUT = re.compile(
    r"xid|gpu|ecc|bit|remap|nv.?link|nv.?switch|fabric|pci|thermal|brake|slowdown|nvidia-smi|driver|gsp|bus|lnk|aer|p2p",
    re.I,
)
# Of another time, another matter, or not so.
_NOT_NOW = re.compile(
    r"\b(?:yesterday|last (?:week|month|night|year|job|run|mon|tue|wed|thu|fri)"
    r"|previous|earlier (?:job|run|today)|old|ago"
    r"|before the (?:job|run|start)|weeks?|months?|already|known|harmless|ignore[ds]?|debugging|RMA|was (?:fixed|reset)"
    r"|fixed|cleared|replaced|recovered|resolved|if|when|unless|should|could|maybe|check(?:ed)? (?:for|whether)|grep"
    r"|(?:no|0|zero|without|not|never|nor)(?: \w{1,12}){0,2} (?:s?xids?|gpu|ecc|nvlinks?|errors?)"
    r"|(?:s?xids?|errors?)(?: |: ?)(?:none|no|0)\b)\b"
    r"|\?\s{0,4}$",
    re.I,
)
_READ_ELSEWHERE = re.compile(r"Traceback|Error: |NCCL (?:INFO|WARN)|ProcessGroup|\[rank\d|^\s{0,4}File \"")
_OTHERS = re.compile(r"[,;(] {0,2}(?:but |and )?(?:(?:the |all )?(?:others?|rest)\b|[A-Za-z][\w.-]{0,30}: )", re.I)
_OF_GPU = re.compile(
    r"\s{0,8}(?:GPU ?#?\d{1,2}(?!\w|:[0-9a-f]{2}\b)|nvidia-smi\b|xid\b|(?:nvidia-)?fabric ?manager\b)", re.I
)
_ROW = re.compile(r"[\s|*-]{0,8}xid ?#?(\d{1,3})\b(?![^\n]{0,300}(?:[\da-f]{2}:[\da-f]{2}|\bGPU[ :#]?\d))", re.I)
LIST = 3  # judgement: one fault brings seldom more numbers, and who notes them tells where
_NON_FATAL = re.compile(r"non-?fatal", re.I)


def _said(line: str) -> Iterator[tuple[int, Verdict]]:
    """(where it begins, what the line tells)"""
    index = int(found[1]) if (found := _GPU.search(line)) else None
    for one in _SXID.finditer(line):
        if not _NON_FATAL.match(line[one.end() : one.end() + 14].lstrip(" ,:-")):
            fatal = "fatal" in line.lower()
            says = f"an NVSwitch had SXid {one[1]}"
            yield one.start(), Verdict("gpu.switch_told", "bad" if fatal else "warn", None, int(one[1]), says)
    for one in _XID.finditer(line):
        if 0 < int(one[1]) < 200:
            yield one.start(), Verdict("gpu.xid_written", "bad", index, int(one[1]), f"had Xid {one[1]}")
    if (condition := told(line)) is not None:
        start, code, how, says = condition
        yield start, Verdict(code, how, index, None, says)


def _lines(text: str) -> Iterator[tuple[str, Verdict]]:
    """(node, verdict). Without a node it counts where it begins with a GPU or names a bus: then it is of a tool's
    output or a log that lost its head."""
    listed = _list_of_numbers(text)
    for line in lines_of(text, LONGEST + 1):
        if (others := _OTHERS.search(line, 16)) is not None:  # what is said of them counts not for this one
            line = line[: others.start()]
        if len(line) > LONGEST or not _ABOUT.search(line) or _NOT_NOW.search(line) or _READ_ELSEWHERE.search(line):
            continue
        if kernel_messages.tells(line):
            continue
        for at, verdict in _said(line):
            node = leading(line, at) or node_in(line, at) or placed(line)
            if node or (verdict.code == "gpu.xid_written" and _BUS.search(line)):
                yield node, verdict
            elif _OF_GPU.match(line) and not (_ROW.match(line) and (listed or verdict.code != "gpu.xid_written")):
                yield node, verdict  # what an Xid without a place is called is no second sign


def _list_of_numbers(text: str) -> bool:
    """Whether it explains what Xids mean, one a line, rather than what happened: several, and none has a place."""
    rows = {row[1] for line in lines_of(text[:LOOKED_AT], LONGEST + 1) if (row := _ROW.match(line))}
    return len(rows) >= LIST


def fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] in "{[<" or gpu_conditions.TOOL.fits(head, name):
        return False
    return next(_lines(head[:LOOKED_AT]), None) is not None


def by_node(text: str) -> dict[str, Verdicts]:
    found: dict[str, dict[tuple[str, int | None], Verdict]] = {}
    for node, verdict in _lines(text[:1_048_576]):
        if len(found) < MOST:
            found.setdefault(node, {}).setdefault((verdict.code, verdict.n), verdict)
    if not found:
        raise ParseError("lines about GPUs: none that tells of a fault and its node")
    return {node: Verdicts("a line that somebody wrote", tuple(some.values())) for node, some in found.items()}


def read(text: str) -> Verdicts:
    return next(iter(by_node(text).values()))


TOOL = Tool("remarks on GPUs", "gpu.verdicts", fits, read, findings, beside=True, by_node=by_node)
