"""Lines of the program: crashes, full disks, the data loader, NaN, progress. Errors of CUDA are told in cuda.py,
its launchers and schedulers in launchers.py.

Source   torch (c10/cuda, utils/data), CPython's faulthandler, Megatron-LM (training.py), tqdm, recorded runs
Units    none
Shape    read(line) -> LogEvent or None
Errors   none
"""

from __future__ import annotations

import dataclasses
import re

from probes.catalog.logs import cuda, launchers, phases, room
from probes.catalog.logs.events import LogEvent
from probes.catalog.logs.lines import Line
from probes.catalog.logs.phases import wait_ms
from probes.catalog.logs.shapes import Shapes, shape

NAN_CHECK = "NaN check"
ENDS_ON_NAN = "ends on NaN"

_CRASHES = (
    shape("fatal_signal", "Fatal Python error", r"Fatal Python error: (?P<name>[\w ]{2,60})"),
    shape(
        "fatal_signal",
        "terminate called",
        r"terminate called(?: after throwing an instance of '(?P<name>[\w:<>, ]{1,120})')?",
    ),
    shape(
        "fatal_signal",
        "received by PID",
        r"[Ss]ignal (?P<signal>\d{1,2}) \((?P<name>SIG\w{2,8})\) received by PID (?P<pid>\d{1,9})",
    ),
    shape(
        "fatal_signal",
        "received by PID",
        r"(?P<name>SIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL)) .{0,60}?received by PID (?P<pid>\d{1,9})",
    ),
    shape("fatal_signal", "Signal: ", r"(?:\] |^\s{0,8})Signal: (?P<name>[A-Z][\w ]{2,40}?) \((?P<signal>\d{1,2})\)"),
    shape("fatal_signal", "Caught signal", r"Caught signal (?P<signal>\d{1,2}) \((?P<name>[\w ]{2,40})"),
    shape("fatal_signal", "Segfault encountered", name="Segmentation fault"),
    shape("fatal_signal", "core dumped", r"(?P<name>Segmentation fault|Bus error|Aborted|Illegal instruction)"),
)

_SYSTEM = (
    # ld.so(8), as Python's last line or the program's own tells it, also where nobody kept the lines above it
    shape(
        "library_refused",
        "Error: ",
        r"(?P<name>ImportError|OSError): [^\n]{0,300}?(?:: cannot open shared object file"
        r"|: undefined symbol: |: version `\S{1,60}' not found|wrong ELF class)",
    ),
    shape("library_refused", "symbol lookup error", r"(?P<name>symbol lookup error): "),
    shape("memlock", "ax locked memory", r"Max locked memory {1,40}(?P<name>unlimited|(?P<bytes>\d{1,20}))"),
    shape(
        "memlock", "ax locked memory", r"max locked memory {1,20}\(kbytes, -l\) (?P<name>unlimited|(?P<kib>\d{1,18}))"
    ),
    shape(
        "memlock", "RLIMIT_MEMLOCK", r"RLIMIT_MEMLOCK (?:is|=|:) ?(?P<name>unlimited|(?P<bytes>\d{1,20}))\b"
    ),  # libibverbs
    # as launch scripts print it: `ulimit -l` is in KiB
    shape("memlock", "ulimit -l", r"ulimit -l\)?[ =:]{1,4}(?P<name>unlimited|(?P<kib>\d{1,18}))\b"),
    shape(
        "memlock",
        "emlock",
        r"(?:^|\W)[Mm]emlock(?: limit)?(?: \((?:kbytes|KiB|kB)\))?[ =:]{1,4}"
        r"(?P<name>unlimited|(?P<kib>\d{1,18}))\b(?! ?bytes)",
    ),
    shape("too_many_files", "Too many open files"),
    shape("nccl_frame", " nccl", r"(?:@ {1,8}0x[0-9a-f]{1,16} {1,8}| in )(?P<name>nccl[A-Z]\w{2,80})(?= ?\(|$)"),
    shape("nccl_frame", " nccl", r"^ {0,4}\d{1,3} {1,4}0x[0-9a-f]{8,16} (?P<name>nccl[A-Z]\w{2,80})\(\)"),  # UCX
    shape(  # a backtrace of UCX, or of a debugger, of a library without symbols for its own name
        "nccl_frame",
        " nccl",
        r"^\s{0,8}#?\d{1,3}\s{1,4}(?:0x[0-9a-f]{4,16}\s{1,4})?(?:in )?(?P<name>p?nccl[A-Z]\w{2,80})(?: ?\(|\+0x)",
    ),
    shape("nccl_frame", "ccl.so", r"lib[nr]ccl\.so[\w.]{0,20}(?:\((?P<name>[A-Za-z_]\w{0,120}))?"),
)

