"""The tables of amd-smi and rocm-smi, and rocm-smi's lines `GPU[0] : name: value`.

Source   ROCm/amdsmi change log (recorded tables); rocm_smi.py: its concise table ends in GPU%, its clocks in Mhz
Shape    a dict of the tool's names for each GPU, `index` among them
Errors   none: a row that cannot be told apart tells only that its GPU answers
"""

from __future__ import annotations

import re

from probes.core import lines_of

COLUMNS = {  # of amd-smi monitor, ROCm 6.0 to 7.0 -> names of amd_smi._named, or keys that it knows
    "POWER": "x.SOCKET_POWER",
    "GPU_TEMP": "x.TEMPERATURE.HOTSPOT",
    "GPU_T": "x.TEMPERATURE.HOTSPOT",
    "GFX_UTIL": "x.GFX_ACTIVITY",
    "GFX%": "x.GFX_ACTIVITY",
    "GFX_CLOCK": "x.GFX_CLOCK",
    "GFX_CLK": "x.GFX_CLOCK",
}
_KNOWN = frozenset(COLUMNS) | {
    "MEM_TEMP",
    "MEM_T",
    "MEM_UTIL",
    "MEM%",
    "MEM_CLOCK",
    "VRAM_USED",
    "VRAM_USAGE",
    "PVIOL",
    "TVIOL",
    "PHOT_TVIOL",
    "SINGLE_ECC",
    "DOUBLE_ECC",
    "PCIE_REPLAY",
    "ENC_UTIL",
    "ENC%",
    "DEC%",
    "VCLOCK",
}
_UNITS = frozenset(("W", "%", "MHz", "MB", "°C", "C", "Mb/s", "GB", "GB/s"))
_CARD = re.compile(r"GPU\[(\d{1,3})\]\s{0,8}: {0,4}([^\n]{1,200})")
_CLOCK = re.compile(r"(\w{1,12}) clock level: \d{1,3}: \((\d{1,6})Mhz\)")
_LAST_SHARE = re.compile(r"(\d{1,3})%$")


def is_table(head: str) -> bool:
    """Whether the first line is amd-smi's heading, or lines are rocm-smi's."""
    first = next((line for line in lines_of(head) if line.strip()), "")
    words = first.split()
    if "GPU" in words[:3] and len(_KNOWN & set(words)) >= 2:
        return True
    return len(_CARD.findall(head)) >= 2 or (words[:1] == ["Device"] and "GPU%" in words)


def lines_by_card(text: str) -> list[dict[str, str]]:
    """`GPU[0]          : GPU use (%): 100`."""
    rows: dict[str, dict[str, str]] = {}
    for line in lines_of(text, 400):
        found = _CARD.match(line.strip())
        if not found:
            continue
        row = rows.setdefault(found[1], {"index": found[1]})
        if clock := _CLOCK.match(found[2]):
            row[f"{clock[1]} clock speed:"] = f"{clock[2]} MHz"
        else:
            key, _, value = found[2].rpartition(": ")
            row[key.strip()] = value.strip()
    return list(rows.values())


def table(text: str) -> list[dict[str, str]]:
    """amd-smi monitor and rocm-smi's box: which GPUs answer, and what the columns that are known tell."""
    rows: list[dict[str, str]] = []
    names: list[str] = []
    for line in lines_of(text, 600):
        words = line.split()
        if words[:1] == ["Device"] or (len(words) < 60 and "GPU" in words[:3] and _KNOWN & set(words)):
            names = words
        elif "PROCESS INFO" in line:
            break
        elif names and (row := _row(names, line)):
            rows.append(row)
    return rows


def _row(names: list[str], line: str) -> dict[str, str] | None:
    words = line.split()
    if names[0] == "Device":
        return _concise(words) if words and words[0].isdecimal() and len(words[0]) < 4 else None
    cells = re.split(r" {2,}", line.strip())
    if len(cells) != len(names):
        cells = [word for word in words if word not in _UNITS]
    at = names.index("GPU")
    if len(cells) != len(names):
        known = words[0] if at == 0 and words and words[0].isdecimal() and len(words[0]) < 4 else ""
        return {"index": known} if known else None
    told = {name: cell.split(" ")[0] for name, cell in zip(names, cells, strict=True)}
    if not told["GPU"].isdecimal() or len(told["GPU"]) > 3:
        return None
    row = {"index": told["GPU"]}
    row["TOTAL_UNCORRECTABLE"] = told.get("DOUBLE_ECC", "")
    row["TOTAL_CORRECTABLE"] = told.get("SINGLE_ECC", "")
    row |= {ours: told[theirs] for theirs, ours in COLUMNS.items() if theirs in told}
    return row | {name: value for name, value in told.items() if name.endswith("VIOL") or name == "PCIE_REPLAY"}


def _concise(words: list[str]) -> dict[str, str]:
    """rocm-smi: values stand in other columns in each release, and are told by their units. Of two in watts the
    first is what is drawn, and the second, PwrCap, what may be."""
    row = {"index": words[0]}
    watts = [word[:-1] for word in words if re.fullmatch(r"\d{1,4}\.\d{1,3}W", word)]
    power, most = (*watts, "", "")[:2]
    clock = next((word[:-3] for word in words if re.fullmatch(r"\d{1,5}Mhz", word)), "")
    heat = next((word.rstrip("cC°") for word in words if re.fullmatch(r"\d{1,3}\.\d{1,2}°?[cC]", word)), "")
    share = _LAST_SHARE.match(words[-1])
    told = {"x.SOCKET_POWER": power, "x.MAX_POWER": most, "x.GFX_CLOCK": clock, "x.TEMPERATURE.HOTSPOT": heat,
            "x.GFX_ACTIVITY": share[1] if share else ""}  # fmt: skip
    return row | {name: value for name, value in told.items() if value}
