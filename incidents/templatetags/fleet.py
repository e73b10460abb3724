"""Marks and colours of levels: never a colour alone."""

from django import template

register = template.Library()

MARKS = {"ok": "✓", "warn": "▲", "bad": "◆", "unknown": "○", "info": "·"}


@register.filter
def at(mapping: dict[int, str], key: int) -> str:
    """The value at a key, or ""."""
    return mapping.get(key, "")


@register.filter
def mark(level: str) -> str:
    """The mark of a level or severity."""
    return MARKS.get(level, "○")


@register.filter
def css(level: str) -> str:
    """The colour class of a level."""
    return "unk" if level == "unknown" else level
