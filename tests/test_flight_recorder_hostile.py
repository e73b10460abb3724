"""Flight-recorder dumps that are hostile, cut off or no dumps: nothing in one can run, hang or flood."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probes.catalog.recorder.apart import reduce_apart
from probes.catalog.recorder.decode import Refused
from probes.catalog.recorder.facts import dump_of
from probes.catalog.recorder.reader import LIMITS, reduce
from probes.core import facts_as_json
from tests.support.flight_recorders import HANGS, STAMP, dump, entry


class Evil:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_that_a_dump_names_is_run(protocol: int, tmp_path: Path) -> None:
    data = pickle.dumps({"version": "2.10", "entries": [Evil(tmp_path / "made")]}, protocol)
    with pytest.raises(Refused, match="io.open|_io.open|nothing of it was run"):
        reduce(data)
    assert list(tmp_path.iterdir()) == []


LAUGHS = b"\x80\x02]q\x00" + b"".join(
    b"]q%c(h%c" % (n, n - 1) + b"h%c" % (n - 1) * 9 + b"e" for n in range(1, 60)
)  # ten times ten times ten ...: a list of 10^59 places in 1.5 KB


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"rank 0 began\n", "neither a pickle nor JSON"),
        (b"\x7fELF\x02\x01", "neither"),
        (b"\x80\x02}r\x00\x00\x00\x08.", "more memory"),  # a memo of 2^27 places
        (b"\x80\x02" + b"]" * 1_000_000 + b"." , "no flight-recorder dump"),
        (b"\x80\x02X\xff\xff\xff\x7f", "ends too early|more memory"),
        (b"\x80\x04\x8e" + b"\xff" * 8, "decoded|more memory|too early"),
        (b'{"entries": [' + b"[" * 100_000, "RecursionError|recursion"),
        (b'{"entries": [{"pg_id": 1}', "decoded"),
        (b'{"entries": 3}', "not a list"),
        (b'{"entries": [3]}', "not a list of records"),
        (b'{"status": "ok"}', "none of entries"),
        (b"[]", "none of entries"),
        (b"\x80\x02]q\x00.", "none of entries"),
    ],
)  # fmt: skip
def test_what_is_no_dump_is_refused_with_why(data: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        reduce_apart(data)


def test_a_dump_that_is_cut_off_says_so() -> None:
    data = (HANGS / "ddp_unused" / "fr_exit_rank_0").read_bytes()
    for length in (10, 100, len(data) // 2, len(data) - 1):
        with pytest.raises(Refused, match="ends too early"):
            reduce(data[:length])


def test_a_structure_that_multiplies_itself_costs_nothing() -> None:
    with pytest.raises(Refused):
        reduce_apart(LAUGHS + b".")
    sizes = LAUGHS[2:] + b"X\x00\x00\x00\x00"  # the same as a value of a field that is read
    whole = (
        b"\x80\x02}X\x07\x00\x00\x00entries](}(X\x0b\x00\x00\x00input_sizes"
        + sizes
        + b"X\x05\x00\x00\x00state"
        + b"uee"
        + b"s."
    )
    with pytest.raises(Refused):
        reduce_apart(whole)


def test_a_dump_that_takes_too_long_is_ended() -> None:
    """Many entries with many sizes, no two the same: a second of CPU is not enough for them."""
    row, sizes = entry(1), [[1] * 30] * 10_000
    rows = [dict(row, record_id=n, collective_seq_id=n, input_sizes=[[n], *sizes]) for n in range(300)]
    with pytest.raises(Refused, match="takes more than 1 s"):
        reduce_apart(dump(*rows), {**LIMITS, "cpu_s": 1})


@pytest.mark.parametrize("pair", [(), ("a",), ("a", [1]), ("a", {}), (1, "b"), ("a", "b", "c")])
def test_a_group_of_the_wrong_shape_costs_nothing_else(pair: Any) -> None:
    told = reduce(dump(entry(1, process_group=pair), entry(2)))
    assert sum(group["held"] for group in told["groups"]) == 2


def test_sizes_that_hold_themselves_are_unknown() -> None:
    def endless() -> list[Any]:
        sizes: list[Any] = []
        sizes.append(sizes)
        return sizes

    told = reduce(dump(entry(1, input_sizes=endless()), entry(2, input_sizes=endless())))
    assert [signature[1] for signature in told["signatures"]] == [[[-1]]]


def test_values_of_the_wrong_kind_become_unknown_and_nothing_raises() -> None:
    odd = [
        None,
        -1,
        2**70,
        1.5,
        float("nan"),
        "x" * 10_000,
        b"\xff",
        [],
        [[[]]],
        {},
        {"a": {}},
        True,
        "\ud800",
        "\x1b[31m",
    ]
    chance = random.Random(5)
    for _ in range(400):
        rows = [entry(n) for n in range(3)]
        for row in rows:
            for key in chance.sample(sorted(row), 4):
                row[key] = chance.choice(odd)
        words = {key: chance.choice(odd) for key in chance.sample(["version", "pg_config", "pg_status"], 2)}
        told = facts_as_json(dump_of(reduce(dump(*rows, protocol=4, **words)), {**STAMP, "bytes": 1}))
        assert "\x1b" not in json.dumps(told)


GARBLER = """
import random, sys
sys.path.insert(0, sys.argv[1])
from probes.catalog.recorder.reader import LIMITS, reduce
from probes.catalog.recorder.decode import Refused, confine
from probes.catalog.recorder.facts import dump_of
confine({**LIMITS, "cpu_s": 90})
data = open(sys.argv[2], "rb").read()
stamp = {"rank": 0, "pid": 7, "host": "n", "world_size": 4, "how": "file", "path": "", "mtime": 1.0, "at": 1.0}
stamp["bytes"] = 1
chance, read, refused = random.Random(7), 0, 0
for _ in range(1500):
    garbled = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        garbled[chance.randrange(len(garbled))] = chance.randrange(256)
    try:
        dump_of(reduce(bytes(garbled)), stamp)
        read += 1
    except Refused:
        refused += 1
print(read, refused)
"""


def test_a_garbled_dump_is_refused_or_read_but_never_anything_else() -> None:
    """In a limited process, because a garbled byte may ask for all memory there is."""
    root, file = Path(__file__).parents[1], HANGS / "ddp_unused" / "fr_exit_rank_1"
    command = [sys.executable, "-c", GARBLER, str(root), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.split())
    assert read > 100
    assert refused > 100
