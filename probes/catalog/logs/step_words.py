"""The parts of a step in lines that name them in words of their own, with the time before or behind.

    Data (t): 2.301 Batch (t): 2.410            batch_cost: 2.51 s, reader_cost: 2.11 s
    data loading took 3.21s, total step 3.92s    time_metrics/end_to_end(s): 2.53 time_metrics/data_loading(s): 2.11
    waited 3.2 s for batch; step took 3.9 s      dataloader wait 82% of step time 2.53 s

Words that also count something, such as step 4 or batch 32, are times only with a unit.
Source   open_clip, PaddlePaddle (batch_cost, reader_cost), torchtitan (time_metrics), NeMo (..._timing in s)
Units    seconds; a number without a unit counts as seconds, unless the line says ms
Shape    parts_in(text) -> {part: seconds}, the parts as in _log_timings
Errors   none
"""

from __future__ import annotations

import re

_SCALE = {"us": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0}
_UNIT = r"(?:us|msec|ms|secs|sec|seconds|s)"
_TOLD = re.compile(
    r"(?<![A-Za-z])([A-Za-z][\w/+.-]{0,40}(?: [A-Za-z][\w/+-]{0,20}){0,3}?)\"?\s{0,2}"
    rf"([(\[](?:t|{_UNIT})[)\]]|in {_UNIT}(?= ?:))?\s{{0,2}}[:=]?\s{{0,4}}"
    rf"(\d{{1,7}}(?:\.\d{{1,6}})?) ?({_UNIT}(?![\w/])|%)?(?![\w.])"
)
_BEHIND = re.compile(
    rf"(?:wait\w{{0,3}}|spent|took) (\d{{1,7}}(?:\.\d{{1,6}})?) ?({_UNIT}) (?:for|on|to (?:load|fetch|get))(?: the)?"
    r"(?: next)? (?:data|batch|input|sample)"
)
_FRONT = re.compile(r"(?:avg|mean|median|last|cur|(t|time)|perf|the|and|of)[_ ]")
_END = re.compile(r"[_ ](?:(cost|timing|time|took|takes)|was|is|of|(ms|s|sec))$")
_DATA = re.compile(
    r"(?:wait\w{0,3}[_ ](?:for[_ ]|on[_ ])?)?(?:data|batch|input|reader|loader|dataset|sample)s?"
    r"(?:[_ ]?(?:load\w{0,4}|wait\w{0,3}|fetch\w{0,3}|read\w{0,3}|pipeline|input|iter|next|gen\w{0,8})){0,2}"
    r"|(?:load|fetch|get|read|next|wait)\w{0,3}[_ ]?(?:next[_ ])?(?:data|batch|input|sample)s?|dataload\w{0,3}"
)
_OWN = re.compile(
    r"(?:fwd|bwd|forward|backward|compute|optim\w{0,4}|optimizer(?:[_ ]step)?)"
    r"(?:[-_/+ ](?:fwd|bwd|forward|backward|opt|optim\w{0,4}))?|device[_ ]step|gpu[_ ](?:step|compute)"
)
_WHOLE = re.compile(
    r"dt|tot|total|time|e2e|end[_ ]to[_ ]end|elapsed|(?:(?:whole|total|per|train\w{0,3})[_ ])?(?:step|iter|iteration)"
)
_MAY = re.compile(r"(?i)data|batch|load|reader|input|fetch")
_EITHER = "batch"  # the whole step where what is read of it has a name of its own
_PLAIN = re.compile(r"data|batch|input|samples?|step|iter|iteration|total|tot|reader|loader")  # may count something


def parts_in(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    if not _MAY.search(text):
        return found
    usual = 1e-3 if "(ms)" in text else 1.0
    share = batch = 0.0
    for told in _TOLD.finditer(text):
        unit = told[4] or ((told[2] or "").removeprefix("in").strip(" ()[]")).replace("t", "s", 1)
        label, scale = _bare(told[1])
        unit = unit or scale
        value = float(told[3])
        part = _part(label) if unit or ("." in told[3] and not _PLAIN.fullmatch(label)) else ""
        seconds = value * _SCALE.get(unit, usual)
        if unit == "%":
            waits = part == "data" and not _PLAIN.fullmatch(label)  # `data 40%` may be how far it has come
            share = value / 100 if waits and value <= 100 else share
        elif label == _EITHER:
            batch = seconds if unit else batch
        elif part and (part == "own" or part not in found):
            found[part] = found.get(part, 0.0) + seconds
    if behind := _BEHIND.search(text):
        found["data"] = float(behind[1]) * _SCALE[behind[2]]
    if batch:
        found.setdefault("total" if "data" in found else "data", batch)
    if share and "total" in found:
        found.setdefault("data", share * found["total"])
    return found


def _bare(label: str) -> tuple[str, str]:
    """(words without what stands around them, unit that was one of them)."""
    words = label.lower()
    words = words.rpartition("/")[2] if "/" in words and not _OWN.fullmatch(words) else words
    unit = ""
    if " " not in words and "_" not in words:
        return words, unit
    for _ in range(3):
        if front := _FRONT.match(words):
            words, unit = words[front.end() :], unit or ("s" if front[1] else "")
        if end := _END.search(words):
            words, unit = words[: end.start()], end[2] or unit or ("s" if end[1] else "")
    return words, unit


def _part(words: str) -> str:
    """The part that the last of these words name, the longest first."""
    rest = words
    while rest:
        for part, pattern in (("data", _DATA), ("own", _OWN), ("total", _WHOLE)):
            if pattern.fullmatch(rest):
                return part
        rest = rest.partition(" ")[2]
    return ""
