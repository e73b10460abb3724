"""Sampled stacks of a process: collapsed (`outer (file.py:3);inner (file.py:7) 42`), of speedscope, or of perf script.

Source   the collapsed form of Brendan Gregg's stackcollapse scripts; py-spy 0.4.3 record --format raw (frames as in its
         dumps, native ones with --native); stackcollapse-perf.pl, where Python frames are `py::function:file` when
         Python runs with -X perf (Python 3.12 and later); perf-script(1); the file format of speedscope, which py-spy
         writes with --format speedscope
Units    samples
Shape    Profile
Errors   ParseError when fewer than two stacks are found
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from probes.catalog.stacks.profile_svg import SVG, is_flame_graph, stacks_of_svg
from probes.catalog.stacks.profile_tree import Frame, Tree
from probes.core import Finding, ParseError, clean, lines_of

MOST_LINES, MOST_FRAMES, MOST_LINE = 50_000, 400, 60_000
_COUNT = re.compile(r"\s(\d{1,15})$")
_SAMPLE = re.compile(r"\S.{0,60}\s\d{1,8}(?:/\d{1,8})?\s+(?:\[\d{1,5}\]\s+)?\d{1,10}\.\d{3,9}:\s")  # perf script
_CALL = re.compile(r"\s{4,24}[0-9a-f]{4,16} (.{1,300}?)(?:\+0x[0-9a-f]{1,12})? \((.{1,300})\)$")
_RANK = re.compile(r"(?<![A-Za-z])(?<!local[_-])rank[_.-]?(\d{1,6})(?!\d)")
_SHORT = re.compile(r"(?:^|[._-])r(\d{1,6})(?=[._-]|$)")  # prof_r3.txt
_FOLDER = re.compile(r"(?i)(?:global[_-]?)?(?:rank|r)[_.=-]?(\d{1,6})")
# Of python -c, of standard input and of notebooks it is Python too: `step (<ipython-input-3>:4)`.
_PYTHON = re.compile(r"\((?:.{1,300}\.(?:py|pyx)|<[^<>]{1,200}>):\d{1,9}\)$|^py::|\.py:\d{1,9}$")
SYNC = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
    "cuCtxSynchronize", "hipStreamSynchronize", "_local_scalar_dense", "THPVariable_item", "THPVariable_tolist",
    "nonzero_cuda")  # fmt: skip
THREAD = ("_bootstrap (threading.py", "_bootstrap_inner (threading.py", "Thread._bootstrap (threading.py",
    "run (threading.py")  # fmt: skip
LOADER = "torch/utils/data/dataloader.py"
# Native code that is Python itself, or what every program of torch runs on: a Python frame below it is no call-back.
INTERPRETER = ("python", "libpython", "_pyeval", "pyobject", "_pyobject", "pyvector", "_pyfunction", "cfunction",
    "method_", "slot_", "builtin_", "type_call", "_pyrun", "pyrun", "run_mod", "run_eval", "pymain", "py_", "_start",
    "__libc", "main", "libc.", "libc-", "vectorcall", "function_code", "pyimport", "import_", "context_run",
    "gen_", "thread_run", "pythread", "start_thread", "clone", "object_vacall", "_functools", "partial_", "ffi_",
    "libffi", "closure_fcn", "_ctypes", "_callpythonobject", "_call_function_pointer", "pycfuncptr")  # fmt: skip
# A C function that ctypes was given a Python function for: what Python called through libffi calls it back.
CLOSURES = ("closure_fcn", "_CallPythonObject", "ffi_closure")
CALLED_BY_FFI = ("ffi_call", "_call_function_pointer", "_ctypes_callproc")
LOOP = ("_PyEval_EvalFrameDefault", "_PyEval_EvalFrame ", "PyEval_EvalFrameEx")
TORCH = ("libtorch", "libc10", "torch/_C.", "torch._C.", "torch::", "at::", "c10::", "THP")


@dataclass(frozen=True, slots=True)
class Profile:
    """`sync`: samples in a synchronisation with the device, most of them below the Python line `sync_at`. `callbacks`:
    (native extension, samples in Python below it), the largest first, most of them in `callback_at`."""

    total: int
    stacks: int
    sync: int
    sync_at: str
    callbacks: tuple[tuple[str, int], ...]
    callback_at: str
    native: bool  # whether there are native frames at all: without them nothing can be said of call-backs
    beside: int = 0  # samples in other threads than the main one, most of them at `beside_at`
    beside_at: str = ""
    lock: bool = False  # only samples that hold the interpreter's lock, as py-spy takes with --gil
    loader: int = 0  # samples in the data loader of the main thread
    looks: bool = False  # each sample is a dump of one process of several, at about one moment
    tree: tuple[Frame, ...] = ()
    rank: int | None = None  # where a probe took it; of a file its name tells


def is_profile(head: str) -> bool:
    """Whether it begins as one of the three forms. Prose with a semicolon and a number at its end is none."""
    if head.lstrip().startswith(SVG):
        return is_flame_graph(head)
    if head.lstrip()[:1] == "{":
        return "speedscope.app/file-format-schema.json" in head[:100_000]
    lines = list(itertools.islice(lines_of(head), 40))
    if any(_SAMPLE.match(line) and _CALL.match(below) for line, below in itertools.pairwise(lines)):
        return True
    lines = [line for line in lines_of(head, MOST_LINE) if line.strip() and not line.startswith("# ")][:60]
    if head[-1:] != "\n" and len(lines) > 1:
        lines.pop()  # cut off
    fits = [line for line in lines if _COUNT.search(line[-20:]) and ";" in line and not line.startswith((" ", "#"))]
    deep = sum(line.count(";") >= 2 for line in fits)
    coded = sum("(" in line or "::" in line or "_" in line for line in fits)
    return len(fits) >= 2 and 5 * len(fits) >= 4 * len(lines) and 2 * deep >= len(fits) and 2 * coded >= len(fits)


def parse_profile(text: str, least: int = 2) -> Profile:
    """Raises ParseError where there are fewer stacks than `least`: one line alone may be anything."""
    total = stacks = sync = 0
    sync_at: Counter[str] = Counter()
    callbacks: Counter[str] = Counter()
    callback_at: dict[str, Counter[str]] = {}
    native = False
    beside = loader = 0
    beside_at: Counter[str] = Counter()
    tree = Tree()
    for frames, count in _stacks(text):
        tree.add(frames, count)
        total, stacks = total + count, stacks + 1
        native = native or any(not _is_python(frame) for frame in frames)
        if any(mark in frame for frame in frames[-12:] for mark in SYNC):
            sync += count
            sync_at[_last_python(frames)] += count
        if any(mark in frame for frame in frames[:3] for mark in THREAD) and not _trains(frames):
            beside += count
            beside_at[_own_python(frames)] += count
        elif any(LOADER in frame for frame in frames):
            loader += count
        if (told := callback(frames)) is not None:
            callbacks[told[0]] += count
            callback_at.setdefault(told[0], Counter())[told[1]] += count
    if stacks < least or not total:
        raise ParseError("expected lines such as 'main (train.py:3);step (train.py:9) 42'")
    first = callbacks.most_common(5)
    at = callback_at[first[0][0]].most_common(1)[0][0] if first else ""
    where = sync_at.most_common(1)[0][0] if sync_at else ""
    other = beside_at.most_common(1)[0][0] if beside_at else ""
    lock = is_of_lock(text)
    return Profile(
        total, stacks, sync, where, tuple(first), at, native, beside, other, lock, loader, tree=tree.frames()
    )


def is_of_lock(text: str, name: str = "") -> bool:
    """Whether it was taken with --gil, by the command that stands before it, or by its file's name."""
    before = re.search(r"py-spy[^\n]{0,200}--gil\b", text[:4096])
    return bool(before) or bool(re.search(r"(?<![a-z])gil(?![a-z])", name.lower()))


