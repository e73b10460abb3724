"""A rank never entered the collective that its group waits in: how it looks, whatever made it late."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for rank, suspect in evidence.suspects.items():
        view = suspect.view
        because = list(suspect.because)
        waits = view.waits
        # A stack of a rank that left no dump may be of any moment: it may have died since.
        is_in = "is" if view.dump is not None or view.place is not None else "was, when its stack was taken,"
        if waits is not None and waits.kind not in ("unknown", "stopped"):
            own = Reason(f"its main thread {is_in} in {waits}", view.ref("rank.stack"))
            because += [own] if not any("main thread" in reason.says for reason in because) else []
        subject = view.subject
        if suspect.stalls:
            subject["group"] = suspect.stalls[0].desc or suspect.stalls[0].group
        place = f": it {is_in} in {waits}" if waits is not None and waits.kind not in ("unknown", "stopped") else ""
        yield Hypothesis(
            "fw.rank_missing_collective",
            subject,
            f"{view.headline} {suspect.says}{place}",
            tuple(because),
            suspect.signals,
            against=suspect.against,
            would_change=("a later dump in which it has entered that collective", "a stack that says why it is late"),
            ranks=frozenset({rank}),
            nodes=frozenset({view.node}),
        )


RULE = Rule(("fw.rank_missing_collective",), judge)
