"""What somebody tried: the same job with a setting and without it, and how fast it was each time.

    OMP_NUM_THREADS=128: 41 samples/s        num_workers=0: 0.91 s/step; synthetic data: 0.31 s/step
    OMP_NUM_THREADS=16: 310 samples/s        with loss.item() 0.91 s/step, without: 0.52

Source   none: the words are those of the settings' own manuals
Shape    facts evidence.tried: of each kind of setting how many times faster the run was where it weighs less
Errors   ParseError where no two runs differ in one setting
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean, lines_of
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse

LEAST, MOST_LINES, LONGEST_TEXT = 1.4, 60, 16_384  # times faster; judgement
_RATE = re.compile(
    r"(?<![\w.])(\d{1,9}(?:[.,]\d{1,6})?)\s{0,2}(?:k )?(?:samples?|imgs?|images?|tok(?:en)?s?|it(?:er(?:ation)?)?s?"
    r"|steps?|seqs?|sequences|rows|batch(?:es)?|examples|frames)\s{0,2}(?:/|per |a )\s{0,2}s(?:ec(?:ond)?)?\b",
    re.I,
)
_TIME = re.compile(
    r"(?<![\w.])(\d{1,9}(?:[.,]\d{1,6})?)\s{0,2}(ms|s|sec|seconds)\s{0,2}(?:/|per |a )\s{0,2}"
    r"(?:step|it(?:er(?:ation)?)?|batch)\b"
    r"|\b(?:steps?|iter(?:ation)?s?)(?:[ _]time)?(?: (?:is|was|takes?|took|of))?[:= ]{1,3}"
    r"(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|sec)\b",
    re.I,
)
_BARE = re.compile(r"[:=]?\s{1,4}~?(\d{1,9}(?:\.\d{1,6})?)\s{0,2}(ms|s|sec)?\s{0,4}\.?$")
_CUT = re.compile(
    r";|\.\s(?=[A-Z])|,? (?:vs\.?|versus|against) "
    r"|, (?=(?:with|without|no|after|before|same|but|when|default)\b)|(?: -> | → )"
)
_OFF = re.compile(
    r"\b(?:without|no|off|removed?|disabled?|unset|false|none|unlimited|stopp?ed|killed|kill|killing|gone|dropped"
    r"|commented out|instead of|not)\b|=\s?(?:0|None|False|false|max|-1)(?![\w.])", re.I,
)  # fmt: skip
_NUMBER = re.compile(r"[=: ]{1,3}(\d{1,6})(?![\d.]|\s?(?:samples|s/|ms|it/|img))")


@dataclass(frozen=True, slots=True)
class _Kind:
    """`by_number`: 1 where a larger number is the lighter, -1 where a smaller one is, 0 where only having it counts."""

    name: str
    words: re.Pattern[str]
    by_number: int = 0
    light: re.Pattern[str] | None = None  # words of a run that does without, whatever else is said


def _words(*alternatives: str) -> re.Pattern[str]:
    return re.compile("|".join(alternatives), re.I)


_KINDS = (
    _Kind(
        "threads",
        _words(r"(?:OMP|MKL|OPENBLAS)_NUM_THREADS", r"set_num_threads", r"threads per rank", r"intra[-_ ]op"),
        -1,
    ),
    _Kind(
        "loader",
        _words(r"(?:num|dataloader|loader)_?workers", r"--workers", r"prefetch_factor", r"real data", r"data ?loader"),
        1,
        _words(
            r"synthetic", r"fake[-_ ]data", r"dummy[-_ ](?:data|batch)", r"random (?:data|tensors)", r"data in ram",
            r"cached batch",
        ),
    ),
    _Kind(
        "quota",
        _words(r"limits?\.cpu", r"cpu[-_ ]?(?:limit|quota)", r"--cpus\b", r"cpu\.max", r"cfs[-_ ]quota"),
        1,
        _words(r"no (?:cpu )?(?:limit|quota)", r"limit removed", r"unlimited"),
    ),
    _Kind(
        "binding",
        _words(
            r"cpu[-_]?bind", r"--bind-to", r"taskset", r"numactl", r"map_cpu", r"mask_cpu", r"affinity", r"cpuset",
            r"pinn(?:ed|ing) (?:to|of)", r"OMP_PROC_BIND",
        ),
    ),
    _Kind(
        "synchronising",
        _words(
            r"\.item\(\)", r"\.cpu\(\)", r"\.tolist\(\)", r"cuda\.synchronize", r"CUDA_LAUNCH_BLOCKING",
            r"print(?:ing)?\(?.{0,12}loss", r"nonzero\(\)",
        ),
    ),
    _Kind(
        "lock",
        _words(
            r"pin_memory", r"writer thread",
            r"(?:log(?:ger|ging)|async[-_ ]?(?:ckpt|checkpoint)|tensorboard|wandb|metrics?)[-_ ]thread",
        ),
    ),
    _Kind("callback", _words(r"call-?back", r"python (?:predicate|hook|function|udf) (?:per|for|in)")),
    _Kind("other program", _words(r"\b(?:kill|killed|killing|stopp?(?:ed|ing)|pkill|systemctl stop)\b")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    kind: str
    times: float
    slow: str
    fast: str


@dataclass(frozen=True, slots=True)
class Tried:
    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    says: str
    pace: float  # in steps or samples a second
    unit: str


def _runs(text: str) -> list[_Run]:
    found: list[_Run] = []
    lines = [line for line in lines_of(text[:LONGEST_TEXT], 1000) if line.strip()][:MOST_LINES]
    for line in lines:
        before = ""
        for part in _CUT.split(line):
            if (run := _run(part, before)) is not None:
                found.append(run)
                before = run.unit
    return found


def _run(part: str, unit: str) -> _Run | None:
    """A part without a unit has that of the one before it in its line."""
    says = clean(part.strip(" -*|\t"))[:160]
    if rate := _RATE.search(part):
        return _Run(says, value, "rate") if (value := float(rate[1].replace(",", "."))) else None
    if took := _TIME.search(part):
        value = float((took[1] or took[3]).replace(",", ".")) * (1e-3 if (took[2] or took[4]).lower() == "ms" else 1.0)
        return _Run(says, 1 / value, "time") if value else None
    if bare := _BARE.search(part):
        value = float(bare[1]) * (1e-3 if bare[2] == "ms" else 1.0)
        if unit == "rate" and not bare[2] and value:
            return _Run(says, value, unit)
        if (unit == "time" or (not unit and bare[2] and _OFF.search(part))) and value:
            return _Run(says, 1 / value, "time")
    return None


def _weight(kind: _Kind, run: _Run) -> float | None:
    """How much of the setting a run has: the less, the lighter. None where it tells nothing of it."""
    if kind.light is not None and kind.light.search(run.says):
        return float("-inf")
    found = kind.words.search(run.says)
    off = _OFF.search(run.says)
    if kind.name == "other program":
        return 0.0 if found else 1.0
    if found is None:
        return 0.0 if off and not kind.by_number else None
    if not kind.by_number:
        return 0.0 if off else 1.0
    number = _NUMBER.match(run.says, found.end())
    if number is not None:
        return -kind.by_number * float(number[1])
    return None if off is None else float("-inf") if kind.name == "quota" else float("inf")


def trials(text: str) -> list[Trial]:
    runs = _runs(text)
    found = []
    for kind in _KINDS:
        if not any(kind.words.search(run.says) for run in runs):
            continue
        for unit in ("rate", "time"):
            told = [(weight, run) for run in runs if run.unit == unit and (weight := _weight(kind, run)) is not None]
            if len({weight for weight, _ in told}) < 2:
                continue
            heavy, light = max(told, key=lambda one: one[0]), min(told, key=lambda one: one[0])
            times = light[1].pace / heavy[1].pace
            if times >= LEAST:
                found.append(Trial(kind.name, round(times, 1), heavy[1].says, light[1].says))
    return found


def fits(head: str, name: str) -> bool:
    if len(head) > LONGEST_TEXT or head.lstrip()[:1] in "[{":
        return False
    lines = [line for line in lines_of(head, 1000) if line.strip()]
    return len(lines) <= MOST_LINES and bool(trials(head))


def read(text: str) -> Tried:
    found = trials(text)
    if not found:
        raise refuse("two runs that differ in one setting, and how fast each was", text)
    return Tried(tuple(found[:16]))


def findings(facts: Tried) -> Iterable[Finding]:
    for one in facts.trials:
        says = f"{one.times:g} times as fast: '{one.fast}' beside '{one.slow}'"
        yield Finding("evidence.tried", "info", says)


TOOL = Tool("experiments", "evidence.tried", fits, read, findings, host_in)
