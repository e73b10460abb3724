"""Typed reading of environment variables. A wrong value stops the start, and the message says what to set."""

import os


class SettingError(Exception):
    """An environment variable, or a folder it names, cannot be used. The message is one line for a person."""


def text(name: str, default: str = "") -> str:
    """The variable without surrounding blanks; `default` when it is unset or empty."""
    return os.environ.get(name, "").strip() or default


def flag(name: str, default: bool = False) -> bool:
    """1/true/yes/on or 0/false/no/off. Raises SettingError for anything else."""
    value = text(name).lower()
    if not value:
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise SettingError(f"{name} is {value!r}. Set it to 1 or 0, or unset it.")


def number(name: str, default: int, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included. Raises SettingError for anything else."""
    value = text(name)
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or not low <= int(value) <= high:
        raise SettingError(f"{name} is {value!r}. Set it to a whole number from {low} to {high}, or unset it.")
    return int(value)


def words(name: str) -> list[str]:
    """A comma-separated list without blanks or empty items."""
    return [word.strip() for word in text(name).split(",") if word.strip()]


def url(name: str, schemes: tuple[str, ...], example: str) -> str:
    """A URL whose scheme is one of `schemes`, or "" when unset. Raises SettingError, without the value: it may hold
    a password."""
    value = text(name)
    if value and value.partition("://")[0] not in schemes:
        raise SettingError(
            f"{name} must begin with one of: {', '.join(s + '://' for s in schemes)}. Example: {example}"
        )
    return value


def file(name: str) -> str:
    """The path of a file that can be read, or "". Raises SettingError when it cannot."""
    path = os.path.expanduser(text(name))
    if not path:
        return ""
    try:
        with open(path):
            return path
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
        raise SettingError(f"{name} names {path}, which {reason}. Correct it, or unset it.") from None
