"""What somebody tried: the same measured twice, with one thing changed that has to do with the network.

    all_reduce_perf 8G busbw:                   with NCCL_TOPO_FILE=/etc/nccl/old.xml: busbw 61 GB/s; without: 364 GB/s
    as is: 22.4 GB/s
    after modprobe nvidia_peermem: 182 GB/s     NCCL_SOCKET_IFNAME unset: init hangs / =eth0: init in 4 s

Shape    facts evidence.trials: what was changed, and the worse and the better of what was measured
Units    as told; only the ratio of two values with the same unit is used
Errors   ParseError where no such pair stands in it
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from probes.core import Finding, clean
from probes.intake.tools import Tool
from probes.intake.tools._text import refuse

LOOKED_AT, MOST_CLAUSES = 16_384, 400
TIMES = 2.0  # judgement: runs of the same differ by less
# What was changed, as people name it.
LEVERS = (
    ("peermem", re.compile(r"peer[_-]?mem|GPU ?Direct|\bGDR\b|NCCL_NET_GDR_LEVEL|\bACS\b", re.I)),
    ("topology", re.compile(
        r"NCCL_TOPO_FILE|NCCL_GRAPH_FILE|NCCL_P2P_(?:DISABLE|LEVEL)|NCCL_NVLS_ENABLE|NCCL_MAX_NCHANNELS"
    )),
    ("interface", re.compile(r"(?:NCCL|GLOO|TP)_SOCKET_IFNAME", re.I)),
    ("gid", re.compile(r"NCCL_IB_GID_INDEX|gid[ _]index", re.I)),
    ("lossless", re.compile(r"\bPFC\b|\bECN\b|mlnx_qos|NCCL_IB_TC\b")),
    ("mtu", re.compile(r"\bmtu\b", re.I)),
    ("memlock", re.compile(r"ulimit -l|memlock", re.I)),
    ("library", re.compile(r"\bNCCL (?:v|version )?2\.\d{1,2}(?:\.\d{1,2})?", re.I)),
)  # fmt: skip
_CLAUSE = re.compile(r"\n|;|\s/\s|\bvs\.?\s|(?<=\w)\. (?=[A-Za-z])")
_RATE = re.compile(
    r"(?<![\w.])(\d{1,9}(?:\.\d{1,4})?) ?"
    r"(GB/s|GiB/s|Gb/s|Gbps|Gbit/s|MB/s|(?:samples?|tok(?:en)?s?|it(?:er)?s?|steps?|img|images|seqs?)"
    r" ?(?:/|per )s(?:ec)?\w{0,4}|TFLOPS?\b)", re.I,
)  # fmt: skip
_TIME = re.compile(r"(?<![\w.])(\d{1,7}(?:\.\d{1,4})?) ?(ms|s|sec|min) ?(?:/|per) ?(?:it|iter|step)\w{0,6}", re.I)
_CONTRAST = re.compile(
    r"\b(?:without|with|default|unset|not set|otherwise|before|after|as is|baseline|stock|instead)\b|=0\b|=1\b", re.I
)
_STUCK = re.compile(
    r"\bhang(?:s|ing)?\b|\bhung\b|\bstuck\b|\btim(?:es|ed) out\b|\bnever (?:finishes|ends|returns)\b", re.I
)
_RUNS = re.compile(
    r"\b(?:runs?|works?|trains?|fine|passes|passed|no hang|without|completes?|finishes|init in|ok)\b", re.I
)


@dataclass(frozen=True, slots=True)
class Trial:
    lever: str
    worse: str  # the clause as it was written
    better: str
    times: float | None  # None where it hung or ran


@dataclass(frozen=True, slots=True)
class Trials:
    trials: tuple[Trial, ...]


def fits(head: str, name: str) -> bool:
    if " NCCL INFO " in head or len(head) > LOOKED_AT:
        return False
    return bool(_found(head))


def read(text: str) -> Trials:
    found = _found(text[:LOOKED_AT])
    if not found:
        raise refuse("two runs of which one thing differs", text)
    return Trials(tuple(found))


def _found(text: str) -> list[Trial]:
    if not any(pattern.search(text) for _, pattern in LEVERS):
        return []
    clauses = [part.strip() for part in _CLAUSE.split(text) if part.strip()][:MOST_CLAUSES]
    found = []
    for one, two in zip(clauses, clauses[1:], strict=False):
        lever = next((name for name, pattern in LEVERS if _changed(pattern, one, two)), "")
        if lever and (told := _compared(lever, one, two)) is not None:
            found.append(told)
    return found[:20]


def _changed(lever: re.Pattern[str], one: str, two: str) -> bool:
    """Both name it, or one does and a word says that the other is the run with or without it."""
    named = [bool(lever.search(text)) for text in (one, two)]
    return all(named) or (any(named) and bool(_CONTRAST.search(f"{one} {two}")))


def _compared(lever: str, one: str, two: str) -> Trial | None:
    if len(one) > 240 or len(two) > 240:
        return None
    said = clean(one), clean(two)
    rates = _measured(_RATE, one), _measured(_RATE, two)
    if rates[0] and rates[1] and rates[0][1] == rates[1][1]:
        worse, better = (0, 1) if rates[0][0] < rates[1][0] else (1, 0)
        times = max(rates[0][0], rates[1][0]) / max(min(rates[0][0], rates[1][0]), 1e-9)
        return Trial(lever, said[worse], said[better], times) if times >= TIMES else None
    stuck = [bool(_STUCK.search(text)) for text in (one, two)]
    other = two if stuck[0] else one
    if sum(stuck) == 1 and (_RUNS.search(other) or _TIME.search(other)):
        return Trial(lever, said[stuck.index(True)], said[stuck.index(False)], None)
    took = _measured(_TIME, one), _measured(_TIME, two)
    if took[0] and took[1] and took[0][1] == took[1][1] and not any(stuck):
        worse, better = (0, 1) if took[0][0] > took[1][0] else (1, 0)
        times = max(took[0][0], took[1][0]) / max(min(took[0][0], took[1][0]), 1e-9)
        return Trial(lever, said[worse], said[better], times) if times >= TIMES else None
    return None


def _measured(pattern: re.Pattern[str], text: str) -> tuple[float, str] | None:
    found = pattern.search(text)
    return (float(found[1]), re.sub(r"\s", "", found[2].lower()).rstrip("s")) if found else None


def quiet(facts: Trials) -> Iterable[Finding]:
    return ()


TOOL = Tool("trials", "evidence.trials", fits, read, quiet, log=True)