def _stacks(text: str) -> Iterator[tuple[list[str], int]]:
    """Each stack, outermost first, with its samples."""
    if text.lstrip()[:1] == "{":
        yield from _of_speedscope(text)
    elif text.lstrip()[:10].startswith(SVG):
        yield from stacks_of_svg(text)
    elif any(_SAMPLE.match(line) for line in itertools.islice(lines_of(text), 40)):
        yield from _of_perf(text)
    else:
        for line in itertools.islice(lines_of(text, MOST_LINE), MOST_LINES):
            found = _COUNT.search(line[-20:])
            if found and ";" in line:
                yield line[: len(line) - len(found[0])].split(";")[:MOST_FRAMES], int(found[1])


def _of_perf(text: str) -> Iterator[tuple[list[str], int]]:
    frames: list[str] = []
    for line in itertools.islice(lines_of(text), 20 * MOST_LINES):
        call = _CALL.match(line)
        if call and len(frames) < MOST_FRAMES:
            library = call[2].rpartition("/")[2]
            frames.append(call[1] if call[1].startswith("py::") else f"{call[1]} ({library})")
        elif not line.strip() and frames:
            yield frames[::-1], 1
            frames = []
    if frames:
        yield frames[::-1], 1


def _of_speedscope(text: str) -> Iterator[tuple[list[str], int]]:
    try:
        whole = json.loads(text)
        names = [_speedscope_frame(one) for one in whole["shared"]["frames"]]
        for profile in whole["profiles"]:
            for sample in profile["samples"][:MOST_LINES]:
                yield [names[at] for at in sample[:MOST_FRAMES] if isinstance(at, int)], 1
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ParseError(f"expected a profile in speedscope's form: {type(error).__name__}") from None


