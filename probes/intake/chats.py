"""What a chat quotes: blocks of output in the messages of a Slack export or of its API. Its sentences are what
somebody thinks.

    [{"user": "U02", "ts": "1790000170.8", "text": "```gpu-2:~$ nvidia-smi\\nFailed ...```"}]
    {"ok": true, "messages": [...], "has_more": false}           conversations.history, the newest first

Shape    is_chat(head); chat_items(item) -> one Item of all blocks in the order of their times; [] where it quotes none
Errors   none
Source   Slack: "How to read Slack data exports", conversations.history, "Formatting text" (&amp; &lt; &gt;)
"""

from __future__ import annotations

import html
import json
import re
from typing import Any

from probes.intake.items import TEXT_BYTES, Item
from probes.intake.names import stem

MOST, LEAST_LINES = 2_000, 2
_TS = re.compile(r'"ts"\s{0,4}:\s{0,4}"\d{10}\.\d{1,6}"')  # of Slack alone: seconds, and a number that makes it unique
_BLOCK = re.compile(r"```(.*?)(?:```|\Z)", re.S)


def is_chat(head: str) -> bool:
    return bool(_TS.search(head)) and '"text"' in head


def chat_items(item: Item) -> list[Item]:
    if not item.name.lower().endswith(".json"):
        return []
    told = "\n".join(_blocks(item.upto(TEXT_BYTES).decode("utf-8", "replace")))
    if not told:
        return []
    inside = item.inside.parent / stem(item.name) / "quoted.txt"
    return [Item(f"{item.ref}: quoted", inside, f"{told}\n".encode(), mtime=item.mtime)]


def _blocks(text: str) -> list[str]:
    """Blocks between fences; of a message without one all of it where it has several lines, as output has."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return []
    rows = said.get("messages") if isinstance(said, dict) else said
    messages = [(_at(one), one["text"]) for one in rows[:MOST] if _is_one(one)] if isinstance(rows, list) else []
    found = []
    for _, message in sorted(messages, key=lambda one: one[0]):
        blocks = _BLOCK.findall(message) or ([message] if message.strip().count("\n") >= LEAST_LINES else [])
        found += [html.unescape(block).strip("\n") for block in blocks if block.strip()]
    return found


def _is_one(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("text"), str) and isinstance(one.get("ts"), str | float | int)


def _at(one: dict[str, Any]) -> float:
    try:
        return float(one["ts"])
    except ValueError:
        return 0.0
