"""Output that people quoted in a chat is evidence; what they said about it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.hardware import judged

NVIDIA = "ana@ibex-7:~$ nvidia-smi\nFailed to initialize NVML: Driver/library version mismatch"
OOM = (
    "root@ibex-7:~# dmesg -T | tail -2\n"
    "[Mon Jan  5 09:00:01 2026] Out of memory: Killed process 4071 (python3) total-vm:9kB, anon-rss:99999999kB, UID:0"
)


def chat(*texts: str) -> list[dict[str, str]]:
    return [
        {"type": "message", "user": f"U{at}", "ts": f"17900001{at:02d}.1", "text": text}
        for at, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    "export",
    [
        chat("runs die on ibex-7", f"```{NVIDIA}```", "reboot it &amp; see"),
        chat("see", f"here:\n```\n{NVIDIA}\n```\nthoughts?"),
        {"ok": True, "messages": chat(f"```{NVIDIA}```", "anyone?")[::-1], "has_more": False},
    ],
)
def test_a_block_in_a_message_is_read_as_the_session_it_is(tmp_path: Path, export: object) -> None:
    found = judged(tmp_path, {"export.json": json.dumps(export, indent=1)}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == ("host.library_mismatch", "ibex-7")


def test_a_block_without_fences_and_with_escapes_is_read_too(tmp_path: Path) -> None:
    text = OOM.replace("root@", "&lt;pasted&gt;\nroot@")
    found = judged(tmp_path, {"c.json": json.dumps(chat(text))}).verdict.hypothesis
    assert (found.cause, found.subject["node"]) == ("host.memory_oom_kill", "ibex-7")


def test_what_somebody_says_about_it_is_no_evidence(tmp_path: Path) -> None:
    export = chat("I bet ibex-7 has: Failed to initialize NVML: Driver/library version mismatch", "NVRM: Xid 79 again?")
    files = {"c.json": json.dumps(export), "train.log": "2026-01-05 09:00:00 trainer step 9 loss 2.1\n"}
    assert judged(tmp_path, files).verdict.hypothesis.cause == "unknown"
