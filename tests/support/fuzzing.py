"""A process that feeds spoiled recordings to parsers, with bounds on its time and memory.

    python -m tests.support.fuzzing FIRST COUNT [TARGET...]   seeds FIRST to FIRST + COUNT - 1 of each target

Prints one line of JSON per trouble: target, seed, recording, what happened. Exit status 0 also then.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from probes import catalog, intake
from probes.catalog.logs.read import read_log
from probes.catalog.ranks.process_extract import extracts_of, ps_rows
from probes.catalog.recorder import reader
from probes.catalog.recorder.decode import Refused
from probes.catalog.stacks.text import stacks_of
from probes.core import Capture, ParseError
from probes.intake import archives, pasted, texts
from probes.intake.items import Budget, Item
from probes.intake.kinds import kind_of
from probes.intake.tools import tools
from tests.support.mutate import mutated

FIXTURES = Path(__file__).parent.parent / "fixtures"
CPU_S = 6.0  # of one input of at most 400 KB; the slowest parser takes a tenth of that
GROWS_KIB = (
    640 * 1024
)  # of the whole process, over all inputs; a hostile dump takes 330 MiB of what its own process may
ADDRESSES = 4 << 30
MOST_SEED = 200_000  # bytes of a recording


class TooSlow(BaseException):
    """An input took more CPU time than any may."""


@functools.cache
def recordings() -> tuple[Path, ...]:
    found = (path for path in sorted(FIXTURES.rglob("*")) if path.is_file() and 0 < path.stat().st_size <= MOST_SEED)
    return tuple(path for path in found if path.suffix not in (".md", ".tsv", ".py"))


def of_folder(name: str) -> list[Path]:
    return [path for path in recordings() if path.relative_to(FIXTURES).parts[0] == name] or list(recordings())


def of_name(part: str) -> list[Path]:
    return [path for path in recordings() if part in path.name] or list(recordings())


def parser(name: str) -> Callable[[bytes], object]:
    """A probe's parser and findings as they are used; only ParseError may come out of them."""

    def feed(data: bytes) -> None:
        reading = catalog.read(Capture("n", name, "ok", data))
        if "parser stopped on this output" in reading.parse_error:
            raise AssertionError(reading.parse_error)

    return feed


def tool_reader(name: str) -> Callable[[bytes], object]:
    tool = next(one for one in tools() if one.name == name)

    def feed(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        tool.fits(text[:65_536], "x.txt")
        tool.host(text)
        try:
            facts = tool.read(text)
        except ParseError:
            return
        judge = tool.findings if tool.findings is not None else catalog.load()[tool.probe].findings
        tuple(judge(facts))

    return feed


def tool_seeds(name: str) -> list[Path]:
    tool = next(one for one in tools() if one.name == name)
    mine = [path for path in recordings() if tool.fits(path.read_text(errors="replace")[:65_536], path.name)]
    return mine or list(recordings())


def item(data: bytes) -> Item:
    stream = io.BytesIO(data)
    return Item("x", PurePosixPath("gpu-1/x.log"), stream.read(65_536), len(data), stream=stream)


def archive(data: bytes) -> None:
    if not archives.is_archive(data[:512]):
        return
    budget = Budget(1000, 50_000_000)
    for one in archives.members(io.BytesIO(data), "a", PurePosixPath("a"), budget, 1, len(data)):
        if isinstance(one, Item):
            one.data  # noqa: B018 - reading it is the test


def reduce(data: bytes) -> None:
    with contextlib.suppress(Refused):
        reader.reduce(data, reader.LIMITS)


def refusing(read: Callable[[str], object]) -> Callable[[bytes], None]:
    def feed(data: bytes) -> None:
        with contextlib.suppress(ParseError):
            read(data.decode("utf-8", "replace"))

    return feed


def whole(data: bytes) -> None:
    """The door as it is used, on a folder with a sound file beside the spoiled one."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spoiled").write_bytes(data)
        (Path(folder) / "rank1.log").write_text("[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n")
        found = intake.read([Path(folder)])
        if not any(ref.endswith("rank1.log") for ref, _ in found.readings):
            raise AssertionError("the sound file beside it was not read")
        stopped = [one.why for one in found.unread if "its parser stopped on it" in one.why]
        if stopped:
            raise AssertionError(stopped[0])


@functools.cache
def packed() -> tuple[Path, ...]:
    folder = Path(tempfile.mkdtemp(prefix="golden15-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    some = [path for path in recordings() if path.stat().st_size < 20_000][:12]
    with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as one:
        for path in some:
            one.write(path, path.name)
    for mode in ("w", "w:gz", "w:bz2", "w:xz"):
        with tarfile.open(folder / f"a.tar.{mode[2:]}", mode) as two:  # type: ignore[call-overload]
            for path in some[:4]:
                two.add(path, path.name)
    return tuple(sorted(folder.iterdir()))


Feed = Callable[[bytes], object]


@functools.cache
def targets() -> dict[str, tuple[Feed, Callable[[], list[Path]]]]:
    """Target -> (what is fed, the recordings for it)."""
    found: dict[str, tuple[Feed, Callable[[], list[Path]]]] = {
        name: (parser(name), functools.partial(of_folder, name)) for name in catalog.load()
    }
    found |= {
        f"tool {tool.name}": (tool_reader(tool.name), functools.partial(tool_seeds, tool.name)) for tool in tools()
    }
    everything = lambda: list(recordings())  # noqa: E731
    found |= {
        "kinds": (lambda data: kind_of(item(data)), everything),
        "pasted": (lambda data: pasted.parts_of(data.decode("utf-8", "replace")), everything),
        "encodings": (lambda data: texts.encoding_of(data), everything),
        "archives": (archive, lambda: list(packed())),
        "log": (lambda data: read_log(data.decode("utf-8", "replace")), functools.partial(of_folder, "rank.log")),
        "dump": (reduce, functools.partial(of_name, "fr_")),
        "stacks": (refusing(stacks_of), functools.partial(of_name, "pyspy")),
        "processes": (refusing(extracts_of), functools.partial(of_name, "proc_")),
        "ps": (refusing(ps_rows), functools.partial(of_folder, "rank.process")),
        "door": (whole, everything),
    }
    return found


def run(first: int, count: int, names: list[str]) -> Iterator[dict[str, Any]]:
    signal.signal(signal.SIGVTALRM, _too_slow)
    for name in names:
        feed, seeds = targets()[name]
        mine, others = seeds(), recordings()
        for seed in range(first, first + count):
            path = mine[seed * 7919 % len(mine)]
            other = others[seed * 104_729 % len(others)]
            data = mutated(path.read_bytes(), other.read_bytes(), seed)
            signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
            try:
                feed(data)
            except TooSlow:
                yield {"target": name, "seed": seed, "of": str(path), "what": f"more than {CPU_S} s of CPU"}
            except Exception as error:
                yield {"target": name, "seed": seed, "of": str(path), "what": f"{type(error).__name__}: {error}"[:300]}
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _too_slow(number: int, frame: object) -> None:
    raise TooSlow


def main() -> None:
    first, count, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(targets())
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for trouble in run(first, count, names):
        print(json.dumps(trouble), flush=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if grown > GROWS_KIB:
        print(json.dumps({"target": "all", "what": f"{grown >> 10} MiB more memory"}))
    print(json.dumps({"done": len(names) * count, "grown_mib": grown >> 10}))


if __name__ == "__main__":
    main()
