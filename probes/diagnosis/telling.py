"""A diagnosis as plain JSON values: one form for the command, the page and the record. See docs/explain.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from probes.core import clean
from probes.diagnosis import bandwidth, differences, flow, waiting
from probes.diagnosis.core import Hypothesis, Reason
from probes.diagnosis.judging import Diagnosis
from probes.diagnosis.ranking import Ranked

SCHEMA = 1
MOST = 20  # hypotheses that are told; the rest has no weight


def told(diagnosis: Diagnosis, unread: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """The whole diagnosis. Probabilities are rounded so that those told still sum to 1 (within 0.001)."""
    always = ("none", "unknown")
    ranked = [one for i, one in enumerate(diagnosis.ranked) if i < MOST or one.hypothesis.cause in always]
    shares = rounded([one.probability for one in ranked])
    return {
        "schema": SCHEMA,
        "verdict": diagnosis.verdict.hypothesis.cause,
        "hypotheses": [_hypothesis(one, share) for one, share in zip(ranked, shares, strict=True)],
        "paths": {
            path.id: {
                "title": path.title,
                "lane": path.lane,
                "state": path.state,
                "steps": [
                    {
                        "id": step.id,
                        "question": step.question,
                        "state": step.state,
                        "why": _text(step.why),
                        "reading": clean(step.reading)[:400],
                    }
                    for step in path.steps
                ],
            }
            for path in diagnosis.paths.values()
        },
        "chains": waiting.as_json(diagnosis.chains),
        "differences": differences.as_json(diagnosis.differences),
        "flow": flow.as_json(diagnosis.flow),
        "speeds": bandwidth.as_json(diagnosis.speeds),
        "failed": {name: _text(why) for name, why in diagnosis.failed.items()},
        "unread": [{"file": clean(file)[:400], "why": _text(why)} for file, why in unread],
    }


def _hypothesis(one: Ranked, share: float) -> dict[str, Any]:
    under = one.consequences
    found = one.hypothesis
    return {
        "cause": found.cause,
        "subject": dict(found.subject),
        "probability": share,
        "says": _text(found.says),
        "because": [_reason(reason) for reason in _all(found, under, lambda hypothesis: hypothesis.because)],
        "against": [_reason(reason) for reason in _all(found, under, lambda hypothesis: hypothesis.against)],
        "would_change": [_text(words) for words in found.would_change],
        "consequences": [
            {"cause": other.cause, "subject": dict(other.subject), "says": _text(other.says)} for other in under
        ],
        "runbook": None,
    }


def rounded(shares: Sequence[float], digits: int = 4) -> list[float]:
    """Rounded so that the sum stays: what rounding down loses goes to those that lost most."""
    scale = 10**digits
    units = [int(share * scale) for share in shares]
    missing = round(sum(shares) * scale) - sum(units)
    by_loss = sorted(range(len(shares)), key=lambda at: units[at] - shares[at] * scale)
    for at in by_loss[:missing]:
        units[at] += 1
    return [unit / scale for unit in units]


def _all(
    one: Hypothesis, under: Iterable[Hypothesis], part: Callable[[Hypothesis], tuple[Reason, ...]]
) -> list[Reason]:
    """The reasons of a hypothesis, then those of what it explains, each once."""
    return list(dict.fromkeys(reason for hypothesis in (one, *under) for reason in part(hypothesis)))[:24]


def _reason(reason: Reason) -> dict[str, str]:
    return {"says": _text(reason.says), "reading": clean(reason.reading)[:400]}


def _text(text: str) -> str:
    return clean(text)[:600]
