"""Conditions of GPUs in the words of alerts, tickets of monitoring, checks before a job and reasons for a drain.

    [FIRING:1] GPUThermalThrottle (w-112 critical)          Prometheus Alertmanager, mail and chat
    Problem name: NVIDIA: GPU 5: uncorrectable ECC errors > 0    Zabbix
    Prolog hook output: trc-09: GPU 2 has pending row remaps     slurmd, slurmctld
    trc-09   drain   prolog: GPU2 row remap pending              sinfo, in any order of its columns

Source   templates of Alertmanager (default.tmpl), Zabbix 6 (macros of its default messages), sinfo(1). What people call
         conditions: names of public alert rules and of node health checks
Shape    facts gpu.verdicts, of each node that is named
Errors   ParseError when no such condition is in it
"""

from __future__ import annotations

import re

from probes.core import ParseError, Severity, lines_of
from probes.intake.hosts import may_be_lone
from probes.intake.names import is_host
from probes.intake.tools import Tool
from probes.intake.tools._told_of import keyed, node_in
from probes.intake.tools.cluster import slurm_nodes
from probes.intake.tools.gpu.gpu_verdicts import Verdict, Verdicts, findings

MOST, LOOKED_AT = 200, 65_536
# Who writes so: an alert, a check around jobs, a scheduler that took a node out.
_CONTEXT = re.compile(
    r"\[FIRING|\balertname\b|\bfiring\b|\[Triggered|\bProblem (?:started|name)|\b(?:prolog|epilog)\b"
    r"|\bREASON\b[^\n]{1,200}\bNODELIST|\bNODELIST\b[^\n]{1,200}\bREASON|\bReason=|\bdrain(?:ed|ing|\*)?\b"
    r"|\bhealth[ _-]?check|\bnhc\b|\bcordon", re.I,
)  # fmt: skip
_OVER = re.compile(r"\[RESOLVED|has been resolved|\bresolved\b|\brecovered\b|\bcleared\b|no longer|\[Recovered", re.I)
_NOT_SO = re.compile(
    r"\b(?:if|when|unless|should|passed|pass|ok|would|was fixed|replaced)\b"
    r"|\b(?:no|0) (?:uncorr|double|nv|row|ecc|dbe|gpu|pci|pending|thermal|error)"
    r"|(?:errors?|counts?|total|pending|fail\w{0,5}|occurred|violations?|slowdown)"
    r"[\"' ]{0,2}[:= ]{1,2}[\"' ]{0,2}(?:0|no|none|false|not active)\b",
    re.I,
)
# (words, code of the finding, how bad, ours); the first that fits counts. Letters between words may be missing, as in
# names of alerts: GpuRowRemapFailure.
_CONDITIONS: tuple[tuple[str, str, Severity, str], ...] = (
    (r"row[ _-]?re-?map\w{0,8}[ _-]{0,2}(?:has )?fail", "gpu.remap_failed", "bad",
     "could not remap a broken memory row"),
    (r"row[ _-]?re-?map\w{0,8}[ _-]{0,2}(?:is )?pending|pending row[ _-]?re-?map", "gpu.remap_pending", "bad",
     "waits for a reset to remap memory"),
    (r"uncorrect(?:able|ed)[ _-]?(?:volatile[ _-]?)?(?:ecc|memory|dram|sram)|double[ _-]?bit|\bDBEs?\b|ecc[ _-]uncorr"
     r"|ecc\.errors\.uncorrected", "gpu.ecc_uncorrected", "bad", "has uncorrectable memory errors"),
    (r"f[ae]ll(?:en)? off (?:the )?bus|off[ _-]the[ _-]bus|gpu[ _-]?(?:is[ _-]?)?lost|lost (?:a )?gpu",
     "gpu.lost", "bad", "is lost to the driver"),
    (r"thermal(?:ly)?[ _-]?(?:slowdown|throttl|violation)|power[ _-]?brake|hw[ _-]?slowdown|gpu[ _-]?overheat",
     "gpu.throttle_told", "bad", "is slowed down by its hardware"),
    (r"nv[ _-]?switch[^\n]{0,40}(?:(?<!non-)(?<!non)fatal|error|fail|down)"
     r"|fabric[ _-]?manager[^\n]{0,40}(?:not running|fail|inactive|down|dead)",
     "gpu.switch_told", "bad", "an NVSwitch or its manager failed"),
    (r"nv[ _-]?links?[^\n]{0,30}(?:down|inactive)", "gpu.nvlink_inactive", "bad", "has an NVLink that is down"),
    (r"nv[ _-]?links?[^\n]{0,30}(?:errors?|crc|replay|recovery)", "gpu.nvlink_errors", "bad",
     "has errors on its NVLinks"),
    (r"pci-?e[ _-]?(?:link[ _-]?)?(?:width|lanes?)[^\n]{0,40}(?:degrad|downgrad|reduced|x[1248]\b|expected)",
     "gpu.pcie_width_told", "bad", "runs on fewer PCIe lanes"),
    (r"LnkSta[^\n]{0,60}Width x[1248] \(downgraded\)", "gpu.pcie_width_told", "bad", "runs on fewer PCIe lanes"),
    (r"\bAER\b[^\n]{0,60}(?:correct(?:ed|able)|BadTLP|BadDLLP|RxErr|Rollover|storm)", "gpu.aer_counted", "warn",
     "has errors on its PCIe bus"),
    (r"\bp2p\b[^\n]{0,40}\b(?:CNS|GNS|TNS|NS)\b", "gpu.p2p_not_supported", "bad", "cannot reach its peers' memory"),
    (r"pci-?e[^\n]{0,30}(?:replay|degrad|downgrad|speed|gen)", "gpu.pcie_told", "warn", "has a degraded PCIe link"),
    (r"nvidia-smi[^\n]{0,30}(?:hang|hung|timed? ?out|not respon|no respon)|gsp[^\n]{0,20}(?:time ?out|hang|hung|rpc)"
     r"|driver[^\n]{0,20}(?:hang|hung|not respon)", "gpu.driver_no_answer", "bad", "does not answer"),
)  # fmt: skip
_COUNTED = (
    r"expected (?P<all>\d{1,2}) GPUs?[, ]{1,3}(?:but )?(?:only )?(?:found|got|see\w{0,2}|has) (?P<there>\d{1,2})"
    r"|(?:found|got|see\w{0,2}|count(?: is|:| mismatch:?)?) (?P<there2>\d{1,2})(?: GPUs?)?[, (]{1,3}(?:but )?"
    r"expect\w{0,3}:? (?P<all2>\d{1,2})"
    r"|gres/gpu count reported lower than configured \((?P<there4>\d{1,2}) < (?P<all4>\d{1,2})\)"
    r"|(?P<there3>\d{1,2}) ?(?:/|of|out of) ?(?P<all3>\d{1,2}) GPUs"
)
CONDITIONS = tuple(
    (re.compile(words, re.I), code, how, says)
    for words, code, how, says in (
        *_CONDITIONS,
        (_COUNTED, "gpu.not_visible", "bad", "is missing from those that were counted"),
    )
)
_GPU = re.compile(
    r"(?<![A-Za-z])GPU[ _:=#-]{0,3}\"?(\d{1,2})(?!\d|[a-f:]\w)|nvidia\.smi\[(\d{1,2}),|\bgpu = (\d{1,2})$", re.I
)
_NAMED = re.compile(r"(?:^|[\s\]])([A-Za-z][\w.-]{0,62}): |\b(?:on|node|host) ([A-Za-z][\w.-]{0,62}\w)\b")
_STAMP = re.compile(r"(?<!\d)(20\d\d)[-./]([01]\d)[-./]([0-3]\d)(?:[T ]([0-2]\d:[0-5]\d(?::[0-5]\d)?))?")
_ZABBIX = re.compile(r"started at (\d\d:\d\d:\d\d) on (20\d\d)\.(\d\d)\.(\d\d)")


