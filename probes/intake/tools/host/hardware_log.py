"""Hardware error logs: mcelog, rasdaemon and ras-mc-ctl, edac-util, ipmitool sel.

Source   mcelog(8); ras-mc-ctl(8) and rasdaemon's ras-events.c; edac-util(1); ipmitool(1) sel list and elist
Shape    facts host.hardware_log
Errors   ParseError when no line has one of these forms
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.catalog.host.bmc_lines import sel_line
from probes.catalog.host.facts import HardwareError, HardwareLog, hardware_findings
from probes.core import ParseError, clean, lines_of
from probes.intake.tools import Tool

_SUMMARY = re.compile(
    r"\s{1,8}(Corrected|Uncorrected|Fatal) on DIMM Label\(s\): '([^']{1,80})'[^\n]{0,80}errors: (\d{1,12})"
)
_RAS = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\n]{0,12}"
    r" (\d{1,9}) (Corrected|Uncorrected|Fatal|Deferred) error(?:\(s\))?: ([^\n]{1,200})"
)
_RASD = re.compile(r"(mc_event|mce_record|aer_event|arm_event|extlog_mem_event): ([^\n]{1,300})")
_RAS_HEAD = re.compile(r"^(?:Memory controller events|PCIe AER events|MCE events|Extlog events)(?: summary)?:", re.M)
_RAS_MCE = re.compile(  # ras-mc-ctl --errors
    r"\d{1,9} (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[^\n]{0,12} error: ([^,\n]{1,120}),"
    r"[^\n]{0,300}?\bmci (\w{0,20}[Uu]ncorrected\w{0,20})"
)
_EDAC = re.compile(r"(mc\d{1,3}): ([^\n]{0,80}?)(\d{1,12}) (Corrected|Uncorrected) Errors?")
_SYSFS = re.compile(r"\S{0,200}?\b(mc\d{1,3})(?:/\S{1,80})?/(ce|ue)_count:? ?(\d{1,12})$")  # grep -H in /sys
_MCE = re.compile(r"(?:MCE \d{1,6}|Hardware event\. This is not a software error)")


def _fits(head: str, name: str) -> bool:
    lines = [line for line in lines_of(head[:32768], 600) if line.strip()][:60]
    count = sum(
        bool(sel_line(line) or _SUMMARY.match(line) or _EDAC.match(line) or _RAS.search(line) or _SYSFS.match(line))
        for line in lines
    )
    if lines and (count * 2 >= len(lines) or _RAS_HEAD.search(head[:400])):
        return True
    if _RACADM.search(head[:16384]) or (
        '"MessageId"' in head[:16384] and _REDFISH.search(head) and _CREATED.search(head)
    ):
        return True
    return bool(lines) and (
        bool(_MCE.match(lines[0])) or lines[0].startswith("edac-util: ") or (len(_RASD.findall(head)) * 2 >= len(lines))
    )


def read(text: str) -> HardwareLog:
    errors: dict[tuple[str, str], HardwareError] = {}
    tool = ""
    for one_tool, error in _events(text):
        tool = tool or one_tool
        key = (error.kind, error.where)
        there = errors.get(key)
        if there is not None:
            error = HardwareError(
                error.kind, error.where, there.count + error.count, error.stamp or there.stamp, error.text
            )
        if there is not None or len(errors) < 300:
            errors[key] = error
    if (
        not tool
        and not (_RACADM.search(text) or _REDFISH.search(text))
        and "edac-util: " not in text[:200]
        and "summary" not in text[:400]
    ):
        raise ParseError("expected mcelog, rasdaemon, edac-util or ipmitool sel, found no such line")
    return HardwareLog(tool or "edac-util", tuple(one for one in errors.values() if one.count))


_REDFISH = re.compile(r'"Message"\s{0,4}:\s{0,4}"([^"]{1,300})"')
_CREATED = re.compile(r'"Created"\s{0,4}:\s{0,4}"([^"]{10,32})"')
_RACADM = re.compile(r"^Severity:\s{1,20}(\S{1,20})\s{0,8}\n(?:Description|Message):\s{1,20}([^\n]{1,300})", re.M)
_MEMORY_LOST = re.compile(r"multi-bit|uncorrectable|machine check|fatal error|ierr\b", re.I)


def _of_the_controller(text: str) -> list[HardwareError]:
    """Redfish's log entries and `racadm getsel`: sentences of the BMC."""
    found = []
    for entry in re.split(r'(?="@odata\.id"|"Created")', text[:4_194_304])[:5000] if text.lstrip()[:1] in "{[" else ():
        said, at = _REDFISH.search(entry), _CREATED.search(entry)
        if said and _MEMORY_LOST.search(said[1]):
            found.append(
                HardwareError("uncorrected", clean(said[1])[:60], 1, at[1] if at else "", clean(said[1])[:120])
            )
    for severity, said in _RACADM.findall(text[:4_194_304]):
        if severity.lower() in ("critical", "non-recoverable", "fatal") and _MEMORY_LOST.search(said):
            found.append(HardwareError("uncorrected", clean(said)[:60], 1, "", clean(said)[:120]))
    return found


