"""What must happen even if the process that should have done it died."""

from incidents.services.diagnosing import sweep_unjudged
from incidents.services.looking import sweep_second_looks
from incidents.services.response import tell_overdue
from incidents.services.runs import sweep_shards


def sweep() -> int:
    """Set right what died halfway, and return how many things that were.

    Runs every few seconds in a process of its own, so that it is cheap when nothing is wrong and safe to run twice at
    once. Database errors are raised: the caller says so and tries again.
    """
    return sweep_shards() + tell_overdue() + sweep_second_looks() + sweep_unjudged()
