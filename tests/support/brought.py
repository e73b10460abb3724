"""Files that people bring, written by a test, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from probes import intake
from probes.diagnosis import diagnose
from probes.diagnosis.core import seen
from probes.diagnosis.judging import Diagnosis

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"


@dataclass(frozen=True, slots=True)
class Told:
    """What leads, how likely it is, and the rest."""

    cause: str
    subject: Mapping[str, str | int]
    probability: float
    says: str
    diagnosis: Diagnosis
    unread: tuple[str, ...]

    def share(self, cause: str) -> float:
        return sum(one.probability for one in self.diagnosis.ranked if one.hypothesis.cause == cause)

    def step(self, path: str, step: str) -> tuple[str, str]:
        one = next(one for one in self.diagnosis.paths[path].steps if one.id == step)
        return one.state, one.why


def told(folder: Path, files: Mapping[str, str]) -> Told:
    """Write these files below `folder`, and judge them as an upload is judged."""
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    found = intake.read([folder])
    judged = diagnose([seen(reading, ref) for ref, reading in found.readings], found.asked, found.expected)
    assert not judged.failed, judged.failed
    first = judged.verdict
    one = first.hypothesis
    unread = tuple(f"{left.file.removeprefix(str(folder) + '/')}: {left.why}" for left in found.unread)
    return Told(one.cause, one.subject, first.probability, one.says, judged, unread)
