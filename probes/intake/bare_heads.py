"""Lines that hold a node's name and nothing else but marks, above what is that node's.

    n031:                        salt 'n*' cmd.run ...: the output is indented by four
        [Mon Mar  2 ...] ...
    >>> n031    -- n031 --    ==> n031 <==    [n031]    1) n031    On n031:    n031 (suspect)
    n031
    ----

Whatever somebody puts around it, the word is a heading where others like it are and the same begins below each.

Shape    names_in(lines) -> the names; name_of(line, names) -> the name that this line is, "" for none; rule(line);
         placed(lines, at) -> (node, adapter) of a heading that names both
Errors   none
Source   Salt's default outputter (nested): the minion's name and a colon, its output indented by four
         Marks that people put around a name: judgement
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from probes.intake.hosts import NO_NODE_FOLDER, NOT_NODE, NUMBERED, alike, may_be_lone
from probes.intake.names import begins_as_other, is_address, is_host, looks_like_a_node, stem

_MARKS = r"=#*+<>~@%|:;,.!/\\•‣▶►●■◆━─—–═╔╗║│┃→⇒_\-"
_HEAD = re.compile(
    rf"(?P<mark>[{_MARKS}\[( \t]{{0,80}}(?:\d{{1,3}}[.)] )?)"
    r"(?P<said>(?:output )?(?:on|of|from|node|host(?:name)?|server|machine)(?::? {1,2}|=))?"
    r"`?(?P<name>[A-Za-z][\w.-]{0,62}?|\d{1,3}(?:\.\d{1,3}){3})`?"
    rf"(?P<end>:?(?: says| \([^()\n]{{1,60}}\))?[{_MARKS}\]) \t]{{0,80}})",
    re.I,
)
_RULE = re.compile(r"[-=_~*#─━═╔╗╚╝]{3,200}")  # with a + it begins a table
_OLD_MARK = re.compile(r"#{1,4} {1,2}|\*\*|- ")  # a heading's, and of a list where a colon follows
_LAST_NUMBER = re.compile(r"(?<=[a-z])[-_.]?\d{1,5}$", re.I)
_PLACED = re.compile(  # c22 mlx5_1, again at 08:20      ## c22 mlx5_1      --- c22: mlx5_1 port 1 ---
    r"(?P<mark>[-#=*+>]{0,12} {0,4})(?P<name>[A-Za-z][\w.-]{0,62})(?:: ?|/| {1,4}|, ?)"
    r"(?P<part>(?:mlx\d_(?:bond_?)?|bnxt_re|hfi1_|irdma|rdmap|rocep|efa_?|ionic_)\w{1,12})"
    r"(?:(?:/| port |:)\d{1,2})?:?(?P<more>(?:, | ?\()[^\n]{1,80})?(?: {1,4}[-#=*+<]{1,12})?\s{0,8}"
)
_KERNEL = re.compile(r"\[ {0,5}\d{1,9}\.\d{1,9}\] ")
_FILE = re.compile(r"==> \S{0,200}/\S{1,200} <==$")
MOST, LONG = 1024, 20  # heads; characters of a line that is the same below each


def rule(line: str) -> bool:
    """Whether it is a line drawn below a heading."""
    return bool(_RULE.fullmatch(line[:201].strip()))


def _found(line: str) -> re.Match[str] | None:
    found = _HEAD.fullmatch(line) if len(line) < 120 else None
    if found is None or "_" in found["name"] or re.fullmatch(r"<[\w.-]+>", line.strip()):  # a tag
        return None
    if line[:1].isspace() and not found["mark"].strip():
        return None  # a word of what a tool indents
    return found if stem(found["name"]) == found["name"] else None  # n031.log is a file


def _marked(found: re.Match[str]) -> bool:
    """Whether nobody would put that around a word but above something."""
    mark, end = found["mark"].strip(), found["end"].strip()
    if _OLD_MARK.match(found["mark"]) and (end or mark[:1] in "#*"):
        return True
    return len(mark) > 1 or bool(mark and end) or (not mark and end[:1] == ":") or bool(found["said"] and end)


def placed(lines: Sequence[str], at: int) -> tuple[str, str]:
    """The node and the adapter of a line that names both and tells no more, ("", "") where it is no such heading. A row
    of many such has one like it below."""
    line = lines[at][:200].rstrip()
    found = _PLACED.fullmatch(line)
    if found is None or not any(c.isdigit() for c in found["name"]) or begins_as_other(found["name"]):
        return "", ""
    below = lines[at + 1][:200].rstrip() if at + 1 < len(lines) else ""
    if not below.strip() or (_PLACED.match(below) and not found["mark"].strip()):
        return "", ""
    return found["name"], found["part"]


def names_in(lines: Sequence[str]) -> set[str]:
    """Several that are called alike, or one that can only be a node's. Parts of a machine, mlx5_0: and eth0:, are
    none."""
    if sum(bool(_FILE.match(line)) for line in lines) > 1:
        return set()  # files, as tail -v prints them: what stands alone below is their content
    heads = [(at, found) for at, line in enumerate(lines) if (found := _found(line))][:MOST]
    at_all = {at for at, _ in heads}
    below: dict[str, str] = {}
    marked, sure, framed, closed = set[str](), set[str](), set[str](), set[str]()
    for at, found in heads:
        name, short = found["name"], found["name"].partition(".")[0]
        next_at = next((one for one in range(at + 1, min(at + 3, len(lines))) if not rule(lines[one])), len(lines))
        if next_at >= len(lines) or (next_at in at_all and may_be_lone(_name(lines[next_at]))):
            continue  # nothing stands below: a row, or a list of names
        below.setdefault(name, lines[next_at].rstrip())
        drawn = next_at == at + 2
        mark, end = found["mark"].strip(), found["end"].strip()
        if len(mark) > 1 and end[-1:] != ":":
            framed.add(name)
        if len(mark) > 1 and mark == end:
            closed.add(name)
        if is_address(name):
            (marked if _marked(found) or drawn or found["said"] else set[str]()).add(name)
        elif may_be_lone(short) and (_marked(found) or drawn):
            marked.add(name)
            if found["said"] or looks_like_a_node(short):
                sure.add(name)
    same = _begun_alike(below, framed, closed)
    return (alike(marked) & marked) | sure | {one for one in marked if is_address(one)} | same


def _name(line: str) -> str:
    found = _found(line)
    return found["name"].partition(".")[0] if found else ""


def _begun_alike(below: dict[str, str], framed: set[str], closed: set[str]) -> set[str]:
    """Names above the same, whatever marks they have: alike ones above lines of one shape, or any two with a frame
    above the same long line, as the columns of a table are, or with a closed one above lines of one shape."""
    shapes: dict[str, set[str]] = {}
    for name, line in below.items():
        short = name.partition(".")[0]
        lettered = short[-2:-1] == "-" and NUMBERED.search(short)
        if line and (lettered or may_be_lone(short) or is_address(name)):
            shapes.setdefault(re.sub(r"\d+", "#", line.strip())[:LONG], set()).add(name)
    found = set[str]()
    for shape, names in shapes.items():
        one_net = {name for name in names if is_address(name)}
        found |= (alike(names) & names if len(shape) > 8 else set()) | (one_net if len(one_net) > 1 else set())
    columns: dict[str, set[str]] = {}
    for name, line in below.items():
        if line[:1].isspace() or not is_host(name) or begins_as_other(name) or _is_word(name):
            continue
        if name in closed and len(line) > 8:
            shape = "a kernel's" if _KERNEL.match(line) else re.sub(r"\d+", "#", line)
            columns.setdefault(shape, set()).add(name)
        elif name in framed and len(line) >= LONG:
            columns.setdefault(line, set()).add(name)
    return found | {name for names in columns.values() if len(names) > 1 for name in names}


def _is_word(name: str) -> bool:
    """What people call the two looks at one machine: before, good, NVLink."""
    return any(NOT_NODE.fullmatch(part) or NO_NODE_FOLDER.fullmatch(part) for part in re.split("[-.]", name))


def places_in(words: set[str]) -> set[str]:
    """Of headings under which somebody typed those that differ in their number alone: a place with a shell is a machine
    or a pod, also where it is called worker-3."""
    names = {word for word in words if is_host(word) and _LAST_NUMBER.search(word)}
    return names if len(names) > 1 and len({_LAST_NUMBER.sub("#", name) for name in names}) == 1 else set()


def name_of(line: str, names: set[str]) -> str:
    found = _found(line) if names and len(line) < 120 else None
    return found["name"] if found and found["name"] in names else ""


def undented(body: list[str]) -> list[str]:
    """Without the four blanks that Salt puts before each line."""
    some = [line for line in body if line.strip()]
    return [line[4:] for line in body] if some and all(line.startswith("    ") for line in some) else body


_SPREAD = re.compile(r"(?:\d{1,5}: )?([A-Za-z][\w.-]{0,62}):?[ \t]{1,8}(\S[^\n]{0,400})")


def spread(body: list[str], column: str) -> dict[str, str]:
    """{node: the column's header and a row for each value} of lines `n1 16 16 4 16`: one field of each GPU, put into a
    line by tr or paste. {} where fewer than two lines are such."""
    found: dict[str, str] = {}
    lines = [line.strip() for line in body if line.strip()]
    for line in lines[:1024]:
        row = _SPREAD.fullmatch(line)
        values = re.split(r"[,;\s]{1,8}", row[2].strip()) if row else []
        if row and is_host(row[1]) and any(c.isdigit() for c in row[1]) and len(values) < 17:
            rows = "".join(f"{index}, {value}\n" for index, value in enumerate(values))
            found[row[1]] = f"index, {column}\n{rows}"
    return found if len(found) > 1 and len(found) * 5 >= len(lines) * 4 else {}


_HOSTNAME = re.compile(r"['\"]?(?:hostname|uname -n)(?: -[sf])?\s{0,4}(?:;|&&)")


def printed_host(command: str, body: list[str]) -> tuple[str, ...]:
    """The node by its own word, `ssh 10.9.0.2 'hostname; dmesg'`, which is taken off the output; () for none."""
    first = next((at for at, line in enumerate(body) if line.strip()), None)
    if first is None or not _HOSTNAME.match(command) or not is_host(name := body[first].strip()[:80]):
        return ()
    del body[: first + 1]
    return (name.partition(".")[0],)


_TALLY = re.compile(r"\s{0,12}(\d{1,6}) (?=\S)")  # of uniq -c


def untallied(body: list[str]) -> list[str]:
    """Each row as often as uniq -c counted it, 16 times at most, which is a node's GPUs."""
    found = [(line, _TALLY.match(line)) for line in body]
    return [
        row
        for line, one in found
        for row in [line[one.end() :] if one else line] * (min(int(one[1]), 16) if one else 1)
    ]
