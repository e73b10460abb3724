"""What kind of evidence a file is: by its content; its name only decides what the content leaves open.

Shape    kind_of(item) -> Kind and the text, or Other with why it is no evidence
Errors   none
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Literal

from probes.catalog.logs.timings import tells_times
from probes.catalog.ranks.process_extract import is_environment, is_extract, is_ps
from probes.catalog.ranks.process_lines import part_of_process, tells_states
from probes.catalog.stacks.native import is_native
from probes.catalog.stacks.text import SPY_MAIN
from probes.core import clean, lines_of, without_escapes
from probes.intake.by_rank import marked
from probes.intake.chats import is_chat
from probes.intake.container_tables import is_table
from probes.intake.exported_logs import lines_in, lines_of_rows
from probes.intake.items import HEAD, PEEK, TEXT_BYTES, Item
from probes.intake.metrics import is_metrics
from probes.intake.rank_series import times_of_ranks
from probes.intake.retyped_stacks import as_py_spy
from probes.intake.tables import steps_in
from probes.intake.tools import Tool, beside, tool_of
from probes.intake.tools.cluster import kubernetes
from probes.intake.tools.network import network_policy
from probes.intake.tools.training import environment

Kind = Literal["dump", "stacks", "process", "environment", "ps", "states", "kernel log", "nvidia-smi", "ras",
    "sections", "tool", "metrics", "log", "perhaps a log"]  # fmt: skip

_STATUS = re.compile(
    r"#(\d{3})\s?\n?|HTTP/1\.[01] (\d{3})[^\n]{0,80}\n(?:[A-Za-z-]{1,40}: [^\n]{0,400}\r?\n){0,40}\r?\n"
)
_CONCLUSIONS = re.compile(
    r"(?:readme|licen[cs]e|notice|changelog|authors|outcome|notes?|verdict|post-?mortem|truth)\b", re.I
)
_NOTES = re.compile(r"notes?[\w.-]{0,40}\.(?:md|markdown)", re.I)  # of which the output that they quote is read
_SOURCES = (".md", ".rst", ".html", ".py", ".pyc", ".sh", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".ipynb", ".css",
    ".js", ".tsv", ".csv", ".c", ".cpp", ".cu", ".h", ".tex", ".patch", ".diff")  # fmt: skip
_PROGRAMS = (".py", ".patch", ".diff")  # of which a piece may show the fault itself
_KERNEL = re.compile(
    r"(?:<\d{1,3}>|[a-z]{3,8} {0,6}:[a-z]{3,6} {0,6}: ?)?"  # dmesg -r, dmesg -x
    r"(?:\[ {0,8}\d{1,9}\.\d{1,6}\](?= )|\[[^\W\d]{1,10}\.? {1,2}\d{0,2}[^\W\d]{1,9}\.? [ \d]\d \d\d:\d\d:\d\d \d{4}\]"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:?\d\d )"
    r"|\d{1,3},\d{1,12},\d{1,18},[^;]{0,80};"
    r"|(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    r"|(?:[A-Z][a-z]{2} )?\d{4}-\d\d-\d\d[T ]\S{8,32}(?: [A-Z]{3,5})?)"
    r" \S{1,80} kernel:|[A-Za-z][\w.-]{1,62} kernel: "
)
_GPU_BLOCK = re.compile(  # of nvidia-smi -q, cut out of it
    r"^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0\s{0,4}\n {4}[A-Z][^\n:]{2,50}(?: : [^\n]{0,80})?\n", re.M
)
# faulthandler.dump_traceback_later, perhaps below a line or two of who kept it
_ONLY_STACKS = re.compile(
    r"(?:[^\n]{0,200}\n){0,3}Timeout \(\d{1,4}:\d\d:\d\d(?:\.\d{1,6})?\)!\s{0,4}\n"
    r"(?:Current thread|Thread) 0x[0-9a-f]{1,16} [^\n]{0,80}\(most recent call first\):"
)
_BY_KERNEL = re.compile(r"dmesg|kern(?:el)?[._-]|journal|kmsg|syslog|messages", re.I)
# (how a line begins, what the file is): tools that people bring the output of and nothing here reads.
_TOOLS = (("<system ", "a topology of NCCL: no probe reads it yet"),)


@dataclass(frozen=True, slots=True)
class Other:
    """No evidence, or none that is read; why, for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Known:
    """`text` has "\n" at the ends of its lines. Of a log it is the first PEEK bytes: the item is read on by who reads
    it. "" for dumps, which are not decoded here."""

    kind: Kind
    text: str
    data: bytes = b""
    tool: Tool | None = None  # of the kind "tool"