def _events(text: str) -> Iterator[tuple[str, HardwareError]]:
    for error in _of_the_controller(text):
        yield "BMC event log", error
    if _MCE.match(text.lstrip()):
        yield from _mcelog(text)
        return
    for line in lines_of(clean(text), 1000):
        if told := sel_line(line):
            yield "BMC event log", told
        elif found := _SUMMARY.match(line):
            yield "ras-mc-ctl", HardwareError(_kind(found[1]), found[2], int(found[3]), "", f"{found[1]} errors")
        elif found := _RAS.search(line):
            where = found[4].rpartition(" at ")[2] if " at " in found[4] else found[4].rpartition(" on ")[2]
            yield (
                "rasdaemon",
                HardwareError(_kind(found[3]), where[:60], int(found[2]), found[1], f"{found[3]} {found[4]}"),
            )
        elif found := _RAS_MCE.match(line):
            yield "rasdaemon", HardwareError("uncorrected", "MCE", 1, found[1], found[2])
        elif found := _EDAC.match(line):
            where = f"{found[1]} {found[2].strip(': ')}".strip()
            yield "edac-util", HardwareError(_kind(found[4]), where[:60], int(found[3]), "", f"{found[4]} errors")
        elif found := _SYSFS.match(line.strip()):
            kind = "corrected" if found[2] == "ce" else "uncorrected"
            yield "EDAC", HardwareError(kind, found[1], int(found[3]), "", f"{kind} errors")
        elif found := _RASD.search(line):
            bad = any(word in found[2].lower() for word in ("uncorrected", "fatal", "deferred"))
            yield "rasdaemon", HardwareError("uncorrected" if bad else "corrected", found[1], 1, "", found[2][:160])


def _kind(word: str) -> str:
    return "corrected" if word == "Corrected" else "uncorrected"


def _mcelog(text: str) -> Iterator[tuple[str, HardwareError]]:
    """Blocks that begin with a line `MCE 0`; bit 61 of STATUS says that the error was not corrected (Intel SDM)."""
    for block in re.split(r"\n(?=MCE \d)|\n(?=Hardware event)", text)[:2000]:
        where = re.search(r"CPU (\d{1,5})(?: \S{1,20})? BANK (\d{1,3})", block)
        status = re.search(r"STATUS ([0-9a-f]{1,16})\b", block)
        bad = "ncorrected" in block or bool(status and int(status[1], 16) >> 61 & 1)
        if where or status:
            place = f"CPU {where[1]} bank {where[2]}" if where else ""
            detail = re.search(r"(?:MCA|Error): ?([^\n]{1,100})", block)
            text_of = clean(detail[1]) if detail else "machine check"
            yield "mcelog", HardwareError("uncorrected" if bad else "corrected", place, 1, "", text_of)


TOOL = Tool("hardware error log", "host.hardware_log", _fits, read, hardware_findings)
