"""Marks and colours of levels: never a colour alone."""

from datetime import datetime

from django import template

from incidents import clock, policy
from incidents.queries.incident import WORDS
from probes import nodeset
from probes.topology import STATES, PortState

register = template.Library()

GLYPHS = {"ok": "■", "warn": "▲", "bad": "◆", "unknown": "◌", "absent": "–"}
MARKS = {"ok": "✓", "warn": "▲", "bad": "◆", "unknown": "○", "info": "·"}


@register.filter
def at(mapping: dict[int, str], key: int) -> str:
    """The value at a key, or ""."""
    return mapping.get(key, "")


@register.filter
def may(role: str | None, route: str) -> bool:
    """Whether somebody with this role may act on a route: no button is shown that would be refused."""
    return policy.may(role, route)


@register.filter
def fold(names: list[str]) -> str:
    """Node names as one folded list."""
    return nodeset.fold(names)


@register.filter
def glyph(level: str) -> str:
    """The glyph of a matrix cell."""
    return GLYPHS.get(level, "")


@register.filter
def word(level: str) -> str:
    """The word of a matrix cell."""
    return WORDS.get(level, level)


@register.filter
def since(moment: datetime, t0: datetime) -> str:
    """A moment of an incident, T+6:41."""
    return clock.t_plus(t0, moment)


@register.filter
def moment(seconds: float) -> str:
    """Seconds since the epoch as a time."""
    return clock.moment(seconds)


@register.filter
def mark(level: str) -> str:
    """The mark of a level or severity."""
    return MARKS.get(level, "○")


@register.filter
def css(level: str) -> str:
    """The colour class of a level."""
    return "unk" if level == "unknown" else level


@register.filter
def level_of(port: PortState) -> str:
    """The level of a port's state."""
    return STATES[port.state].level


@register.filter
def glyph_of(port: PortState) -> str:
    """The shape of a port's state."""
    return STATES[port.state].glyph