def _speedscope_frame(one: dict[str, Any]) -> str:
    file, line = str(one.get("file") or ""), one.get("line")
    place = file.rpartition("/")[2] + (
        f":{line}" if isinstance(line, int) and line > 0 and file.endswith(".py") else ""
    )
    return f"{str(one['name'])[:300]} ({place})" if place else str(one["name"])[:300]


def rank_named(file: str) -> int | None:
    """The rank in a file's name, or in that of the folder it lies in."""
    folder, _, name = file.partition(": ")[0].rpartition("/")
    found = _RANK.search(name) or _RANK.search(file.partition(": ")[2]) or _SHORT.search(name)
    found = found or _FOLDER.fullmatch(folder.rpartition("/")[2])
    return int(found[1]) if found else None


def _is_python(frame: str) -> bool:
    return bool(_PYTHON.search(frame[-320:])) or frame.startswith("py::")


def _trains(frames: list[str]) -> bool:
    """Whether the model runs in it: Ray and notebooks train in a thread."""
    return any("torch/nn/modules/module.py" in frame or "torch/optim/" in frame for frame in frames)


def _own_python(frames: list[str]) -> str:
    """The frame of the program by which a thread is known: the outermost one below Python's own."""
    names = [
        frame for frame in frames if _is_python(frame) and not any(mark in frame for mark in (*THREAD, "threading.py"))
    ]
    return clean(names[0])[:120] if names else ""


def _last_python(frames: Iterable[str]) -> str:
    python = [frame for frame in frames if _is_python(frame)]
    return clean(python[-1])[:120] if python else ""


def callback(frames: list[str]) -> tuple[str, str] | None:
    """(extension, Python below it) where Python calls an extension that calls Python again."""
    if (closed := _by_closure(frames)) is not None:
        return closed
    above = False
    extension = ""
    native = not any(map(_is_python, frames))  # then the interpreter's loop stands for the Python that it runs
    for frame in frames:
        if _is_python(frame) or (native and frame.startswith(LOOP)):
            if extension:
                return extension, clean(frame)[:120]
            above = True
        elif above and (name := _extension(frame)):
            extension = name
    return None


def _by_closure(frames: list[str]) -> tuple[str, str] | None:
    """(C function, Python below it) of ctypes: any C function counts, be it of libc, that was called through libffi and
    calls a closure. Where the sample was taken before Python runs in it, the Python that asked for it is told."""
    called = next((at for at, frame in enumerate(frames) if frame.startswith(CALLED_BY_FFI)), None)
    closed = next((at for at, frame in enumerate(frames) if frame.startswith(CLOSURES)), None)
    if called is None or closed is None or closed <= called or not any(map(_is_python, frames[:called])):
        return None
    between = [frame for frame in frames[called:closed] if not frame.startswith(("0x", *CALLED_BY_FFI))]
    names = [frame for frame in between if "libffi" not in frame and not frame.startswith("ffi_")]
    if not names:
        return None
    below = next((frame for frame in frames[closed:] if _is_python(frame)), _last_python(frames[:called]))
    return clean(_extension(names[0]) or names[0])[:80], clean(below)[:120]


def _extension(frame: str) -> str:
    """The library of a native frame, or its function where no library is told; "" for the interpreter and for torch."""
    function, found, place = frame.rpartition(" (")
    library = place[:-1].rpartition("/")[2] if found and place.endswith(")") else ""
    lowered = (library or frame).lower()
    if frame.startswith("[") or any(mark in frame for mark in TORCH):
        return ""
    if any(lowered.startswith(mark) for mark in INTERPRETER) or "vectorcall" in frame.lower():
        return ""
    if any((function or frame).lower().startswith(mark) for mark in INTERPRETER):
        return ""
    return clean(library.partition(":")[0] or frame)[:80]


def findings(profile: Profile) -> Iterator[Finding]:
    """What is in it, and the share of what matters most."""
    share = max(profile.total, 1) / 100
    told = [f"{profile.total} samples of {profile.stacks} stacks"]
    if profile.beside:
        at = f", most at {profile.beside_at}" if profile.beside_at else ""
        whose = " of whoever holds the interpreter's lock" if profile.lock else ""
        told.append(f"{profile.beside / share:.0f} %{whose} in other threads than the main one{at}")
    if profile.sync:
        told.append(f"{profile.sync / share:.0f} % in a wait for the device")
    if profile.loader:
        told.append(f"{profile.loader / share:.0f} % in the data loader")
    yield Finding("rank.profile", "info", "; ".join(told), {})
