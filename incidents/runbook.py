"""Runbooks: one TOML file each in incidents/runbooks/, checked before anybody relies on it.

A runbook is questions with options. Pure: it reads files and knows what there is to ask and to run, not incidents.
Shape    docs/add-a-runbook.md
Errors   check() returns Trouble, each with file, line and the word that is wrong; load() leaves such a file out
"""

from __future__ import annotations

import functools
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from probes import catalog, remedies, suites
from probes.reference import rows

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent / "runbooks"
DONE = "done"  # where a runbook ends: the `next` of a last option
WORD = re.compile(r"[a-z][a-z0-9_]{0,59}")
TOP = {"title", "says", "causes", "start", "steps"}
STEP = {"question", "says", "show", "ask", "options"}
OPTION = {"id", "label", "effect", "undo", "loses", "next", "remedy", "destructive"}


@dataclass(frozen=True, slots=True)
class Option:
    """One answer. `effect` is "" when it only says what is so. `undo` is "" when nothing takes the effect back; `loses`
    says what is lost, also when that is nothing.

    `remedy`: the command that Golden15 runs when it is chosen. `destructive`: a slip would cost work: no key chooses
    it, a reason is asked for, and a remedy of it needs a second person.
    """

    id: str
    label: str
    next: str
    effect: str = ""
    loses: str = ""
    undo: str = ""
    remedy: str = ""
    destructive: bool = False

    @property
    def reversible(self) -> bool:
        return bool(self.undo) or not self.effect


@dataclass(frozen=True, slots=True)
class Step:
    """One question. `show`: probes whose readings of the blamed node answer it; `ask`: a suite that may be run now."""

    id: str
    question: str
    says: str
    options: tuple[Option, ...]
    show: tuple[str, ...] = ()
    ask: str = ""


@dataclass(frozen=True, slots=True)
class Runbook:
    id: str
    title: str
    says: str
    causes: tuple[str, ...]
    start: str
    steps: Mapping[str, Step]

    def as_json(self) -> dict[str, Any]:
        """The form that an incident keeps."""
        return {**asdict(self), "steps": {key: asdict(step) for key, step in self.steps.items()}}

    def number(self, step: str) -> int:
        """The place of a step, from 1."""
        return list(self.steps).index(step) + 1


def of_json(body: Mapping[str, Any]) -> Runbook:
    """A runbook as an incident kept it: it was checked when it was started."""
    steps = {key: Step(**{**step, **_parts(step)}) for key, step in body["steps"].items()}
    return Runbook(body["id"], body["title"], body["says"], tuple(body["causes"]), body["start"], steps)


