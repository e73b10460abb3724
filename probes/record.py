"""Records one capture as a test case: the output as it came, and a draft of what it should read as."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from probes import catalog
from probes.core import Capture, Finding


class RecordError(Exception):
    """The case cannot be recorded. Says why and what to do."""


def write(folder: Path, case: str, capture: Capture) -> tuple[Path, Path]:
    """Write FOLDER/<probe>/<case>.out and a draft .json beside it; returns both paths. Never overwrites."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,60}", case):
        raise RecordError(
            f"{case!r} is not a case name: lower-case letters, digits, dots and dashes, such as port-down"
        )
    if capture.outcome != "ok":
        raise RecordError(f"{capture.node} did not answer {capture.probe}: {capture.outcome}. {capture.why}")
    place = folder / capture.probe
    out, draft = place / f"{case}.out", place / f"{case}.json"
    if out.exists() or draft.exists():
        raise RecordError(f"{out} exists already: choose another name for the case")
    place.mkdir(parents=True, exist_ok=True)
    out.write_bytes(capture.out)
    reading = catalog.read(capture)
    said: dict[str, Any] = {
        "recorded": f"{capture.node}: say here which machine, tool version and date this is",
        "source": "our own recording",
        "licence": "Apache-2.0",
    }
    if reading.parse_error:
        said["error"] = re.escape(reading.parse_error)
    else:
        said["facts"] = dict(flatten(reading.facts_json))
        said["findings"] = [finding_line(finding) for finding in reading.findings]
    draft.write_text(json.dumps(said, indent=2, ensure_ascii=False) + "\n")
    return out, draft


def flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Nested facts as (dotted path, scalar) pairs; `#` is the length of a list."""
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in flatten(item, f"{path}.{key}".lstrip("."))]
    if isinstance(value, list):
        pairs = [(f"{path}.#".lstrip("."), len(value))]
        return pairs + [pair for i, item in enumerate(value) for pair in flatten(item, f"{path}.{i}".lstrip("."))]
    return [(path, value)]


def finding_line(finding: Finding) -> str:
    """A finding as a test case names it: code, then its subject as key=value."""
    return " ".join([finding.code, *(f"{key}={value}" for key, value in finding.subject.items())])
