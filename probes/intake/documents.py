"""What a document in Markdown quotes: its tables and its blocks of output. Its sentences are what somebody thinks.

Shape    quoted_items(item) -> an Item for each; quoted_in(text) -> (the words above it, the table or block) of each
Errors   none
Source   CommonMark 0.31 (fenced and indented code blocks), GitHub Flavored Markdown (tables)
"""

from __future__ import annotations

import re

from probes.intake.items import TEXT_BYTES, Item
from probes.intake.names import stem

NAMES = (".md", ".markdown")
MOST, MOST_LINES = 200, 200_000
_FENCE = re.compile(r"\s{0,3}(`{3,20}|~{3,20})\s{0,4}[\w.+-]{0,40}\s{0,4}$")
_OWN = "~" * 12  # a fence that no one types
_ITEM = re.compile(r"\s{0,3}(?:[-*+]|\d{1,3}[.)])\s")
_RULE = re.compile(r"\s{0,3}\|?\s{0,8}:?-{2,200}:?\s{0,8}(?:\|\s{0,8}:?-{2,200}:?\s{0,8}){0,200}\|?\s{0,8}$")


def quoted_in(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    block: list[str] = []
    fence = above = ""
    lines = _fenced(text.split("\n", MOST_LINES)[:MOST_LINES])
    for at, line in enumerate(lines):
        below = lines[at + 1][:4000] if at + 1 < len(lines) else ""
        mark = _FENCE.match(line[:100])
        if fence:
            closes = mark is not None and mark[1].startswith(fence)
        elif block and block[0].count("|"):
            closes = "|" not in line
        else:
            closes = False
        if closes:
            found.append((above, _table(block) if not fence else "\n".join(block) + "\n"))
            block, above, fence = [], "" if fence else line.strip(" #*_:"), ""
        elif fence or block:
            block.append(line)
        elif mark is not None:
            fence = mark[1]
        elif "|" in line and _RULE.match(below) and "|" in below:
            block = [line]
        elif line.strip():
            above = line.strip(" #*_:")[:200]
        if len(found) >= MOST:
            break
    if block:
        found.append((above, "\n".join(block) + "\n" if fence else _table(block)))
    return [(above, told) for above, told in found if told.strip()]


def _fenced(lines: list[str]) -> list[str]:
    """What is indented by four below an empty line, between fences; not below an item of a list: it is more of it."""
    found: list[str] = []
    inside, fence, last = False, "", ""
    for line in lines:
        mark = _FENCE.match(line[:100])
        if mark is not None and not inside:
            fence = "" if fence and mark[1].startswith(fence) else fence or mark[1]
        indented = line.startswith(("    ", "\t")) and line.strip()
        if inside and line.strip() and not indented:
            found.append(_OWN)
            inside = False
        elif indented and not (inside or fence or _ITEM.match(last)) and not (found and found[-1].strip()):
            found.append(_OWN)
            inside = True
        if line.strip() and not indented:
            last = line
        found.append((line[4:] if line[0] == " " else line[1:]) if inside and line.strip() else line)
    return [*found, _OWN] if inside else found


def _table(lines: list[str]) -> str:
    """Without its rule: what is left are rows with bars between their cells."""
    return "\n".join(line for line in lines if not _RULE.match(line[:4000])).replace("`", "") + "\n"


def quoted_items(item: Item) -> list[Item]:
    """[] where it is no document of this kind, or quotes nothing."""
    if not item.name.lower().endswith(NAMES):
        return []
    found = []
    for at, (above, told) in enumerate(quoted_in(item.upto(TEXT_BYTES).decode("utf-8", "replace")), 1):
        name = re.sub(r"[^\w.+-]+", "_", above)[:80].strip("_.") or "quoted"
        inside = item.inside.parent / stem(item.name) / f"{at}_{name}.txt"
        found.append(
            Item(f"{item.ref}: {above or at}"[:1000], inside, told.encode("utf-8", "replace"), mtime=item.mtime)
        )
    return found