def _parts(step: Mapping[str, Any]) -> dict[str, Any]:
    return {"show": tuple(step["show"]), "options": tuple(Option(**option) for option in step["options"])}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong in a runbook file. `line` counts from 1; `word` stands there."""

    file: str
    line: int
    word: str
    says: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word!r}: {self.says}"


def load() -> dict[str, Runbook]:
    """The shipped runbooks by id. One that has something wrong is left out and told in the log."""
    return _load(FOLDER)


@functools.cache
def _load(folder: Path) -> dict[str, Runbook]:
    found = {}
    for path in sorted(folder.glob("*.toml")):
        troubles = check(path)
        for trouble in troubles:
            log.error("runbook left out: %s", trouble)
        if not troubles:
            found[path.stem] = _made(path.stem, tomllib.loads(path.read_text()))
    return found


def fitting(cause: str) -> list[Runbook]:
    """The runbooks for a cause."""
    return [one for one in load().values() if cause in one.causes]


def check(path: Path) -> list[Trouble]:
    """What is wrong in a file, in the order of its lines; nothing when it can be used."""
    try:
        text = path.read_text()
        said = tomllib.loads(text)
    except OSError as error:
        return [Trouble(path.name, 1, path.name, f"cannot be read: {error.strerror}")]
    except UnicodeDecodeError:
        return [Trouble(path.name, 1, path.name, "is not UTF-8 text")]
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at.group(1)) if at else text.count("\n") + 1
        word = (text.splitlines() or [""])[min(line, text.count("\n") + 1) - 1].strip()[:40]
        return [Trouble(path.name, line, word, f"is not TOML: {error}")]
    checker = _Check(path, text)
    found = list(checker.troubles(said)) or list(checker.ways(said))  # a dead link alone cuts off half of the steps
    return sorted(found, key=lambda trouble: trouble.line)


class _Check:
    """Goes through one file. Lines are found by looking for the word in the part of the text where it belongs."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.lines = text.splitlines()

    def trouble(self, word: str, says: str, step: str = "", after: str = "") -> Trouble:
        """`after`: a word that stands before it in that step, such as the id of its option."""
        begin = self._line(f"[steps.{step}]", 0) if step else 0
        begin = self._line(after, begin) if after else begin
        at = begin if word == step and not after else self._line(word, begin)
        return Trouble(self.path.name, at + 1, word, says)

    def _line(self, word: str, begin: int) -> int:
        whole = re.compile(rf"(?<![\w.]){re.escape(word)}(?!\w)")
        return next((number for number in range(begin, len(self.lines)) if whole.search(self.lines[number])), begin)

    def troubles(self, said: dict[str, Any]) -> Iterator[Trouble]:
        if not WORD.fullmatch(self.path.stem):
            yield self.trouble(self.path.stem, "name the file in lower-case letters, digits and _: it is the id")
        yield from self._keys(said, TOP, {"title", "says", "causes", "start", "steps"})
        steps = said.get("steps")
        if not isinstance(steps, dict) or not all(isinstance(step, dict) for step in steps.values()) or not steps:
            yield self.trouble("steps", "there is not one step: write [steps.NAME] with a question and options")
            return
        known = {row["id"] for row in rows("causes")}
        for cause in _strings(said.get("causes")):
            if cause not in known:
                yield self.trouble(cause, "no such cause: see probes/reference/causes.toml")
        if said.get("start") not in steps:
            yield self.trouble(str(said.get("start")), "no such step to start with")
        for name, step in steps.items():
            yield from self._step(name, step, steps)

    def _step(self, name: str, step: dict[str, Any], steps: Mapping[str, Any]) -> Iterator[Trouble]:
        if not WORD.fullmatch(name):
            yield self.trouble(name, "name a step in lower-case letters, digits and _")
        yield from self._keys(step, STEP, {"question", "options"}, name)
        for probe in _strings(step.get("show")):
            if probe not in catalog.load():
                yield self.trouble(probe, "no such probe: see `python -m probes list`", name)
        ask = step.get("ask", "")
        if ask and ask not in suites.SUITES:
            yield self.trouble(str(ask), "no such suite: see `python -m probes list`", name)
        seen: set[str] = set()
        for option in _tables(step.get("options")):
            yield from self._option(name, option, steps, seen)
            seen.add(str(option.get("id")))

    def _option(self, step: str, option: dict[str, Any], steps: Mapping[str, Any], seen: set[str]) -> Iterator[Trouble]:
        mine = str(option.get("id", ""))
        does = {"effect", "loses"} if option.keys() & {"effect", "loses", "undo", "remedy", "destructive"} else set()
        yield from self._keys(option, OPTION, {"id", "label", "next"} | does, step, mine)
        if mine and not WORD.fullmatch(mine):
            yield self.trouble(mine, "name an option in lower-case letters, digits and _", step)
        if mine in seen:
            yield self.trouble(mine, "two options of this step have this id", step)
        if "next" in option and option["next"] != DONE and option["next"] not in steps:
            yield self.trouble(
                str(option["next"]), f"a dead link: there is no such step, and it is not {DONE}", step, mine
            )
        remedy = option.get("remedy", "")
        if remedy and remedy not in remedies.load():
            yield self.trouble(str(remedy), "no such remedy: see probes/reference/remedies.toml", step, mine)
        elif remedy and remedies.load()[remedy].destructive and not option.get("destructive"):
            yield self.trouble(str(remedy), "this remedy destroys: say destructive = true beside it", step, mine)

    def _keys(
        self, table: dict[str, Any], allowed: set[str], needed: set[str], step: str = "", after: str = ""
    ) -> Iterator[Trouble]:
        for key, value in table.items():
            if key not in allowed:
                yield self.trouble(key, f"no such key here: {', '.join(sorted(allowed))}", step, after)
            elif not _fits(key, value):
                yield self.trouble(key, f"expected {_expected(key)}", step, after)
        for key in sorted(needed - table.keys()):
            where = f"option {after} of step {step}" if after else f"step {step}" if step else "the runbook"
            yield self.trouble(after or step or self.path.stem, f"{where} lacks {key}", step)

    def ways(self, said: dict[str, Any]) -> Iterator[Trouble]:
        """Steps from which no way leads to the end, and steps to which no way leads."""
        steps = said["steps"]
        links = {name: {str(o.get("next")) for o in _tables(step.get("options"))} for name, step in steps.items()}
        ends = {DONE}
        while grown := {name for name, leads in links.items() if name not in ends and leads & ends}:
            ends |= grown
        for name in links.keys() - ends:
            yield self.trouble(name, f"no way out: no option of this step leads, however far, to {DONE}", name)
        reached, todo = set(), [str(said.get("start"))]
        while todo:
            name = todo.pop()
            if name in links and name not in reached:
                reached.add(name)
                todo += links[name]
        if reached:
            for name in links.keys() - reached:
                yield self.trouble(name, "no way leads to this step", name)


def _fits(key: str, value: object) -> bool:
    if key in ("causes", "show"):
        return isinstance(value, list) and all(isinstance(one, str) and one for one in value)
    if key == "steps":
        return isinstance(value, dict)
    if key == "options":
        return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)
    if key == "destructive":
        return isinstance(value, bool)
    return isinstance(value, str) and bool(value.strip())


def _expected(key: str) -> str:
    lists = {"causes": "a list of causes", "show": "a list of probes", "options": "[[steps.NAME.options]] tables"}
    return {**lists, "steps": "[steps.NAME] tables", "destructive": "true or false"}.get(key, "some text")


def _strings(value: object) -> Sequence[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _tables(value: object) -> Sequence[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _made(name: str, said: dict[str, Any]) -> Runbook:
    steps = {
        key: Step(
            key,
            step["question"],
            step.get("says", ""),
            tuple(Option(**option) for option in step["options"]),
            tuple(step.get("show", ())),
            step.get("ask", ""),
        )
        for key, step in said["steps"].items()
    }
    return Runbook(name, said["title"], said["says"], tuple(said["causes"]), said["start"], steps)
