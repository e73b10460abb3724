"""Profiles of ranks, from files that people brought and as the probe rank.profiles took them: for rules one form.

Shape    profiles(evidence) -> Seen whose facts are one Profile; whose.rank_of tells the rank
Errors   none
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from probes.catalog.rank_profiles import RATE
from probes.diagnosis.core import Evidence, Seen

MOST_OF_THE_TIME = 0.5  # judgement: who has the lock for less keeps nobody from running


def profiles(evidence: Evidence) -> Iterator[Seen]:
    yield from evidence.of("rank.profile")
    for seen in evidence.of("rank.profiles"):
        for one in seen.facts.profiles:
            if one.profile is None:
                continue
            # Of a rank that waits in native code, the lock is nobody's: the few samples are of whoever wakes up.
            if one.lock and one.profile.total < MOST_OF_THE_TIME * RATE * seen.facts.seconds:
                continue
            yield dataclasses.replace(seen, probe="rank.profile", facts=one.profile)
