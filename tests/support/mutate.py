"""Recordings spoiled as files get spoiled: the same seed gives the same bytes."""

from __future__ import annotations

import random
import re

LONGEST = 400_000  # bytes of one input
ODD = (
    b"\0",
    b"\xff",
    b"\x1b[2J",
    b"\r",
    b"\r\n",
    b"\xef\xbb\xbf",
    "\u2028".encode(),
    "\u0661".encode(),
    b"\x85",
    b"%n",
)


def mutated(data: bytes, other: bytes, seed: int) -> bytes:
    """One to three changes. `other` is a recording of another kind, which may be spliced in."""
    dice = random.Random(seed)
    for _ in range(dice.randint(1, 3)):
        data = dice.choice(CHANGES)(data, other, dice)[:LONGEST]
    return data


def _truncate(data: bytes, other: bytes, dice: random.Random) -> bytes:
    return data[: dice.randint(0, len(data))]


def _behead(data: bytes, other: bytes, dice: random.Random) -> bytes:
    return data[dice.randint(0, len(data)) :]


def _flip(data: bytes, other: bytes, dice: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(min(len(found), dice.choice((1, 10, 200)))):
        found[dice.randrange(len(found))] = dice.randrange(256)
    return bytes(found)


def _repeat(data: bytes, other: bytes, dice: random.Random) -> bytes:
    begin = dice.randint(0, len(data))
    part = data[begin : begin + dice.choice((1, 10, 100, 3000))]
    return data[:begin] + part * dice.choice((2, 50, 3000)) + data[begin:]


def _splice(data: bytes, other: bytes, dice: random.Random) -> bytes:
    at, there = dice.randint(0, len(data)), dice.randint(0, len(other))
    return data[:at] + other[there : there + 5000] + data[at:]


def _newlines(data: bytes, other: bytes, dice: random.Random) -> bytes:
    return data.replace(b"\n", dice.choice((b"\r\n", b"\r", b"", b"\n\n", b"\0", b"\x0b", b" ")))


def _odd(data: bytes, other: bytes, dice: random.Random) -> bytes:
    for _ in range(dice.choice((1, 20))):
        at = dice.randint(0, len(data))
        data = data[:at] + dice.choice(ODD) + data[at:]
    return data


def _long_line(data: bytes, other: bytes, dice: random.Random) -> bytes:
    at = data.find(b"\n", dice.randint(0, len(data)))
    at = len(data) if at < 0 else at
    return data[:at] + dice.choice((b"x", b" ", b"9", b"a,", b"[", b"( ", b"=", b"-", b"1:")) * 100_000 + data[at:]


def _numbers(data: bytes, other: bytes, dice: random.Random) -> bytes:
    new = dice.choice(
        (b"-1", b"0", b"99999999999999999999999999", b"1e999", b"nan", b"", b"0x10", b"18446744073709551615")
    )
    share = dice.choice((0.02, 0.3, 1.0))
    return re.sub(rb"\d{1,30}", lambda found: new if dice.random() < share else found[0], data)


def _lines(data: bytes, other: bytes, dice: random.Random) -> bytes:
    rows = data.split(b"\n")
    how = dice.randrange(3)
    if how == 0:
        rows = [row for row in rows if dice.random() > 0.2]
    elif how == 1:
        dice.shuffle(rows)
    else:
        rows = [row[: dice.randint(0, len(row))] if dice.random() < 0.2 else row for row in rows]
    return b"\n".join(rows)


CHANGES = (_truncate, _behead, _flip, _repeat, _splice, _newlines, _odd, _long_line, _numbers, _lines)