STREAMED = ("log", "perhaps a log", "kernel log")  # kinds that may be gigabytes


def kind_of(item: Item) -> Known | Other:
    """Recognise one file by its first PEEK bytes, and read as much of it as its kind takes."""
    data = item.upto(PEEK)
    if not data.strip():
        return Other("it is empty")
    if data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return Known("dump", "", item.data)
    if b"\0" in item.head:
        text = item.head.decode("utf-8", "replace")
        if is_environment(text):
            return Known("environment", text)
        if environment.fits(text, item.name):
            return Known("tool", text, tool=environment.TOOL)
        if item.head.count(b"\0") > len(item.head) // 20:
            return Other("binary, of no known form")
    if item.binary:
        return Other("binary, of no known form")
    known = _of_bytes(data, item)
    if isinstance(known, Other) and known.why == UNKNOWN_JSON and len(data) == PEEK:
        return _of_bytes(item.upto(TEXT_BYTES), item)  # an export of logs may be cut off here
    if isinstance(known, Known) and known.kind not in STREAMED and len(data) == PEEK:
        if known.kind == "dump":
            return _of_bytes(item.data, item)
        return _of_bytes(item.upto(TEXT_BYTES), item)
    return known


def _of_bytes(data: bytes, item: Item) -> Known | Other:
    text = without_escapes(data.decode("utf-8", "replace").replace("\r\n", "\n"))
    status = _STATUS.match(text[:HEAD])
    if status:
        if (code := status[1] or status[2]) != "200":
            return Other(f"an answer of a server that failed, status {code}")
        text = text[status.end() :]
    if _CONCLUSIONS.match(item.name):
        return (
            Other(DOCUMENT) if _NOTES.fullmatch(item.name) else Other("says what somebody wrote about it: no evidence")
        )
    table = item.name.lower().endswith((".csv", ".tsv"))
    if table and " kernel: " in (rows := lines_of_rows(text))[:HEAD]:
        return Known("perhaps a log", rows)
    if table and (found := _tool(text, item.name)) is not None:
        return found
    if '"streams"' in text[:4096] and (exported := lines_in(text)):  # Loki answers like Prometheus
        return Known("perhaps a log", exported)
    if is_metrics(text[:HEAD]):
        return Known("perhaps a log", told) if (told := times_of_ranks(text)) else Known("metrics", text)
    if table and (tells_states(text) or tells_times(text[:HEAD])):
        return Known("states" if tells_states(text) else "perhaps a log", text)
    if item.name.lower().endswith((".yaml", ".yml")) and network_policy.fits(text[:HEAD], item.name):
        return Known("tool", text, tool=network_policy.TOOL)
    if item.name.lower().endswith((".yaml", ".yml")) and kubernetes.has_status(text):
        return Known("tool", text, tool=kubernetes.TOOL)
    if table:
        steps, values = steps_in(text), beside(text[:HEAD], item.name)
        if steps or values:
            return Known("perhaps a log", f"{text}\n{steps}" if values else steps)
        if (tool := tool_of(text[:HEAD], item.name)) is not None:
            return Known("tool", text, tool=tool)
        if rows and not is_table(text[:HEAD]):
            return Known("perhaps a log", rows)
    if item.name.lower().endswith(_PROGRAMS) and (of_program := beside(text[:HEAD], item.name)):
        return Known("tool", text, tool=of_program[0])  # and no log, whatever its strings say
    if item.name.lower().endswith((".patch", ".diff", ".yaml", ".yml")) and environment.fits(text[:HEAD], item.name):
        return Known("tool", text, tool=environment.TOOL)
    if item.name.lower().endswith(_SOURCES):
        return Other(DOCUMENT)
    return _of_text(text, item.name)