def _told(line: str) -> re.Match[str] | None:
    if _OVER.search(line) or _NOT_SO.search(line):
        return None
    found = next((found for words, *_ in CONDITIONS if (found := words.search(line))), None)
    if found and found.groupdict() and not _fewer(found):
        return None
    return found


def told(line: str) -> tuple[int, str, Severity, str] | None:
    """(where it begins, code of the finding, how bad, our words), None where the line tells of no condition."""
    found = _told(line)
    if found is None:
        return None
    return found.start(), *next((code, how, says) for words, code, how, says in CONDITIONS if words.search(line))


def _fewer(found: re.Match[str]) -> bool:
    """Whether fewer GPUs were there than should be."""
    told = {name.rstrip("234"): int(number) for name, number in found.groupdict().items() if number}
    return told["there"] < told["all"]


def _fits(head: str, name: str) -> bool:
    head = head[:LOOKED_AT]
    if "NVRM:" in head or "Health Monitor Report" in head or _CONTEXT.search(head) is None:
        return False
    return any(_told(line) for line in lines_of(head, 2000))


def _when(line: str, before: str) -> str:
    if zabbix := _ZABBIX.search(before):
        return f"{zabbix[2]}-{zabbix[3]}-{zabbix[4]} {zabbix[1]}"
    found = _STAMP.search(line)
    return f"{found[1]}-{found[2]}-{found[3]} {found[4] or '00:00:00'}" if found else ""


