"""What has the machine's own controller (BMC) noted: memory errors, power supplies, heat, fans?

Source   ipmitool(1) sel elist last 40, over the kernel's /dev/ipmi0; read from the controller record by record, 5 to
         20 s on a slow one. Never run on such hardware: replayed from printed lines, and from a tool that prints them
Units    times as the controller's clock has them, in the zone that ipmitool prints
Shape    HardwareLog: the records of the last day, equal ones counted; how many are older. A log goes back for years
Errors   ParseError when no line has the form of a record; Absent without ipmitool or controller; Denied without right
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from probes.catalog.host.bmc_lines import sel_line
from probes.catalog.host.facts import HardwareError, HardwareLog, hardware_findings
from probes.core import Finding, ParseError, Probe, clean, lines_of, sections
from probes.runner import Absent, Denied, sh, which

__all__ = ["PROBE", "HardwareLog", "findings", "parse"]

SECTION = "ipmitool sel elist"
RECENT = timedelta(days=1) + timedelta(hours=14)  # a day, and the most that two zones differ by
EMPTY = "SEL has no entries"


def _collect() -> Mapping[str, str]:
    import glob
    import os
    import pwd
    import time

    tool = which("ipmitool")
    if not tool:
        raise Absent("ipmitool is not installed")
    devices = glob.glob("/dev/ipmi*") + glob.glob("/dev/ipmi/*")
    if not devices:
        raise Absent("no /dev/ipmi0: there is no controller (BMC), or the kernel module ipmi_devintf is not loaded")
    front = []
    if not any(os.access(device, os.R_OK | os.W_OK) for device in devices):
        sudo = which("sudo")
        if not sudo or sh([sudo, "-n", "-l", tool, "sel", "elist", "last", "40"])[0] != 0:
            try:
                user = pwd.getpwuid(os.getuid()).pw_name
            except KeyError:
                user = f"#{os.getuid()}"
            allow = f"{user} ALL=(root) NOPASSWD: {tool} sel elist last 40"
            raise Denied(f"this login may not open {devices[0]}. Allow in sudoers: {allow}")
        front = [sudo, "-n"]
    status, out, err = sh(front + [tool, "sel", "elist", "last", "40"])
    if status != 0 and not out.strip():
        raise OSError(f"ipmitool ended with status {status}: {err.strip()[-200:] or 'it printed nothing'}")
    return {"golden15/now": time.strftime("%Y-%m-%d %H:%M:%S"), "ipmitool sel elist": out}


def parse(text: str) -> HardwareLog:
    """The records of the last day, by the node's own clock; an empty log has none. One without a time counts as new."""
    parts = sections(text)
    if SECTION not in parts:
        raise ParseError(f"expected a block '==> {SECTION} <==', found {clean(', '.join(parts))[:60]!r}")
    lines = [line for line in lines_of(clean(parts[SECTION]), 400) if line.strip()]
    told = [error for line in lines if (error := sel_line(line))]
    if lines and not told and not any(EMPTY in line for line in lines):
        raise ParseError(f"{SECTION}: expected records with '|', found {lines[0].strip()[:60]!r}")
    now = _time(parts.get("golden15/now", "").strip(), ("%Y-%m-%d %H:%M:%S",))
    recent = [error for error in told if not _old(error.stamp, now)]
    errors: dict[tuple[str, str, str], HardwareError] = {}
    for error in reversed(recent):
        key = (error.kind, error.where, error.text)
        errors[key] = replace(errors[key], count=errors[key].count + 1) if key in errors else error
    return HardwareLog("BMC event log", tuple(errors.values()), len(told) - len(recent))


def _old(stamp: str, now: datetime | None) -> bool:
    at = _time(stamp, ("%m/%d/%Y %H:%M:%S", "%m/%d/%y %H:%M:%S"))
    return now is not None and at is not None and now - at > RECENT


def _time(text: str, forms: tuple[str, ...]) -> datetime | None:
    """The zone is left aside: a day is longer than any offset."""
    for form in forms:
        try:
            return datetime.strptime(" ".join(text.split()[:2]), form)  # noqa: DTZ007 - see above
        except ValueError:
            continue
    return None


def findings(log: HardwareLog) -> Iterator[Finding]:
    """As of other hardware logs; of the older records only how many there are."""
    yield from hardware_findings(log)
    if log.older:
        says = f"the controller's log holds {log.older} older records; ipmitool sel elist shows them"
        yield Finding("host.bmc_older", "info", says)


PROBE = Probe(
    "host.bmc_log",
    "What has the machine's own controller noted: memory errors, power, heat, fans?",
    parse,
    findings,
    collect=_collect,
    by_hand="sudo ipmitool sel elist last 40",
    timeout_s=12.0,
    touches="disk",
    needs="root, or `sudo -n ipmitool sel elist last 40`",
    cost="not measured: there was no such hardware",
)
