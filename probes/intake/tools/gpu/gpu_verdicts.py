"""What DCGM says in words about GPUs: dcgmi health and dcgmi diag, as tables and as JSON.

Source   NVIDIA/DCGM, dcgm_errors.h (its sentences; "throttling" became "clocks event" in 4.0), dcgmi's Health.cpp and
         Diag.cpp; DCGM 3 says gpu_id and warnings in its JSON, 4 entity_id
Shape    facts gpu.verdicts: a Verdict for each sentence that is known, once for each GPU
Errors   ParseError when neither a known sentence nor a result is in it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from probes.core import Finding, ParseError, Severity, clean, lines_of
from probes.intake.tools import Tool

MOST = 500
_G = r"GPU (?P<gpu>\d{1,3})"
_NUM = r"(?P<n>\d{1,12})(?:\.\d{1,4})?"
# (sentence, code of the finding, how bad, our words); the first that fits counts.
_SENTENCES: tuple[tuple[str, str, Severity, str], ...] = (
    (r"running at PCI link width (?P<n>\d{1,2})X", "gpu.pcie_width_told", "bad", "runs on {n} PCIe lanes"),
    (r"running at PCI link generation (?P<n>\d)", "gpu.pcie_told", "warn", "runs at PCIe generation {n}"),
    (rf"PCIe replays per minute for {_G} : {_NUM}", "gpu.pcie_told", "warn", "has {n} PCIe replays a minute"),
    (rf"{_G} host-side PCIe replay violation", "gpu.pcie_told", "warn", "has PCIe replays"),
    (rf"Detected {_NUM} pcie_replay\w{{0,40}} for {_G}", "gpu.pcie_told", "warn", "has {n} PCIe replays"),
    (rf"Bandwidth of {_G} in direction (?:d2h|h2d|bidir)", "gpu.pcie_told", "warn", "copies slower than it should"),
    (rf"{_G} had uncorrectable memory errors and row remapping failed", "gpu.remap_failed", "bad",
     "could not remap a broken memory row"),
    (rf"{_G} had memory errors and row remappings are pending", "gpu.remap_pending", "bad",
     "waits for a reset to remap memory"),
    (rf"Pending page retirements together with a DBE were detected on {_G}", "gpu.remap_pending", "bad",
     "waits for a reset to retire broken memory"),
    (rf"Detected {_NUM} volatile double-bit ECC error\(s\) in {_G}", "gpu.ecc_uncorrected", "bad",
     "has {n} uncorrectable ECC errors"),
    (rf"double-bit ECC error has occurr?ed on {_G}", "gpu.ecc_uncorrected", "bad",
     "had an uncorrectable ECC error"),
    (rf"Detected {_NUM} ecc_dbe\w{{0,40}} for {_G}", "gpu.ecc_uncorrected", "bad",
     "has {n} uncorrectable ECC errors"),
    (rf"Found {_NUM} faulty memory elements on {_G}", "gpu.ecc_uncorrected", "bad", "has {n} faulty memory cells"),
    (rf"memory mismatch was detected on {_G}", "gpu.ecc_uncorrected", "bad", "does not keep what is written to it"),
    (r"had an uncontained error", "gpu.ecc_uncorrected", "bad", "had an uncontained memory error"),
    (rf"due to thermal violation in {_G}", "gpu.throttle_told", "warn", "is slowed down because it is hot"),
    (rf"thermal violations totaling {_NUM} seconds[^.]{{0,60}} for {_G}", "gpu.throttle_told", "bad",
     "was slowed down for {n} s because it was hot"),
    (rf"Temperature {_NUM} of {_G} exceeded", "gpu.throttle_told", "bad", "is at {n} C, above what is allowed"),
    (rf"Clocks are being throttled for {_G}", "gpu.throttle_told", "bad", "is slowed down under load"),
    (rf"{_G}'s NvLink link (?P<n>\d{{1,2}}) is currently down", "gpu.nvlink_inactive", "bad", "NVLink {n} is down"),
    (rf"NvLink errors on {_G}'s NVLink", "gpu.nvlink_errors", "warn", "has errors on its NVLinks"),
    (rf"NvLink errors found occ?uring per second on {_G}", "gpu.nvlink_errors", "bad", "has many NVLink errors"),
    (r"NvSwitch (?:physical ID )?(?P<n>\d{1,3})'s NvLink", "gpu.switch_told", "bad",
     "NVSwitch {n} has a link down"),
    (r"Detected fatal errors on NvSwitch (?P<n>\d{1,3})", "gpu.switch_told", "bad",
     "NVSwitch {n} has fatal errors"),
    (r"fatal NvSwitch SXID (?P<n>\d{1,6})", "gpu.switch_told", "bad", "an NVSwitch had a fatal error, SXid {n}"),
    (r"Only (?P<n>\d{1,2}) NvLinks are up out of the expected", "gpu.nvlink_inactive", "bad",
     "only {n} of its NVLinks are up"),
    (rf"{_G} (?:was unsuccessfully written to|unsuccessfully wrote data) in a peer-to-peer test", "gpu.p2p_told",
     "bad", "cannot exchange data with a peer"),
    (rf"Detected XID (?P<n>\d{{1,3}}) for {_G}", "gpu.xid_told", "warn", "had Xid {n}"),
    (r"GPU is lost", "gpu.lost", "bad", "is lost to the driver"),
)  # fmt: skip
SENTENCES = tuple((re.compile(pattern, re.I), code, how, words) for pattern, code, how, words in _SENTENCES)
XIDS = ("gpu.xid_told", "gpu.xid_written")
_ROW = re.compile(r"\|([^|\n]{3,40})\|([^|\n]{3,200})\|")
_GPU_LINE = re.compile(
    r"(?:Fail|Warn)\w{0,4} {0,2}- {0,2}GPUs?: (\d{1,3}(?:, \d{1,3}){0,63})|GPU ?(\d{1,3}): (?:Fail|Warn)"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`gpu` is DCGM's index, None where none is told. `n`: the number in its sentence; of XIDS' codes the Xid."""

    code: str
    severity: Severity
    gpu: int | None
    n: int | None
    says: str
    stamp: str = ""  # when, as printed


