"""Readings as the database keeps them: facts and findings as JSON values, read back as what they were.

Shape    stored(...) -> Seen
Errors   none: facts of another version's form are a failed reading
"""

from __future__ import annotations

import functools
import typing
from typing import Any

import cattrs

from probes import catalog
from probes.core import Finding, Outcome
from probes.diagnosis.core import Seen
from probes.intake.tools import facts_of_tool


@functools.cache
def form_of(probe: str) -> Any:
    """The type of a probe's facts: as the probe says, or as the tools do that tell them. None where nothing does."""
    found = catalog.load().get(probe)
    return typing.get_type_hints(found.parse)["return"] if found is not None else facts_of_tool(probe)


def _converter() -> cattrs.Converter:
    """Facts come back from JSON as what they were: what may be one of several plain values is taken as it is."""
    converter = cattrs.Converter(prefer_attrib_converters=False)
    for plain in (str | int, int | str, str | int | float, int | float | str):
        converter.register_structure_hook(plain, lambda value, _: value)
    return converter


_convert = _converter()


def stored(node: str, probe: str, outcome: Outcome, why: str, facts: Any, findings: list[dict[str, Any]]) -> Seen:
    """One reading. Facts of an older form count as failed, those of a probe that is no more as none."""
    typed = None
    if facts is not None and (form := form_of(probe)) is not None:
        try:
            typed = _convert.structure(facts, form)
        except Exception as error:  # cattrs raises groups of whatever its hooks raise
            outcome, why = "failed", f"stored by another version of Golden15: {type(error).__name__}"
    found = tuple(_finding(one) for one in findings)
    return Seen(f"{node}/{probe}", node, probe, outcome, why, typed, found)


def _finding(one: dict[str, Any]) -> Finding:
    """Earlier versions did not keep when it was last seen."""
    at, stamp = one.get("last", (None, ""))
    return Finding(one["code"], one["severity"], one["says"], one["subject"], (at, stamp))
