"""Somebody ran the job with a setting and without it, and it was much faster without: the setting is why it is slow."""

from __future__ import annotations

from collections.abc import Iterator

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Seen
from probes.diagnosis.cpus import busiest

CAUSES = {
    "threads": ("cpu.thread_oversubscription", "With fewer threads of each rank"),
    "loader": ("cpu.dataloader_starved", "With more loader workers, or with data that needs no loading,"),
    "quota": ("cpu.quota_throttled", "With a larger CPU quota, or without one,"),
    "binding": ("cpu.affinity_collision", "Without binding its processes to CPUs"),
    "synchronising": ("cpu.implicit_sync", "Without synchronising with the device"),
    "lock": ("cpu.gil_contention", "Without that thread beside the trainer"),
    "callback": ("cpu.native_callback", "Without the call-back into Python"),
    "other program": ("cpu.process_hotspot", "With another program stopped"),
}
MUCH = 2.0  # times as fast: no other noise does that; judgement
RARE = ("cpu.implicit_sync", "cpu.native_callback")  # of few incidents the cause, but nothing else tells of them so
OFTEN = ("cpu.dataloader_starved",)


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    for seen in evidence.of("evidence.tried"):
        for one in seen.facts.trials:
            cause, how = CAUSES[one.kind]
            says = f"'{one.fast}', but '{one.slow}'"
            much = one.times >= MUCH
            signal = ("tried_of_rare" if much else "tried_much") if cause in RARE else "tried_much" if much else "tried"
            yield Hypothesis(
                cause,
                _subject(evidence, seen, cause),
                f"{how} the job is {one.times:g} times as fast",
                (Reason(says, seen.ref),),
                ("tried" if cause in OFTEN else signal,),
                would_change=("the same two runs, at the same speed",),
            )


def _subject(evidence: Evidence, seen: Seen, cause: str) -> dict[str, str | int]:
    """The program that was stopped is the busiest that is none of the job's, where one is seen on one node only."""
    if cause == "cpu.process_hotspot":
        busy = [(here.node, found[0]) for here in evidence.cpus.values() if (found := busiest(here.others()))]
        if len(busy) == 1:
            node, (name, _, some) = busy[0]
            worst = max(some, key=lambda one: one.cpu or 0.0)
            subject: dict[str, str | int] = {"node": node} if node else {}
            return subject | ({"pid": worst.pid} if worst.pid > 0 else {}) | {"process": name}
    return {"node": seen.node} if seen.node else {}


RULE = Rule(tuple(dict.fromkeys(cause for cause, _ in CAUSES.values())), judge)
