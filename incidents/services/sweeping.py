"""What must happen even if the process that should have done it died."""

from __future__ import annotations

import logging

from django.db import Error

from incidents.services.actions import sweep_actions
from incidents.services.diagnosing import sweep_unjudged
from incidents.services.files import sweep_uploads
from incidents.services.looking import sweep_second_looks, sweep_set_ups
from incidents.services.response import tell_overdue
from incidents.services.runs import sweep_shards
from incidents.services.scoping import sweep_scans
from incidents.services.verifying import sweep_looks

log = logging.getLogger(__name__)

BROOMS = (sweep_shards, sweep_scans, tell_overdue, sweep_second_looks, sweep_set_ups, sweep_actions, sweep_looks,
    sweep_uploads, sweep_unjudged)  # fmt: skip


def sweep() -> int:
    """Set right what died halfway, and return how many things that were.

    Runs every few seconds in a process of its own, so that it is cheap when nothing is wrong and safe to run twice at
    once. Database errors are raised: the caller says so and tries again. Anything else costs only its own broom.
    """
    done = 0
    for broom in BROOMS:
        try:
            done += broom()
        except Error:
            raise
        except Exception:
            log.exception("%s failed; the others go on", broom.__name__)
    return done
