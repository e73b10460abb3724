"""From readings to a verdict: evidence, rules (one per file in rules/), ranking, diagnostic paths."""

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Seen
from probes.diagnosis.judging import Diagnoser, Diagnosis, diagnose

__all__ = ["Diagnoser", "Diagnosis", "Evidence", "Hypothesis", "Reason", "Seen", "diagnose"]