ENVIRON = re.compile(r"proc[_/](\d{1,10})[_/]environ")  # as pasted commands are called
DOCUMENT = "a document, program or configuration: no evidence"
UNKNOWN_JSON = "JSON of no known form"
_REMARKS = re.compile(
    r"(?:#[^\n]{0,200}\n|\s{0,20}\n|(?:[A-Z][a-z]{2},? |20\d\d-)[^\n]{2,30}\d\d:\d\d[^\n]{0,24}\n){1,4}"
)  # or when it was: the first line of `date; nvidia-smi nvlink -e`


def _tool(text: str, name: str) -> Known | None:
    """The output of a tool, also under a remark of who brought it, `# 09:12:44 30 Jul`, or of `date`."""
    if (tool := tool_of(text[:HEAD], name)) is not None:
        return Known("tool", text, tool=tool)
    remarks = _REMARKS.match(text)
    if remarks is None or not remarks[0].strip():
        return None
    rest = text[remarks.end() :]
    tool = tool_of(rest[:HEAD], name)
    return None if tool is None else Known("tool", rest, tool=tool)


def _of_text(text: str, name: str) -> Known | Other:
    body = text.lstrip("\ufeff \t\r\n")
    if not body:
        return Other("it is empty")
    head = text[:HEAD]
    if part := part_of_process(head, name):
        return Known("process", f"== {part}\n{text}")
    if ("#0 " in head or "Traceback for thread " in head) and is_native(head):
        return Known("stacks", text)
    if body[0] in "[{" and is_chat(head):
        return Other(UNKNOWN_JSON)  # as it stands; what it quotes is looked at
    if body[0] in "[{" and not body.startswith(("{'", "[{'")):  # that is how Python prints: a log of Hugging Face
        if (tool := tool_of(body[:HEAD], name)) is not None:
            return Known("tool", body, tool=tool)
        known = _json(body, name)
        found = beside(body[:HEAD], name) if isinstance(known, Other) else ()
        return Known("tool", body, tool=found[0]) if found else known
    if body.startswith("==> ") and "<==" in body[:1000]:
        return Known("process", text) if is_extract(text) else Known("sections", body)
    if body.startswith("!! ") or body.startswith(("#stderr: Error:", "Error: Failed to", "Error: Permission")):
        first = clean(body.partition("\n")[0]).removeprefix("!! ").removeprefix("#stderr: ")
        return Other(f"the tool that should have written it failed: {first[:160]}")
    if body.rstrip() == "pong":
        return Other("says only that a worker server was alive")
    if is_extract(text):
        return Known("process", text)
    if tells_states(text):
        return Known("states", text)
    if is_environment(head) or (ENVIRON.search(name) and "RANK=" in head):
        return Known("environment", text)
    if "NVSMI LOG" in head or _GPU_BLOCK.search(head):
        return Known("nvidia-smi", text)
    if re.match(r"(?:[^\n]{0,80}\d\d:\d\d[^\n]{0,40}\n)?[NR]CCL version \d", body) and "Job summary" in text[:200_000]:
        return Known("ras", text)
    if is_ps(head) and not head.lstrip().startswith("ATOP - "):
        return Known("ps", text)
    if (
        re.match(r"(?:Collecting samples[^\n]*\n)?Process \d{1,10}: ", body)
        or "\nPython v3" in body[:2000]
        or _looks(body[:2000])
    ):
        return Known("stacks", text)
    if (of_tool := _tool(text, name)) is not None:
        return of_tool
    for mark, why in _TOOLS:
        if body.startswith(mark) or f"\n{mark}" in head[:4096]:
            return Other(why)
    if spied := as_py_spy(text):
        return Known("stacks", spied)
    return _lines(text, head, name)


