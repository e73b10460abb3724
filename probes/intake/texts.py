"""In which encoding a file is, and its bytes as UTF-8.

Units    bytes
Shape    encoding_of(first bytes) -> name, "" for what is no text; Recoded(stream, name) reads as UTF-8
Errors   none: what an encoding does not know becomes U+FFFD
Source   byte order marks: Unicode 16, section 23.8. PowerShell 5's `>` writes UTF-16 with one
"""

from __future__ import annotations

import codecs
import re
from typing import Any

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip  # those of UTF-32 first: the short one is the beginning of the long one
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
# Control characters that no text holds: not tab, line feed, form feed, carriage return, backspace, bell, escape, NUL.
_CONTROL = bytes(n for n in range(32) if n not in (0, 7, 8, 9, 10, 11, 12, 13, 27))
_KNOWN_BINARY = (b"\x7fELF", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"%PDF-", b"SQLite format 3", b"\x93NUMPY")
PART = 262_144


def mark_of(head: bytes) -> tuple[int, str]:
    """(bytes of the byte order mark, the encoding it says)."""
    return next(((len(mark), name) for mark, name in _MARKS if head.startswith(mark)), (0, ""))


def encoding_of(head: bytes) -> str:
    """By a byte order mark, else by what the first bytes can be. "" for a binary file, which stays as it is."""
    _, marked = mark_of(head)
    if marked:
        return marked
    if _PICKLE.match(head) or head.startswith(_KNOWN_BINARY):
        return ""
    sample = head[:4096]
    if len(sample) >= 8 and (wide := _wide(sample)):
        return wide
    if sum(sample.count(byte) for byte in _CONTROL) > len(sample) // 50:
        return ""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        # With some right UTF-8 in it the rest is damage; without any it is one of the old encodings of one byte, of
        # which everything that a parser looks at is ASCII.
        return "utf-8" if re.search(rb"[\xc3-\xf4][\x80-\xbf]", sample) else "cp1252"
    return "utf-8"


def _wide(sample: bytes) -> str:
    """UTF-16 without a mark: of mostly ASCII every second byte is NUL."""
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > half * 0.8 and even < half * 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > half * 0.8 and odd < half * 0.05 else ""


_COLOURS = re.compile(r"\x1b\[[0-9;:?]{0,32}[A-Za-z]")  # and where a terminal moves its cursor: ECMA-48, 5.4
_BEGUN = re.compile(r"\x1b(?:\[[0-9;:?]{0,32})?\Z")


class Recoded:
    """A stream of text in another encoding, or with the colours of a terminal in it, read as UTF-8 without them."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream, self._left, self._begun = stream, b"", ""
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; b"" at the end."""
        while len(self._left) < size:
            part = self._stream.read(PART)
            text = _COLOURS.sub("", self._begun + self._decoder.decode(part, final=not part))
            begun = _BEGUN.search(text) if part else None
            self._begun = begun[0] if begun else ""
            self._left += text[: len(text) - len(self._begun)].encode("utf-8", "replace")
            if not part:
                break
        found, self._left = self._left[:size], self._left[size:]
        return found