_LOADER = (
    shape(
        "loader_killed",
        "DataLoader worker",
        r"DataLoader worker \(pid (?P<pid>\d{1,9})\) (?:is killed by signal: (?P<name>[\w ]{2,40})"
        r"|exited unexpectedly)",
    ),
    shape("loader_killed", "exited unexpectedly", r"worker \(pid\(s\) (?P<pids>[\d, ]{1,200})\) exited unexpectedly"),
    shape("loader_timeout", "DataLoader timed out", r"DataLoader timed out after (?P<timeout_s>\d{1,7}) seconds"),
)

_STEP = (
    r"(?i:\b(?P<name>global[_ ]step|step|iteration|iter|epoch)\b)(?:\(\w{1,8}\)|[\"'])? {0,10}[=:#]? {0,10}"
    r"\[? ?(?P<seq>\d{1,12})"
    r"(?: ?/ {0,4}(?P<total>\d{1,12}))?(?:.{0,120}?per iteration \(ms\): (?P<step_ms>\d{1,9}))?"
    r"(?:.{0,200}?(?i:loss) ?[=:]? ?(?P<loss>-?[\w.+-]{1,20}))?"
)
# Terse ones of people's own loops, `it=2200 loss=1.69`, `s=15000 loss=2.1 t=1.9`, `update 40 | lr 3e-4`: a measure
# beside the number tells that it is a step.
_SHORT = (
    r"(?<![\w./-])(?P<name>it|its|s|upd|updates?|num_updates|batch) ?[=: ] ?(?P<seq>\d{1,12})"
    r"(?: ?/ ?(?P<total>\d{1,12}))?\b"
    r"(?=.{0,120}?(?<![\w.])(?i:loss|lr|ppl|tok\w{0,8}|wps|ups|dt|t|ms|time|gnorm|grad_norm)[=: ]{1,3}-?[\d.]"
    r"|.{0,120}?\d ?s/it)"
    r"(?:.{0,200}?(?i:loss) ?[=:]? ?(?P<loss>-?[\w.+-]{1,20}))?"
)
# Words of who prepares data and counts it: "tokenizing: 200/100000 documents", "Preprocessed 4000 of 90000".
_PREPARES = (
    r"\b(?P<name>(?i:(?:tokeni[sz]|preprocess|indexing|packing|evaluat|validat)\w{0,4}|e?val))\b[^\d\n]{0,60}"
    r"(?:\d{1,3}(?:\.\d{1,3})?%[^\d\n]{1,6})?"
    r"(?P<done>\d[\d,.]{0,14}[kMGT]?) ?(?:/|of) ?(?P<total>\d[\d,.]{0,14}[kMGT]?)"
)
_SAVE = (
    r"(?i:\b(?P<name3>load|sav|writ|read|restor|resum)(?:e|ing)?_(?:from_)?(?:checkpoint|state_dict)\b"
    r"[^\n\d]{0,60}\d{1,9} ?(?:/|of) ?\d{1,9}\b"  # a function's name, and how much it has done
    r"|(?P<name>sav|load|writ|wrot|restor|resum|upload|gather|consolidat)\w{0,4}\b.{0,60}?"
    r"(?:checkpoint|state[_ ]dict|optimi[sz]er[_ ]states?\b)"
    r"|checkpoint\w{0,3}\b.{0,60}?\b(?P<name2>sav|load|writ|wrot|restor|upload|done|finish|complet)\w{0,4})"
)

# How much of one file of it: "wrote distrib_optim.pt 92.4 / 1091.8 GB", "uploading shard_3.distcp: 40%".
_FILE_OF_IT = (
    r"(?i:\b(?P<name>sav|load|writ|wrot|upload|download|flush|copy|copi|dump|restor|serializ)\w{0,5}\b)[^\n]{0,120}?"
    r"(?:\.pth?|\.ckpt|\.safetensors|\.distcp|\.zarr|_states)\b[^\n%]{0,60}?"
    r"\d(?: ?[kKMGT]i?B)? ?(?:/ ?\d|of \d|%)"
)

_ONE_STEP = re.compile(_STEP)

_SCALE_GONE = (
    r"(?:v|V)(?:erflow|ERFLOW)\b.{0,160}?\b(?:to|scale):? {0,2}(?:[01](?:\.\d{1,24})?(?:e-\d{1,3})?"
    r"|\d(?:\.\d{1,24})?e-\d{1,3})\s*$"
)