def _looks(head: str) -> bool:
    """Whether it begins with a look of py-spy from which somebody cut the first two lines, perhaps below a remark."""
    first = next((line for line in head.split("\n") if line.strip() and line[:1] not in "#=-["), "")
    return SPY_MAIN.match(first) is not None


def _json(body: str, name: str) -> Known | Other:
    head = body[:HEAD]
    if '"nccl_version"' not in head and '"entries"' not in head and (exported := lines_in(body)):
        return Known("perhaps a log", exported)
    if '"OOMKilled"' in head:  # docker inspect, kubectl get pod -o json
        return Known("log", body)
    if '"schemaVersion"' in head[:400]:
        return Other("a trace of the profiler without events")
    if body[0] == "{":
        if '"communicators"' in head:
            return Known("ras", body)
        if any(f'"{key}"' in head for key in ("entries", "pg_config", "pg_status")):  # newer ones tell nccl_version too
            return Known("dump", "", body.encode("utf-8", "replace"))
        if '"nccl_version"' in head:
            return Known("ras", body)
        if ('"message"' in head or ('"event"' in head and '"level"' in head)) and head.count("\n{") < 2:
            return Known("log", body)
        if is_table(head):
            return Known("metrics", body)
        if "wait_counter." in head:
            return Other("wait counters of a worker server: no probe reads them yet")
        if (rows := _rows(body)) and tells_times(rows[:HEAD]):
            return Known("perhaps a log", rows)
        if "\n{" in head:  # one object a line: a logger that writes JSON
            return Known("perhaps a log", body)
        return Other(UNKNOWN_JSON)
    if '"frames"' in head and ('"os_thread_id"' in head or '"thread_id"' in head) and '"profiling_name"' not in head:
        return Known("stacks", body)
    if '"profiling_name"' in head:
        return Known("dump", "", body.encode("utf-8", "replace"))
    if is_table(head):
        return Known("metrics", body)
    if (rows := _rows(body)) and tells_times(rows[:HEAD]):
        return Known("perhaps a log", rows)
    if re.match(r'\[\s{0,40}(?:[\]{"]|\d{1,20}\s{0,8},(?!\d{1,7}\]<))', head):
        return Other(UNKNOWN_JSON)
    return _lines(body, head, name)  # "[rank0]: ..." and "[  12.345678] ..." begin like a list


def _rows(body: str) -> str:
    """Objects of one list as one line each; "" where it is none, or holds no ranks."""
    if "ank" not in body[:HEAD] or not re.search(r"\[\s{0,20}\{", body[:4096]):
        return ""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    lists = [said] if isinstance(said, list) else [one for one in said.values() if isinstance(one, list)]
    rows = lists[0] if len(lists) == 1 else []
    return "\n".join(json.dumps(row) for row in rows[:1_000_000] if isinstance(row, dict))


def _lines(text: str, head: str, name: str) -> Known | Other:
    """A kernel log, a dump of faulthandler, or the log of a rank: which decides how most of its lines begin."""
    lines = [line for line in lines_of(head, 1000) if line.strip() and line[:1] not in " \t"][:400]
    kernel = sum(bool(_KERNEL.match(line)) for line in lines)
    if kernel * 2 > len(lines) or (kernel and _BY_KERNEL.search(name)):
        return Known("kernel log", text)
    first = next((line for line in lines if not line.startswith("#")), "")
    if ("(most recent call first):" in first and not marked(head)) or _ONLY_STACKS.match(text):
        return Known("stacks", text)
    return Known("perhaps a log", text)
