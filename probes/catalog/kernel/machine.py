"""Kernel log lines of errors of the machine itself: processors, memory, and what firmware reports.

Source   arch/x86/kernel/cpu/mce, drivers/edac, drivers/firmware/efi/cper.c, mm/memory-failure.c
Shape    machine_error(text) -> (where, whether corrected or None for not told, how many), None for another line
Errors   none
"""

from __future__ import annotations

from probes.catalog.kernel.gpu import number

Told = tuple[str, bool | None, int]
WORDS = ("EDAC ", "[Hardware Error]", "Machine check events logged", "hardware memory error in ", "Memory failure: ")


def machine_error(text: str) -> Told | None:
    if "EDAC " in text:
        return _edac(text)
    if "event severity: " in text:
        return "firmware (APEI)", text.partition("event severity: ")[2].strip() in ("corrected", "info"), 1
    if "Machine Check" in text and " Bank " in text:
        cpu = text.partition("CPU ")[2].partition(":")[0]
        bank, _, status = text.partition(" Bank ")[2].partition(": ")
        try:  # bit 61 of MCi_STATUS: not corrected (Intel SDM 3B, 16.3.2.2)
            return f"CPU {cpu[:6]} bank {bank[:6]}", not int(status.split()[0][:16], 16) >> 61 & 1, 1
        except (ValueError, IndexError):
            return None
    if "Machine check events logged" in text:
        return "", None, 1
    # Documentation/mm/hwpoison.rst: who uses a page that failed is ended
    if "Uncorrected hardware memory error in " in text:
        return "memory", False, 1
    if text.startswith("Memory failure: ") and " due to hardware memory corruption" in text:
        return "memory", False, 1
    return None


def _edac(text: str) -> Told | None:
    """`EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 ...)`"""
    controller, _, rest = text.partition("EDAC ")[2].partition(": ")
    words = rest.split(" ", 2)
    errors = number(words[0], 9)
    if errors is None or len(words) < 3 or words[1] not in ("CE", "UE"):
        return None
    label = words[2].partition(" on ")[2].partition(" (")[0]
    return f"{controller[:12]} {label[:60]}".strip(), words[1] == "CE", errors