_WORDS = (
    *phases.FIRST,
    # TORCH_NCCL_NAN_CHECK: NanCheck.cu asserts on the GPU that what a collective is given is a number.
    shape("nan", "heckForN", r"heckForNa[nN]", name=NAN_CHECK),
    shape("nan", "NanCheck.cu", name=NAN_CHECK),
    # What ends a rank of its own accord: Megatron (pretrain_gpt.py, rerun_state_machine.py), Lightning's
    # terminate_on_nan and detect_anomaly, clip_grad_norm_ with error_if_nonfinite
    shape("nan", "ound NaN in", r"\b[Rr]ank (?P<rank>\d{1,7})\b.{0,120}?\bfound NaN in ", name=ENDS_ON_NAN),
    shape("nan", "_step` is", r"returned in `\w{1,20}_step` is (?:nan|inf)", name=ENDS_ON_NAN),
    shape("nan", "it cannot be clipped", r"non-finite, so it cannot be clipped", name=ENDS_ON_NAN),
    shape("nan", "returned nan values", r"Function '\w{1,60}' returned nan values", name=ENDS_ON_NAN),
    shape("nan", "NaN", r"\bNaNs?\b"),
    shape("nan", "nan", r"(?<![\w./])nan(?:\.0\b)?(?! iterations)(?!\w|[./]\w)"),  # Lightning's bar: nan.0
    shape("nan", "nan iterations", r"nan iterations: {0,8}[1-9]"),  # Megatron counts them in every line
    shape("nan", "oss scale", r"(?i:loss scale already at minimum|minimum loss scale reached)", name="loss scale"),
    # A scale of 1 or less scales nothing any more: apex, fairseq, DeepSpeed. The first overflows of a run are as usual.
    *(shape("nan", word, _SCALE_GONE) for word in ("verflow", "OVERFLOW")),
    shape("nan", "nf in ", r"found [Ii]nf in "),  # Megatron, beside "found NaN in"
    shape("nan", "non-finite", r"(?:norm|gradients?|loss).{0,120}?\bnon-finite"),  # clip_grad_norm_, error_if_nonfinite
    shape("nan", "inf", r"(?i:loss|norm|scale|ppl)\W{1,4}-?inf(?!\w)"),
    shape(
        "checkpoint", "aving ", r"(?P<name>Saving|saving) \S{0,300}?(?:\.pth?|\.ckpt|\.safetensors|\.distcp|_states)\b"
    ),
    *(
        shape("checkpoint", word, _SAVE)
        for word in ("heckpoint", "CHECKPOINT", "state_dict", "state dict", "izer state", "izer_state")
    ),
    *(
        shape("checkpoint", word, _FILE_OF_IT)
        for word in (".pt", ".ckpt", ".safetensors", ".distcp", ".zarr", "_states")
    ),
    shape(
        "progress",
        "%|",
        r"(?P<name>[^|%]{0,80}?):? {0,4}(?P<percent>\d{1,3})%\|[^|]{0,200}\| ?(?P<done>[\d.]{1,14}[kMGT]?)/"
        r"(?P<total>[\d.]{1,14}[kMGT]?) \[(?P<elapsed>[\d:]{1,12})<(?P<left>[\d:?]{1,12})"
        r"(?:, {0,4}(?P<rate>[\d.]{1,12}) {0,2}(?P<per>s/it|it/s))?",
    ),
    # a logger that writes JSON: a step and a loss
    *(
        shape(
            "progress",
            f'{word}":',
            r'(?=.{0,2000}"\w{0,12}loss")"(?P<name>global_step|step|iteration|iter)": {0,2}(?P<seq>\d{1,12})'
            r'(?:.{0,1000}?"loss": {0,2}(?P<loss>-?[\w.+-]{1,20}))?',
        )
        for word in ("step", "iter", "iteration")
    ),
    *(
        shape("progress", word, _PREPARES)
        for word in ("okeni", "reprocess", "ndexing", "acking", "valuat", "alidat", "val ", "val:")
    ),
    shape("progress", "batch=", r"^\[(?P<name>batch)=(?P<seq>\d{1,12})/\d{1,12}\]:"),  # Composer
    *(shape("progress", word, _STEP) for word in ("step", "Step", "iter", "Iter", "poch")),
    *(shape("progress", word, _SHORT) for word in ("it=", "it ", "s=", "upd", "atch")),
    *phases.SHAPES,
)

SHAPES = Shapes(cuda.SHAPES + launchers.SHAPES + _CRASHES + room.SHARED + _LOADER + room.DISK + _SYSTEM + _WORDS)
# What ends a process, as faulthandler, srun and the shell name it. signal(7)
SIGNALS = {"segmentation fault": -11, "sigsegv": -11, "aborted": -6, "sigabrt": -6, "bus error": -7, "sigbus": -7,
    "killed": -9, "sigkill": -9, "illegal instruction": -4, "sigill": -4, "sigfpe": -8, "terminated": -15}  # fmt: skip
