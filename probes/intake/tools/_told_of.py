"""Of which node a line tells that some collector, logger or person wrote: by a key, an object, syslog, or its words.

Shape    node_in(line, at) -> node, "" where it names none; `at` is where what it tells begins. leading(line, at) -> the
         node with which the line begins
Errors   none
"""

from __future__ import annotations

import re

from probes.core import clean
from probes.intake.hosts import may_be_lone
from probes.intake.names import is_address, is_host, is_other, looks_like_a_node

# host=x, "hostname": "x", node="x", {"_HOSTNAME":"x"}; labels of Prometheus, Loki and Kubernetes, keys of JSON.
_KEYED = re.compile(
    r"(?<![A-Za-z])(?:_?host_?name|host|node_?name|node|computer|machine|kubernetes_node|nodename|instance|exported_instance)"
    r"[\"']?\s{0,3}[=:]{1,2}\s{0,3}[\"']?([A-Za-z][\w.-]{0,100})", re.I
)  # fmt: skip
_OBJECT = re.compile(r"(?<![\w/])nodes?/([a-z0-9][\w.-]{0,100})")  # kubectl get events
_SYSLOG = re.compile(r"(?:^|\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? )([A-Za-z][\w.-]{0,80}) kernel:")
_ON = re.compile(r"\b(?:on|of|at|from)(?: (?:the )?(?:node|host|server|machine))? ([A-Za-z][\w.-]{0,80}\w)", re.I)
_CALLED = re.compile(r"\b(?:node|host|server|machine)[ :=]{1,3}([A-Za-z][\w.-]{0,80}\w)", re.I)
_WORD = re.compile(r"[A-Za-z][\w.-]{1,80}")


def node_in(line: str, at: int) -> str:
    """The key or object nearest before what is told counts; then one behind it, then a word that can be a node's."""
    before, after = line[max(0, at - 1000) : at], line[at : at + 1000]
    for pattern, text in ((_OBJECT, before), (_KEYED, before), (_SYSLOG, before), (_OBJECT, after), (_KEYED, after)):
        found = [one for one in pattern.findall(text) if is_host(one) and _is_name(one)]
        if found:
            return clean(found[-1] if text is before else found[0]).partition(".")[0]
    words = [*_ON.findall(after), *_ON.findall(before), *_WORD.findall(before), *_WORD.findall(after[:300])]
    names = (word.partition(".")[0] for word in words if not word.startswith("GPU"))  # GPU-0aa1: a UUID
    return next((name for name in names if looks_like_a_node(name)), "")


_FIRST = re.compile(
    r"[\s|*-]{0,8}[\[(]?([A-Za-z][\w.-]{0,62}|\d{1,3}(?:\.\d{1,3}){3})[\])]?(?:\s{0,4}[:|,]\s{0,4}|\s{1,40})"
)


def leading(line: str, at: int) -> str:
    """The node that is the first word, before what is told; "" where that word is none."""
    first = _FIRST.match(line)
    if first is None or first.end() > at:
        return ""
    word = first[1]
    if is_address(word) or looks_like_a_node(word):
        return word
    return word if is_host(word) and may_be_lone(word.partition(".")[0]) and not is_other(word) else ""


def placed(line: str) -> str:
    """The node of `on n14`, `node c22`, whatever its name is like."""
    words = (word.partition(".")[0] for word in (*_CALLED.findall(line), *_ON.findall(line)))
    return next((word for word in words if may_be_lone(word) and not is_other(word)), "")


def told_before(words: str) -> str:
    """The node of `[03:11] mona: gn31 dropped GPU 5: `, whatever its name is like; "" where several may be meant."""
    names = [word.partition(".")[0] for word in _WORD.findall(words[-200:]) if any(one.isdigit() for one in word)]
    found = {name for name in names if may_be_lone(name) and not is_other(name) and not name.startswith("GPU")}
    return found.pop() if len(found) == 1 else ""


def keyed(line: str) -> str:
    """The node that a key names."""
    found = [one for one in _KEYED.findall(line) if is_host(one) and _is_name(one)]
    return clean(found[0]).partition(".")[0] if found else ""


def _is_name(word: str) -> bool:
    return word.lower() not in ("kernel", "localhost", "none", "null", "true", "false", "unknown", "name")
