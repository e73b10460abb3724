"""The last that each writer of a log told of where it is: a step, a bar, a checkpoint.

Shape    last_said(evidence) -> {(rank or None, file): the event}
Errors   none
"""

from __future__ import annotations

import re

from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.torch import BUILT
from probes.diagnosis.core import Evidence
from probes.diagnosis.log_evidence import Said

_ENDED = re.compile(r"(?<!be )(?<!being )saved|loaded|done|finished|complete|took|success", re.I)  # of a checkpoint
# What begins after something else has ended: "step 500 done, saving state", "gathered, torch.save -> /ckpt/500.pt".
_BEGINS = re.compile(
    r"[,;.:] {1,4}(?:now |then )?(?:saving|writing|loading|uploading|restoring)\b"
    r"|\b(?:torch\.)?(?:save|load)\b[^.,;]{0,20}->", re.I
)  # fmt: skip
_WRITTEN = re.compile(r"written|wrote|uploaded", re.I)  # all of it, or so much until now
# What Hugging Face writes of the small file that it saves before the weights.
_BEFORE = re.compile(r"[Cc]onfiguration saved in \S{0,200}(?:checkpoint|ckpt)")
_PART = re.compile(
    r"(\d{1,12}(?:[.,]\d{1,6})?) ?(?:[kKMGT]i?B)? ?(?:/|of) ?(\d{1,12}(?:[.,]\d{1,6})?)|(\d{1,3})(?:\.\d)? ?%"
)
# Bars of data sets (Hugging Face datasets) and of who tokenises with them: accelerate#2528, LlamaFactory#1196.
_PREPARES = re.compile(
    r"(?:Map|Filter|Running tokenizer|Generating \w{1,20} split|Grouping texts|Converting format)\b"
    r"[^|%]{0,80}\d{1,3}%\|"
    r"|(?i:tokeni[sz]|preprocess|indexing|packing)\w{0,6}\b[^|]{0,80}\d"
)

_EVALUATES = re.compile(r"(?i:\b(?:(?:evaluat|validat|testing|predicting|generating)\w{0,6}|e?val))\b[^|]{0,80}\d")


def last_said(evidence: Evidence) -> dict[tuple[int | None, str], Said]:
    """By rank and file; lines that nothing marks are of one writer per file."""
    found: dict[tuple[int | None, str], Said] = {}
    for one in evidence.job.said("checkpoint", "progress", "compiling", "preparing"):
        key = (one[0].rank, one[1].file if one[0].rank is None else "")
        if key not in found or _place(one[0]) >= _place(found[key][0]):
            found[key] = one
    return found


def _place(event: LogEvent) -> tuple[float, int]:
    return event.last_at or 0.0, event.last_place


def unfinished_checkpoint(event: LogEvent) -> bool:
    """Whether it begins to write or read one, or is in the middle of it."""
    if event.kind != "checkpoint":
        return False
    if _BEFORE.search(event.text):
        return True
    ended = max((found.end() for found in _ENDED.finditer(event.text)), default=-1)
    if ended >= 0:
        return _BEGINS.search(event.text, ended) is not None
    part = share_done(event.text)
    return part < 1.0 if part is not None else _WRITTEN.search(event.text) is None


def unfinished_preparation(event: LogEvent) -> bool:
    """Whether it prepares data, and is not at its end."""
    if event.kind == "preparing":
        return True
    part = share_done(event.text)
    return event.kind == "progress" and _PREPARES.search(event.text) is not None and part is not None and part < 1.0


def unfinished_evaluation(event: LogEvent) -> bool:
    """Whether it evaluates, and is not at the end of that."""
    part = share_done(event.text)
    return event.kind == "progress" and _EVALUATES.search(event.text) is not None and part is not None and part < 1.0


def compiles(event: LogEvent) -> bool:
    """Whether torch or a builder of extensions said that it compiles, and nothing since then."""
    return event.kind == "compiling" and not event.name.startswith(BUILT)


def share_done(text: str) -> float | None:
    """How much of it is done, by `31.7 of 412.6 GB`, `200/1000` or `88%`; None where it does not tell."""
    found = _PART.search(text)
    if found is None:
        return None
    if found[3]:
        return int(found[3]) / 100
    whole = float(found[2].replace(",", ""))
    return float(found[1].replace(",", "")) / whole if whole else None