@dataclass(frozen=True, slots=True)
class Verdicts:
    tool: str
    verdicts: tuple[Verdict, ...]


def _fits(head: str, name: str) -> bool:
    if head.lstrip()[:1] == "{":
        start = head[:4096]
        return "DCGM GPU Diagnostic" in start or "DCGM Diagnostic" in start or "Health Monitor Report" in start
    return "Health Monitor Report" in head[:4096] or bool(
        re.search(r"\| Diagnostic {1,40}\| Result {1,60}\|", head[:8192])
    )


def read(text: str) -> Verdicts:
    body = text.lstrip("\ufeff \r\n\t")
    health = "Health Monitor Report" in body[:4096]
    tool = "dcgmi health" if health else "dcgmi diag"
    spoken = list(_of_json(body)) if body[:1] == "{" else list(_of_table(body))
    if not spoken:
        raise ParseError(f"{tool}: no result in it")
    found: dict[tuple[str, int | None], Verdict] = {}
    for gpu, words in spoken[: MOST * 20]:
        for verdict in known(gpu, words):
            if len(found) < MOST:
                found.setdefault((verdict.code, verdict.gpu), verdict)
    return Verdicts(tool, tuple(found.values()))


def known(gpu: int | None, words: str) -> Iterator[Verdict]:
    """What DCGM's sentences in these words say, whoever passes them on."""
    for pattern, code, severity, says in SENTENCES:
        for match in pattern.finditer(words[:8000]):
            told = match.groupdict()
            named = told.get("gpu") or _nearby(words, match.start())
            number = int(told["n"]) if told.get("n") else None
            index = int(named) if named else gpu
            yield Verdict(code, severity, index, number, says.format(n=number))


def _nearby(words: str, at: int) -> str:
    """The GPU that the same sentence names before it: `GPU 4 is running at PCI link width 8X`."""
    before = re.findall(r"GPU (\d{1,3})\b", words[max(0, at - 60) : at])
    return before[-1] if before else ""


# As a table ---------------------------------------------------------------------------------------------------------


def _of_table(text: str) -> Iterator[tuple[int | None, str]]:
    """(GPU of the rows around, sentence): sentences are broken over rows whose left cell is empty."""
    gpu: int | None = None
    words: list[str] = []
    for line in lines_of(text, 400):
        row = _ROW.match(line.strip())
        if row is None:
            continue
        left, right = row[1].strip(), row[2].strip()
        if left:
            if words:
                yield gpu, " ".join(words)
            words = []
            if found := re.match(r"-> ?(\d{1,3})$", left):
                gpu = int(found[1])
            elif not left.startswith("->"):
                gpu = gpu if left in ("Warning", "Info", "Error") else None
        if found := _GPU_LINE.search(right):
            first = (found[1] or found[2]).split(",")
            gpu = int(first[0]) if len(first) == 1 else gpu
        words.append(right)
    if words:
        yield gpu, " ".join(words)


# As JSON ------------------------------------------------------------------------------------------------------------


def _of_json(text: str) -> Iterator[tuple[int | None, str]]:
    try:
        said: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise ParseError("dcgmi: JSON that cannot be read") from None
    yield from _walk(said, None, 0)


def _walk(said: Any, gpu: int | None, depth: int) -> Iterator[tuple[int | None, str]]:
    if depth > 24:
        return
    if isinstance(said, dict):
        own = next((said[key] for key in ("gpu_id", "gpu_ids", "entity_id", "gpuId") if key in said), None)
        if str(said.get("entity_group", "GPU")) == "GPU" and str(own).isdecimal() and len(str(own)) < 4:
            gpu = int(str(own))
        for key, value in said.items():
            # dcgmi health: {"GPU": {"children": {"4": ...}}}
            below = int(key) if str(key).isdecimal() and len(str(key)) < 4 else gpu
            yield from _walk(value, below, depth + 1)
    elif isinstance(said, list):
        for one in said[:4096]:
            yield from _walk(one, gpu, depth + 1)
    elif isinstance(said, str):
        yield gpu, " ".join(said.split())[:8000]


def findings(facts: Verdicts) -> Iterator[Finding]:
    for one in facts.verdicts:
        who = f"GPU {one.gpu}" if one.gpu is not None else "A GPU"
        subject: dict[str, str | int] = {} if one.gpu is None else {"gpu": one.gpu}
        if one.code in XIDS and one.n is not None:
            subject["xid"] = one.n
        if one.stamp:
            subject["stamp"] = one.stamp
        says = one.says if one.says.startswith(("NVSwitch", "an NVSwitch")) else f"{who} {one.says}"
        yield Finding(one.code, one.severity, f"{clean(says)}, says {facts.tool}", subject)


TOOL = Tool("DCGM", "gpu.verdicts", _fits, read, findings)
