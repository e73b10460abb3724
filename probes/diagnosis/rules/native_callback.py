"""A native extension calls back into Python all the time: the CPU is spent between the two.

Source   profiles with native frames, py-spy record --native or perf: an extension's frame with Python above and below
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.catalog._profile import rank_named
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule

CAUSE = "cpu.native_callback"
MOST_SAMPLES = 0.3  # judgement: from here on it is what the process does


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen in evidence.of("rank.profile"):
        profile, rank = seen.facts, rank_named(seen.ref)
        for name, count in profile.callbacks[:1]:
            if count < MOST_SAMPLES * profile.total:
                continue
            subject: dict[str, str | int] = {"node": seen.node} if seen.node else {}
            if rank is not None:
                subject = evidence.job.view(rank).subject
            share = f"{100 * count / profile.total:.0f} % of {profile.total} samples"
            place = f", most in {profile.callback_at}" if profile.callback_at else ""
            yield Hypothesis(
                CAUSE,
                subject,
                f"{name} spends {share} in call-backs into Python{place}",
                (Reason(f"{share} have Python below {name}, called by it{place}", seen.ref),),
                ("callbacks_in_profile",),
                would_change=("a profile in which the extension does not call Python",),
                ranks=frozenset({rank}) if rank is not None else frozenset(),
                nodes=frozenset({seen.node}),
            )


RULE = Rule((CAUSE,), judge)
