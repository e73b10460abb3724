"""What is sent along with a plan: modules of ours, and files behind the program."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
import zlib
from typing import Any

import pytest

from probes import suites
from probes.catalog.recorder import decode, reader, values
from probes.core import Capture
from probes.runner import attachment, sh
from probes.transport import local
from probes.transport.attachments import MOST_BYTES, Attachment, NoAttachment, load
from probes.transport.plan import Plan, module_source
from tests.support.asking import ask
from tests.support.runners import PYTHONS, messages, probe, run, started
from tests.support.sshd_nodes import Lab

__all__ = ["started"]  # a fixture

ECHO = shutil.which("echo") or "/bin/echo"


def echo(name: str = "tool") -> Attachment:
    with open(ECHO, "rb") as program:
        return Attachment(name, zlib.compress(program.read()))


def use_it() -> dict[str, str]:
    return {"said": sh([attachment("tool"), "hello"])[1]}


def wait_for_nothing() -> dict[str, str]:
    return {"said": "first"}


def on_this_machine(plan: Plan, python: str) -> dict[str, Capture]:
    async def all_of_it() -> list[Any]:
        return [item async for item in local.ask(plan, python=python)]

    return {item.probe: item for item in asyncio.run(all_of_it()) if isinstance(item, Capture)}


@pytest.mark.parametrize(
    "python", PYTHONS, ids=lambda path: path.split("/")[4] if "pyenv" in path else path.rpartition("/")[2]
)
def test_a_file_that_was_sent_can_be_run_on_every_python_there_is(python: str) -> None:
    plan = Plan((probe("a.tool", collect=use_it, attachments=("tool",)),), attachments=(echo("other"), echo()))
    assert on_this_machine(plan, python)["a.tool"].text == "==> said <==\nhello\n\n"


def test_a_probe_without_its_file_says_so() -> None:
    plan = Plan((probe("a.tool", collect=use_it, attachments=("tool",)),), attachments=(echo("other"),))
    capture = on_this_machine(plan, PYTHONS[0])["a.tool"]
    assert (capture.outcome, capture.why) == ("absent", "tool was not sent with this plan")


def test_a_program_that_comes_by_standard_input_brings_no_file_and_waits_for_none() -> None:
    said = run(Plan((probe("a.tool", collect=use_it, attachments=("tool",)),), attachments=(echo(),)))
    assert said["a.tool"]["outcome"] == "absent"


def test_a_file_that_arrives_damaged_is_told_and_hurts_nobody_else() -> None:
    plan = Plan(
        (probe("a.tool", collect=use_it, attachments=("tool",)), probe("a.other", collect=wait_for_nothing)),
        attachments=(Attachment("tool", b"not compressed"),),
    )
    captures = on_this_machine(plan, PYTHONS[0])
    assert captures["a.other"].outcome == "ok"
    assert "cannot be used on this node" in captures["a.tool"].why


def test_only_the_probe_that_needs_a_file_waits_for_it(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Plan.program

    def without_its_end(plan: Plan) -> bytes:
        return whole(plan)[:-1000]

    monkeypatch.setattr(Plan, "program", without_its_end)
    plan = Plan(
        (probe("a.tool", collect=use_it, attachments=("tool",)), probe("a.first", collect=wait_for_nothing)),
        attachments=(echo(),),
    )
    process = started(plan)
    (first,) = messages(process.stdout.readline())
    assert first["probe"] == "a.first"
    process.stdin.write(whole(plan)[-1000:] + b"ping 7\n")
    process.stdin.flush()
    rest = messages(process.stdout.read())
    assert [said.get("n") for said in rest if said["kind"] == "pong"] == ["7"]
    assert [said["out"] for said in rest if said["kind"] == "capture"] == ["==> said <==\nhello\n\n"]


def test_a_file_that_never_arrives_ends_with_the_nodes_deadline(started: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Plan.program
    monkeypatch.setattr(Plan, "program", lambda plan: whole(plan)[:-1])
    plan = Plan((probe("a.tool", collect=use_it, attachments=("tool",)),), attachments=(echo(),), deadline_s=1)
    began = time.monotonic()
    (said,) = [one for one in messages(started(plan).stdout.read()) if one["kind"] == "capture"]
    assert said["outcome"] == "skipped"
    assert time.monotonic() - began < 10


def test_a_node_over_ssh_gets_the_file_too(lab: Lab) -> None:
    lab.start("node1")
    plan = Plan((probe("a.tool", collect=use_it, attachments=("tool",)),), attachments=(echo(),))
    captures, _ = ask(lab, ["node1"], plan)
    assert captures["node1", "a.tool"].text == "==> said <==\nhello\n\n"


def test_what_is_too_large_or_unknown_is_not_sent() -> None:
    with pytest.raises(NoAttachment, match="at most"):
        Attachment("big", b"x" * (MOST_BYTES + 1))
    with pytest.raises(NoAttachment, match="there is only py-spy"):
        load("strace")


# Modules -------------------------------------------------------------------------------------------------------------


def reduce_a_dump() -> dict[str, str]:
    """Calls one brought module, which calls another by the name it imported it under."""
    try:
        reader.reduce(b"no dump")
    except decode.Refused as error:
        return {"said": str(error)}
    return {"said": json.dumps(None)}


@pytest.mark.parametrize("python", [PYTHONS[0], PYTHONS[-1]])
def test_a_collector_calls_the_modules_it_brings(python: str) -> None:
    brings = (decode, values, reader)
    said = run(Plan((probe("a.module", collect=reduce_a_dump, brings=brings),)), python)
    assert said["a.module"]["out"] == "==> said <==\nit is neither a pickle nor JSON\n\n"


def test_a_module_is_sent_once_and_without_what_a_node_cannot_import() -> None:
    one = probe("a.one", collect=reduce_a_dump, brings=(decode,))
    two = probe("a.two", collect=reduce_a_dump, brings=(decode,))
    assert list(Plan((one, two)).as_json()["modules"]) == ["decode"]
    source = module_source(reader)
    assert "import probes" not in source
    assert "from probes" not in source
    assert "__future__" not in source


def test_what_could_not_be_attached_is_told_by_the_probe_that_wanted_it() -> None:
    plan = Plan(
        (probe("a.tool", collect=use_it, attachments=("tool",)),), not_attached={"tool": "tool is not installed"}
    )
    assert on_this_machine(plan, PYTHONS[0])["a.tool"].why == "tool is not installed"


def test_a_suite_without_its_attachment_still_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_there(name: str) -> Attachment:
        raise NoAttachment(f"{name} is not installed")

    monkeypatch.setattr(suites.attachments, "load", nothing_there)
    plan = suites.SUITES["suspects"].plan()
    assert (plan.attachments, plan.not_attached) == ((), {"py-spy": "py-spy is not installed"})
