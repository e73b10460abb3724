"""When a recording answers: each node at its own time, each probe after as long as it took."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from incidents.models import Node
from incidents.queries import drills
from probes.core import Capture
from probes.transport import NodeEnd
from probes.transport.reasons import Trouble
from probes.transport.replay import BundleError
from probes.transport.ssh import unanswered

REACHED = 0.35  # of the whole span: by then every node was reached; the rest is for its probes
LACKING = "the recording holds no answer to this probe"


def schedule(
    nodes: Sequence[Node],
    probes: Sequence[str],
    recorded: drills.Recorded | None,
    answered: Mapping[str, Collection[str]],
    span: float,
) -> Iterator[tuple[float, Capture | NodeEnd]]:
    """(when it is due on the monotonic clock, what is due), in order: every probe of every node once, then its end.

    `answered`: probes by node that are known already. `span`: seconds for all of it, 0 for at once.
    """
    began = time.monotonic()
    found: list[tuple[float, int, Capture | NodeEnd]] = []
    for node in nodes:
        known = answered.get(node.name, ())
        wanted = [probe for probe in probes if probe not in known]
        captures, trouble = _answers(node.name, wanted, recorded)
        found += _timed(node.name, captures, trouble, span, len(found))
    for due, _, item in sorted(found, key=lambda one: one[:2]):
        yield began + due, item


def _answers(
    node: str, wanted: Sequence[str], recorded: drills.Recorded | None
) -> tuple[list[Capture], Trouble | None]:
    try:
        told = drills.answers_of(recorded, node) if recorded is not None else {}
        trouble = None if told else Trouble("not_recorded")
    except (BundleError, OSError) as error:
        told, trouble = {}, Trouble("not_recorded", str(error))
    except Exception as error:  # whatever is wrong with the files of one node: the others go on
        told, trouble = {}, Trouble("not_recorded", f"its recording cannot be read: {type(error).__name__}: {error}")
    if trouble is not None:
        return [unanswered(node, probe, trouble, 0.0) for probe in wanted], trouble
    return [told.get(probe) or Capture(node, probe, "skipped", why=LACKING) for probe in wanted], None


def _timed(
    node: str, captures: Sequence[Capture], trouble: Trouble | None, span: float, place: int
) -> Iterator[tuple[float, int, Capture | NodeEnd]]:
    """The captures of one node and its end, each with its time after the beginning, and its place in the order."""
    reached = span * REACHED * random.Random(node).random()
    longest = max((capture.took_s for capture in captures), default=0.0) or 1.0
    last = reached
    for number, capture in enumerate(captures):
        due = reached + span * (1 - REACHED) * min(1.0, capture.took_s / longest)
        last = max(last, due)
        yield due, place + number, capture
    reason, detail = (trouble.reason, trouble.detail) if trouble is not None else ("", "")
    end = NodeEnd(node, reason, detail, took_s=round(last, 3), connect_s=round(reached, 3))
    yield last, place + len(captures), end
