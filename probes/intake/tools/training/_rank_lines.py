"""What each rank is in, in a line for each, as people write it down: keys with values, or a call and its sizes.

    rank=5 seq=88 op=all_reduce numel=1020 state=started
    rank 2: broadcast [1] int64, waiting 610 s
    rank 6: not in any collective, last finished #911          beside ranks that are in #912
    all_gather #512, input shapes by rank:            a heading tells the call of the lines below it
      rank 1: [7, 2048]

Shape    keyed(rest) -> {key: value}; spoken(text) -> a dict for each rank, [] where no line says that anybody waits
Errors   none
"""

from __future__ import annotations

import re

from probes.core import lines_of

LEAST, MOST = 3, 65_536  # ranks; of two that differ nothing tells which is right
_PAIR = re.compile(
    r"(?P<key>[A-Za-z][A-Za-z_]{1,24}) ?[=:] ?(?P<value>\[[\d, x]{1,80}\]|\([\d, ]{1,80}\)|[\w:.#/-]{1,60})"
)
_LINE = re.compile(r"\W{0,8}(?i:rank)[ _:=#]{0,3}(?P<rank>\d{1,6})\b(?P<rest>[^\n]{1,400})")
_OP = re.compile(
    r"(?i)\b(?:nccl:)?_?(?P<op>all[_-]?reduce|all[_-]?gather|reduce[_-]?scatter|all[_-]?to[_-]?all|broadcast|barrier)"
    r"(?:_base|_into_tensor|_tensor|_coalesced)?(?![a-z])"
)
_SIZES = re.compile(r"\[(?:\d{1,12}(?:, ?| ?x ?)?){1,8}\]|\b(?:numel|count|elements)\w{0,3}[ =:]{1,3}\d{1,15}", re.I)
_SEQ = re.compile(r"#(\d{1,12})\b|\bseq(?:uence)?(?:[ _]?(?:id|num|number|no))?[ =:#]{1,3}(\d{1,12})", re.I)
_WAITS = re.compile(
    r"(?i)\b(?:wait\w{0,3}|stuck|hang\w{0,3}|hung|blocked|pending|in[ -]flight|timed out|time[ -]?out)\b"
)
_OUTSIDE = re.compile(r"(?i)\b(?:not in (?:any|a) coll\w{0,8}|outside|idle|no collective)\b")
_DONE = re.compile(r"(?i)\b(?:completed|finished|done|took|returned)\b")


def keyed(rest: str) -> dict[str, str]:
    return {one["key"].lower(): one["value"] for one in _PAIR.finditer(rest)}


def spoken(text: str) -> list[dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    heading, waits = "", bool(_WAITS.search(text[:8192]))
    for line in lines_of(text, 2_000):
        told = _LINE.match(line)
        if told is None:
            heading = line if _OP.search(line) else heading
            continue
        op = _OP.search(told["rest"]) or _OP.search(heading)
        seq = _SEQ.search(told["rest"])
        if seq is not None and (_DONE.search(told["rest"]) or _OUTSIDE.search(told["rest"])):
            found[told["rank"]] = {"rank": told["rank"], "seq": seq[1] or seq[2], "state": "done"}
            continue
        if op is None or _DONE.search(told["rest"]) or len(found) >= MOST:
            return []
        sizes = _SIZES.search(told["rest"])
        seq = seq or _SEQ.search(heading)
        found[told["rank"]] = {
            "rank": told["rank"],
            "op": re.sub(r"[^a-z]", "", op["op"].lower()),
            "sizes": sizes[0] if sizes else "",
            "seq": (seq[1] or seq[2]) if seq else "0",
            "state": "waiting",
        }
    rows = list(found.values())
    waiting = [row for row in rows if row["state"] != "done"]
    alike = len({row["seq"] for row in waiting}) == 1 and len(waiting) * 2 > len(rows)
    return rows if (waits or len(waiting) < len(rows)) and alike and len(rows) >= LEAST else []