def by_node(text: str) -> dict[str, Verdicts]:
    """Of the nodes that a row names; of the one of the whole alert where the line itself names none."""
    lines = list(lines_of(text[:1_048_576], 2000))
    alone = {node for line in lines if (node := keyed(line))}
    everywhere = alone.pop() if len(alone) == 1 else ""
    index = {next(filter(None, one.groups())) for line in lines if (one := _GPU.search(line.rstrip()))}
    gpu_of_all = int(index.pop()) if len(index) == 1 else None
    found: dict[str, dict[tuple[str, int | None], Verdict]] = {}
    head = ""
    for at, line in enumerate(lines):
        head = line if "NODELIST" in line else head
        if (condition := told(line)) is None:
            continue
        start, code, how, says = condition
        gpu_named = _GPU.search(line.rstrip()) if code != "gpu.not_visible" else None
        gpu = int(next(filter(None, gpu_named.groups()))) if gpu_named else gpu_of_all
        verdict = Verdict(code, how, gpu, None, says, _when(line, "\n".join(lines[max(0, at - 6) : at])))
        for node in _nodes(line, start, head) or [everywhere]:
            some = found.setdefault(node, {})
            if len(found) <= MOST and not any(one.code == code for one in some.values()):
                some[code, gpu] = verdict
    if not found:
        raise ParseError("alerts and reasons: none that tells of a GPU")
    return {node: Verdicts("an alert or a check", tuple(some.values())) for node, some in found.items() if some}


def _nodes(line: str, at: int, head: str) -> list[str]:
    if row := slurm_nodes.ROW.fullmatch(line.strip()):
        return slurm_nodes.nodes_in(row[4])
    if head.split()[:1] == ["NODELIST"] and line.split():
        return slurm_nodes.nodes_in(line.split()[0])
    if named := re.search(r"(?<!\S)NodeName=(\S{1,120})", line):
        return [named[1]]
    output = re.search(r"\boutput: ([A-Za-z][\w.-]{0,80}): ", line[:at])  # Prolog hook output: n7: ...
    bracketed = re.search(r"\[FIRING[^\]]{0,20}\][^\n(]{1,120}\(([A-Za-z][\w.-]{0,80})", line)
    for one in (output, bracketed):
        if one and is_host(one[1]) and any(c.isdigit() for c in one[1]):
            return [one[1]]
    if node := node_in(line, at):
        return [node]
    words = (one[1] or one[2] for one in _NAMED.finditer(line[:1000]))
    return next(([word] for word in words if may_be_lone(word.partition(".")[0])), [])


def read(text: str) -> Verdicts:
    return next(iter(by_node(text).values()))


TOOL = Tool("alerts and checks of GPUs", "gpu.verdicts", _fits, read, findings, log=True, by_node=by_node)
