"""The rank that a launcher or a collector put in front of every line of a file that several ranks write to.

    Rank 13: text        [n02 rank 13] text        rank=13 host=n02 text        R13 | text        n02:13: text
    [13] text, as mpiexec of MPICH and Intel MPI writes with -l
    {"rank": 13, "host": "n02", "message": "text"}

Shape    marked(text) -> (the text with [rank13]: in front, as torch marks it, and {rank: node})
Errors   none: where not nearly all lines begin so, of two ranks at least, it is left as it is
"""

from __future__ import annotations

import re

from probes.intake.hosts import may_be_lone

_WORD = re.compile(
    r"[\[(]?(?:(?P<host>[A-Za-z][\w.-]{0,62})[ :/,])?[\[(]?(?:[Rr]ank|RANK|[Rr])[ =:_-]?(?P<rank>\d{1,6})[\])]?"
    r"(?: (?:host|node|hostname)=(?P<key>[A-Za-z][\w.-]{0,62}))?(?:\]|:| \||,| -)?(?: |$)"
)
_COLON = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,62})(?P<key>:)(?P<rank>\d{1,5}): ?")
_BRACKETS = re.compile(r"(?P<host>(?!))?(?P<key>(?!))?\[(?P<rank>\d{1,5})\] ?(?=\S)")
_JSON_RANK = re.compile(r'"rank" ?: ?"?(\d{1,6})"?[,}]')
_JSON_HOST = re.compile(r'"(?:host|hostname|node|node_name)" ?: ?"([A-Za-z][\w.-]{0,62})"')
_MARK = re.compile(r"\[rank\d{1,6}\]")
LOOKED_AT, SHARE = 400, 0.9


def marked(text: str) -> tuple[str, dict[int, str]]:
    head = [line for line in text[:65_536].split("\n") if line.strip()][:LOOKED_AT]
    if head and head[0].startswith("{"):
        return text, _of_json(text)
    if len(head) < 2 or any(_MARK.search(line[:200]) for line in head):
        return text, {}
    for form in (_WORD, _COLON, _BRACKETS):
        found = [match for line in head if (match := form.match(line))]
        ranks = {int(match["rank"]) for match in found}
        hosts = {(int(match["rank"]), host) for match in found if (host := _host(match))}
        alone = len({rank for rank, _ in hosts}) == len(hosts)  # a local rank is of several nodes
        sure = form is _WORD or (len(hosts) == len(ranks) if form is _COLON else _all_of_a_job(found))
        if len(found) >= SHARE * len(head) and len(ranks) > 1 and alone and sure:
            lines = [form.sub(lambda match: f"[rank{match['rank']}]: ", line, count=1) if form.match(line) else line
                     for line in text.split("\n")]  # fmt: skip
            return "\n".join(lines), dict(hosts)
    return text, {}


def _all_of_a_job(found: list[re.Match[str]]) -> bool:
    """A list that somebody numbered has each number once; ranks of a job have every number below the last."""
    ranks = {int(match["rank"]) for match in found}
    return ranks == set(range(len(ranks))) and len(found) >= 3 * len(ranks)


def _host(match: re.Match[str]) -> str:
    key = match["key"] or ""
    said = match["host"] or "" if key in ("", ":") else key
    name = said.partition(".")[0]
    return name if key not in ("", ":") or (name and may_be_lone(name)) else ""


def _of_json(text: str) -> dict[int, str]:
    hosts: dict[int, str] = {}
    for line in text[:4_194_304].split("\n"):
        rank, host = _JSON_RANK.search(line[:2000]), _JSON_HOST.search(line[:2000])
        if rank and host and len(hosts) < 131_072:
            hosts.setdefault(int(rank[1]), host[1].partition(".")[0])
    return hosts
