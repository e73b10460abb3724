"""What people paste together into one file: the same command of many nodes, many commands of one, or both.

    gpu-017: text            pdsh, clush: the node before every line
    [pod/worker-3/main] text kubectl logs --prefix: the pod before every line
    ===== gpu-017 =====      a heading of their own; also with a command in it
    ----- / gpu-017 / -----  dshbak and clush -b, also folded: gpu-[017-020]
    gpu-017 | CHANGED | rc=0 >>     ansible
    [1] 12:00:00 [SUCCESS] gpu-017  pssh
    $ dmesg -T               a prompt and what was typed; also root@gpu-017:~#, [root@gpu-017 ~]#, gpu-017#, gpu-017:~ #
    Every 2.0s: amd-smi monitor    gpu-017: Wed May 14 20:31:08 2025      watch
    $ for h in n1 n2; do echo "# $h"; ...     then each line that holds n1 or n2 alone, however it is marked

Shape    parts_of(text) -> Parts, none when it is one file
Errors   none
Source   manuals of pdsh 2.34 (dshbak), ClusterShell 1.9 (clush), pssh 2.3, ansible; kubectl logs --help
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from probes.core import lines_of
from probes.intake import bare_heads, bug_report, by_rank, central_syslog
from probes.intake.commands import Asked, asked, looped
from probes.intake.folded import folded
from probes.intake.hosts import alike, may_be_lone
from probes.intake.keyed import in_record, keyed
from probes.intake.marks import frame, mark
from probes.intake.names import is_host
from probes.intake.prefixed import by_name, names_in, only_name
from probes.intake.programs import asks_there, is_command
from probes.intake.prompts import PROMPT, SHELL, at_home, at_prompt, typed, typed_on
from probes.intake.ps_columns import heading
from probes.intake.tables import by_rows
from probes.intake.tools.training import launch
from probes.intake.watching import watched
from probes.intake.when import moment_in, seconds_in

LOOKED_AT = 65_536  # characters by which it is known
MOST_PARTS = 20_000
MOST_LABEL = 200  # characters: which process it is about may stand at its end
_RULE = re.compile(r"-{4,200}$|={4,200}$")
_ANSIBLE = re.compile(
    r"([A-Za-z][\w.-]{0,62}) \| (?:CHANGED|SUCCESS|FAILED|UNREACHABLE)!? (?:\| rc=-?\d{1,3} )?(?:>>|=>)"
)
_PSSH = re.compile(r"\[\d{1,6}\] \d\d:\d\d:\d\d \[(?:SUCCESS|FAILURE)\] ([A-Za-z][\w.-]{0,62})(?: |$)")
_ALERT = re.compile(r"\s{0,20}(?:Problem (?:started|name|resolved|has been)\b|Resolved in )")  # Zabbix
_FAN_OUT = re.compile(r"(?:[^\n]{0,120}\n){0,2}(?:\w{1,12}: )?((?:pdsh|clush|dsh|pssh|xdsh) {1,4}-[^\n]{1,1000}\n)")
_COUNTS = re.compile(
    r"ethtool_-S|ethtool_--stat|perfquery|ibqueryerrors|rdma_.{0,20}stat|infiniband|counters|cpu\.stat|nr_thr"
)
_TELLS = re.compile(
    r"^# Port \w{0,12} ?counters: Lid|^NIC statistics:|port_xmit_wait|out_of_sequence|packet_seq_err|np_cnp_sent"
    r"|rx_prio\d_|rx_discards_phy|link_down_events_phy|retrans_pkts|PortXmitWait", re.M
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """A file in a file. `nodes`: whose it is, () for nobody known; `label`: the command or heading; `at`: the time in
    the heading, seconds since the epoch."""

    nodes: tuple[str, ...]
    label: str
    text: str
    at: float | None = None


def parts_of(text: str) -> list[Part]:
    """The files in it, at least two or one with a name; [] when it is one file by itself."""
    if bug_report.is_report(text):
        told = bug_report.sections(text)
        return [Part((node,) if node else (), _label(title), body) for node, title, body in told]
    if _ALERT.match(text):  # whose "Host:" tells of the lines above it
        return []
    text = SHELL.sub("", text)
    if (bare := _FAN_OUT.match(text)) is not None:  # copied without its prompt, or told of
        text = f"$ {text[bare.start(1) :]}"
    head = [line for line in lines_of(text[:LOOKED_AT], 1000) if line.strip()]
    if len(text) > LOOKED_AT and head:
        head.pop()
    if (names := names_in(head)) and not _asked_many(head):
        return [Part((name,), "", mine) for name, mine in by_name(text, names).items()]
    if hosts := central_syslog.sections(text):
        return [Part((node,) if node else (), "", body) for node, body in hosts]
    if (ranks := by_rank.sections(text)) and not any(map(typed, head[: _first_rank(head)])):
        return [Part((node,) if node else (), f"rank{rank}", body) for rank, node, body in ranks]
    if rows := by_rows(text):
        return [Part((node,), label, told) for node, label, told in rows]
    marked = [found for line in head if (found := mark(line))]
    known = alike(found[2].strip() for found in marked)
    known |= alike(found[2].split()[0].strip(":,") for found in marked if asks_there(found[2]))
    known |= _asked_below(head)
    known |= (plain := bare_heads.names_in(head))
    known |= alike(name for one, name, two in zip(head, head[1:], head[2:], strict=False)
        if _RULE.match(one) and _RULE.match(two) for name in folded(name, True) or (name.strip(),))  # fmt: skip
    frames = {frame(found) for found in marked if found[2].strip() in known or _told(found[2].strip())}
    parts = list(_by_headings(text, known, frames)) if plain or any(map(_may_head, head)) else []
    named = any(part.nodes or part.label for part in parts)
    return _timed(parts) if named and any(part.text.strip() for part in parts) else []


def _asked_many(head: list[str]) -> bool:
    """Whether the command that many nodes answer stands above: it tells what the columns are."""
    prompt = next((found for line in head[:4] if (found := PROMPT.match(line.rstrip()[:2000]))), None)
    return prompt is not None and is_command(prompt[3]) and asked(prompt[3]).many


def _asked_below(head: list[str]) -> set[str]:
    """Headings under which somebody typed."""
    above = (
        mark(one) for one, below in zip(head, head[1:], strict=False) if below.startswith(("$ ", "# ")) and typed(below)
    )
    return bare_heads.places_in({found[2].strip() for found in above if found is not None})


def _first_rank(head: list[str]) -> int:
    return next((at for at, line in enumerate(head) if by_rank.names_a_rank(line)), 0)


def _timed(parts: list[Part]) -> list[Part]:
    """Outputs of counters with the time that `date`, a heading or a remark told before them, and what their heading
    says lies between two looks, `# perfquery twice, dt = 10 s`: there the time matters."""
    found, when = [], None
    for part in parts:
        told = part.text.strip()
        alone = "\n" not in told or re.match(r"date(?:_|$)", part.label)
        at = part.at if part.at is not None else when
        if alone and (moment := moment_in(told.split("\n")[0][:200])) is not None and not _TELLS.search(told):
            when = moment
        elif at is not None and told[:1] not in "[{" and (_COUNTS.search(part.label) or _TELLS.search(told[:4096])):
            stamp = datetime.fromtimestamp(at, UTC).isoformat()
            part = replace(part, text=f"{stamp}\n{part.text}", at=at)
        if seconds_in(says := part.label.replace("_", " ")) and _TELLS.search(told[:4096]):
            part = replace(part, text=f"# {says}\n{part.text}")
        found.append(part)
    return found


# The node before every line -----------------------------------------------------------------------------------------


def _may_head(line: str) -> bool:
    return (
        line[:1] in "=#*~<>+_-[$"
        or line.startswith("Every ")
        or keyed(line) != ""
        or bare_heads.placed((line, "-"), 0)[0] != ""
        or " | " in line[:80]
        or "$ " in line[:120]
        or "# " in line[:120]
        or "> " in line[:66]
    )


def _by_headings(text: str, known: set[str], frames: set[str]) -> Iterator[Part]:
    """Parts between headings. A command below a node's heading is that node's, and asks on until the next command."""
    home = typed_at = nodes = ()  # type: tuple[str, ...]
    label, body, now, loop, when = "", list[str](), Asked(), dict[str, str](), None
    lines = text.split("\n")
    at = count = 0
    while at < len(lines):
        found = _heading(lines, at, known, frames) if count < MOST_PARTS and _may_head(lines[at][:200]) else None
        if found is None and count < MOST_PARTS and (name := bare_heads.name_of(lines[at], known)):
            found = 1 + (at + 1 < len(lines) and bare_heads.rule(lines[at + 1])), (name,), ""
        turn = _turn(lines[at], loop) if loop and count < MOST_PARTS and not (found and found[2]) else ""
        if found is None and not turn:
            body.append(lines[at])
            at += 1
            continue
        if any(line.strip() for line in body):
            yield from _cut(nodes, label, body, now, when)
            count += 1
        if turn or found is None:  # the loop's next turn, of the same command
            nodes, body, at = (turn,), [], at + 1
            continue
        taken, who, command = found
        when = look.at if (look := watched(lines[at])) else moment_in(lines[at][:200])
        home = () if who is None else who or home
        if command and who is not None:
            home = who or typed_at if now.many else home  # the nodes in its output are not where the next was typed
            now, typed_at = asked(command), home
            loop = looped(command)
        elif who is None:
            now = Asked()
        nodes = (now.node,) if command and now.node else home
        if command and now.node and not now.command:
            home = nodes  # ssh without a command: what follows was typed there
        if command and launch.tells(command):  # its options tell something by themselves
            host = "".join(nodes[:1]) or at_prompt(lines[at])
            yield Part(nodes, "launch", f"{host}$ {command}\n")
        if command or who:
            label = _label(now.command or command, typed=bool(now.command))
        body = []
        at += taken
    if any(line.strip() for line in body):
        yield from _cut(nodes, label, body, now, when)


def _turn(line: str, loop: dict[str, str]) -> str:
    """The node of a line that names what stands for it and nothing else: `# n1`, `== n1 ==`, `n1:`."""
    name = line.strip(" \t#=*+-<>[]:|~_") if len(line) < 200 else ""
    return loop.get(name, "")


def _cut(nodes: tuple[str, ...], label: str, body: list[str], now: Asked, when: float | None = None) -> Iterator[Part]:
    """A part; of a command that many nodes ran the part of each. Rows without a header get the one asked for."""
    nodes = bare_heads.printed_host(now.command, body) or nodes
    if now.columns and "," not in now.columns and (spread := bare_heads.spread(body, now.columns)):
        yield from (Part((name,), label, text, when) for name, text in spread.items())
        return
    rows = [line for line in body if line.strip()][:400] if now.many else []
    names = names_in(rows, 0.8) or only_name(rows)
    tallied = bool(now.columns) and "uniq -c" in now.command
    text = "\n".join(bare_heads.untallied(body) if tallied else bare_heads.undented(body)) + "\n"
    parts = (
        [Part((name,), "", mine) for name, mine in by_name(text, names).items()] if names else [Part(nodes, "", text)]
    )
    for part in parts:
        first = part.text.lstrip()[:1]
        head = f"{now.columns}\n" if now.columns and (tallied or first.isdecimal() or first in "NGP[") else ""
        columns = heading(now.command)
        if columns and not any(" PID " in f" {line} " or "%CPU" in line for line in part.text.split("\n", 3)[:3]):
            head = f"{columns}\n"
        yield Part(part.nodes, label, head + part.text, when)


def _heading(
    lines: list[str], at: int, known: set[str], frames: set[str]
) -> tuple[int, tuple[str, ...] | None, str] | None:
    """(lines that the heading takes, nodes it names, command it tells), None when this line is none. Nodes are None
    where it begins something that is of no node."""
    line = lines[at].rstrip()
    if len(line) > 2000 or line.endswith(" ping statistics ---"):  # which is no heading of a file
        return None
    if _RULE.match(line[:500]) and at + 2 < len(lines) and _RULE.match(lines[at + 2].rstrip()[:500]):
        word = lines[at + 1].strip()[:2000]
        nodes = folded(word, True) or ((word,) if word in known else _alone(word[:200]))
        return (3, nodes, "") if nodes else None
    if found := _ANSIBLE.match(line) or _PSSH.match(line):
        return 1, (found[1],), ""
    if (place := bare_heads.placed(lines, at))[0]:
        return 1, (place[0],), f"{place[1]} "  # the blank: it is no command of one word
    marked = mark(line)
    if marked and marked[2].strip() in known:  # before prompts: a root's is # too
        return 1, (marked[2].strip(),), ""
    if (node := keyed(line)) and not in_record(lines, at):
        return 1, (node,), f"{line.strip()} "  # the blank: it is no command of one word
    if look := watched(line):
        return 1, (look.node,) if typed_on(look.node, False) else (), look.command
    first, _, rest = marked[2].strip().partition(" ") if marked else ("", "", "")
    if line.startswith("##") and marked:  # a root's prompt is one # only
        if first.strip(":,") in known and asks_there(marked[2].strip()):
            return 1, (first.strip(":,"),), rest.strip()
        if (told := _told(marked[2].strip())) and told[1]:
            return told
    if prompt := PROMPT.match(line):
        host = prompt[1] or prompt[2] or ""
        if prompt[3].startswith("# ") and line[:1] != "#":  # a remark typed at it: what was printed above has ended
            return 1, (), prompt[3]
        if is_command(prompt[3]) or (host and not prompt[2]) or (prompt[2] and ":" in line[: len(prompt[2]) + 1]):
            return 1, (host,) if typed_on(host, at_home(line, prompt[3])) else (), prompt[3]
        return None
    if not marked:
        return None
    if first.strip(":,") in known and asks_there(marked[2].strip()):
        return 1, (first.strip(":,"),), rest.strip()
    told = _told(marked[2].strip())
    return told or ((1, None, marked[2].strip()) if frame(marked) in frames else None)


def _alone(word: str) -> tuple[str, ...]:
    """What stands by itself between two rules, as dshbak and clush -b put it."""
    return (word,) if is_host(word) and may_be_lone(word.partition(".")[0]) else ()


def _told(says: str) -> tuple[int, tuple[str, ...], str] | None:
    """A heading's words: a node, a command, or both."""
    words = [word.strip("()[]<>,;'\"").rstrip(":") for word in re.split(r"[\s|]+", says)][:12]
    nodes = next((nodes for word in words if (nodes := folded(word))), ())
    rest = " ".join(word for word in words if not (nodes and folded(word)))
    prose = re.match(r"[^\s,]{1,40} [^\n]{0,200}?\w, \w", says) is not None  # perf guild, Monday, host n1
    command = rest if is_command(rest) and not (nodes and prose) else ""
    return (1, nodes, command) if nodes or command else None


def _label(says: str, typed: bool = False) -> str:
    """A command as a file's name. What a program printed is no program: torchrun train.py, ./launch.sh."""
    name = re.sub(r"[^\w.+-]+", "_", says.strip())[:MOST_LABEL].strip("_.") or "part"
    return f"{name}_out" if (typed or " " in says.strip()) and name.endswith((".py", ".sh")) else name
