"""Profiles: collapsed stacks and speedscope files, as py-spy record writes them, and the text of perf script.

Source   see probes.catalog.stacks.profile
Shape    Profile, under the name rank.profile: no probe takes one, it costs the process too much to do unasked
Errors   ParseError when the lines are not of this form
"""

from __future__ import annotations

from dataclasses import replace

from probes.catalog.stacks.profile import Profile, findings, is_of_lock, is_profile, parse_profile
from probes.intake.tools import Tool


def named(facts: Profile, path: str) -> Profile:
    """A file that is called so holds only samples with the interpreter's lock."""
    return replace(facts, lock=facts.lock or is_of_lock("", path.rpartition("/")[2]))


TOOL = Tool("profile", "rank.profile", lambda head, name: is_profile(head), parse_profile, findings, named=named)