# A C++ exception of these types follows a failure that was told before it.
_AFTERWARDS = ("c10::DistBackendError", "c10d::", "gloo::IoException")


_TOOK = re.compile(
    r"(?i)(?<![\w.])(\d{1,7}(?:\.\d{1,6})?) ?(ms|s|sec|secs|seconds)(?:/| per )(?:step|it|iter|iteration|batch)\b"
    r"|\b(?:took|(?:step|iter|iteration|batch)[ _-]?time|time[ _]per[ _](?:step|iteration)"
    r"|(?:(ms)|s|sec|seconds)(?:/|_per_)(?:step|it|iter))\b[^\d\n\w]{1,6}"
    r"(\d{1,7}(?:\.\d{1,6})?) ?(ms|s|sec|secs|seconds)?\b"
)
# And by a key of its own: "step_s 57.4", "iter_time_ms=812", "train_step_timing in s: 58.0", "t_step: 58s", "dt 812ms",
# "seconds: 58.0", and "time 812.34ms", which needs its unit.
_KEYED = re.compile(
    r"(?i)(?<![a-z])(?:t_(?:step|iter)|(?:\w{1,12}_)?(?:step|iter|iteration|batch)[_ -]?"
    r"(?:(?:time|timing|took|dur|duration|elapsed|latency)(?:[_ ](?:in )?|(?= ?\())?(?P<of>ms|msec|s|sec|secs|seconds)?"
    r"|(?P<bare>ms|s|sec|secs|seconds))|(?P<seconds>seconds|secs)|dt|(?P<time>time))"
    r"(?: ?\((?P<in>ms|s|sec|seconds)\))?[\"']?\s{0,2}[=: ]\s{0,3}(?P<value>\d{1,7}(?:\.\d{1,6})?)"
    r" ?(?P<unit>ms|s|sec|secs|seconds)?(?![\w.%/])"
)


_A_STEP = re.compile(r"(?i)(?:step|iter)\w{0,12}[_ -]?(?:time|timing|took|dur|ms|s\b|sec)|/(?:step|it|iter)\b")


def _keyed(text: str) -> int | None:
    """Milliseconds of a step by a key that says so; a key without a unit counts seconds with a fraction."""
    for found in _KEYED.finditer(text):
        unit = found["unit"] or found["in"] or found["of"] or found["bare"] or found["seconds"]
        if found["time"] and (unit or "").lower() not in ("ms", "msec"):
            continue  # seconds since the start, as likely
        if unit or "." in found["value"]:
            return _ms(found["value"], "ms" if (unit or "").lower() in ("ms", "msec") else "s")
    return None


def step_of(text: str) -> int | None:
    """The number of the step that a line tells of, whatever else it tells."""
    found = _ONE_STEP.search(text[:2000])
    return int(found["seq"]) if found else None


def _ms(number: str, unit: str | None) -> int:
    return round(float(number) * (1 if unit == "ms" else 1000))


def read(line: Line) -> LogEvent | None:
    """The event of a line of the program's. What ends a process because another failed is marked as a consequence."""
    found = SHAPES.first(line)
    if found is None:
        return None
    if found.kind == "memlock" and isinstance(kib := found.more.get("kib"), int):
        return dataclasses.replace(found, more={"bytes": kib * 1024})
    waited = wait_ms(line.text[:2000]) if found.kind in ("progress", "phase_time") else None
    if waited is not None:
        found = dataclasses.replace(found, more={**found.more, "wait_ms": waited})
    if found.kind == "progress" and found.name.lower() == "epoch" and not _A_STEP.search(line.text[:2000]):
        return found  # how long an epoch took is another matter
    if found.kind == "progress" and "step_ms" not in found.more and (took := _TOOK.search(line.text[:2000])):
        return dataclasses.replace(
            found, more={**found.more, "step_ms": _ms(took[1] or took[4], took[2] or took[3] or took[5])}
        )
    if found.kind == "progress" and "step_ms" not in found.more and (ms := _keyed(line.text[:2000])) is not None:
        return dataclasses.replace(found, more={**found.more, "step_ms": ms})
    if found.kind != "fatal_signal":
        return launchers.marked(found)
    if found.name == "SIGTERM":
        return dataclasses.replace(found, kind="torchrun_signal", code=-15, secondary=True)
    signal = found.more.get("signal")
    code = -signal if isinstance(signal, int) else SIGNALS.get(found.name.lower())
    return dataclasses.replace(found, code=code, secondary=found.name.startswith(_AFTERWARDS))
