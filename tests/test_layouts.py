"""A verdict does not depend on how its files are packed, named, encoded or pasted together."""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from probes.explain import explain

TESTS = Path(__file__).parent
CASES = (
    "fixtures/hangs/loader_slow",
    "cases/two-faults-gpu-lost-and-clock-of-another-node/evidence",
    "cases/storage-stall-behind-idle-loaders/evidence",
)


def files(of: Path) -> Iterator[tuple[Path, Path]]:
    """(file, its path below the folder)."""
    return ((path, path.relative_to(of)) for path in sorted(of.rglob("*")) if path.is_file())


def is_text(path: Path) -> bool:
    data = path.read_bytes()[:4096]
    return data[:1] != b"\x80" and b"\0" not in data


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path, Path], None]:
    def layout(of: Path, into: Path) -> None:
        for path, below in files(of):
            (into / below).parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            (into / below).write_bytes(change(data) if is_text(path) else data)

    return layout


def in_one_archive(of: Path, into: Path) -> None:
    with tarfile.open(into / "evidence.tar.gz", "w:gz") as archive:
        archive.add(of, "evidence")


def packed_in_a_zip(of: Path, into: Path) -> None:
    with zipfile.ZipFile(into / "e.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, below in files(of):
            archive.writestr(f"run/{below}.xz", lzma.compress(path.read_bytes(), preset=0))


def each_packed(of: Path, into: Path) -> None:
    for path, below in files(of):
        (into / below).parent.mkdir(parents=True, exist_ok=True)
        (into / f"{below}.gz").write_bytes(gzip.compress(path.read_bytes(), 1))


def flat(of: Path, into: Path) -> None:
    for path, below in files(of):
        shutil.copy(path, into / "_".join(below.parts))


def pasted(of: Path, into: Path) -> None:
    """Of each folder one text, with a heading and a prompt before each file."""
    together: dict[str, list[Path]] = defaultdict(list)
    for path, below in files(of):
        together[below.parts[0] if len(below.parts) > 1 else ""].append(path)
    for name, some in together.items():
        if name and all(map(is_text, some)):
            parts = (f"===== {name} =====\n$ cat {path.name}\n{path.read_text(errors='replace')}\n" for path in some)
            (into / f"{name}.txt").write_text("".join(parts))
        else:
            for path in some:
                shutil.copy(path, into / path.name)


LAYOUTS = {
    "lines of Windows": rewritten(lambda data: data.replace(b"\n", b"\r\n")),
    "UTF-16": rewritten(lambda data: data.decode("utf-8", "replace").encode("utf-16")),
    "one archive": in_one_archive,
    "xz in a zip": packed_in_a_zip,
    "each packed": each_packed,
    "flat": flat,
    "pasted": pasted,
}


def verdict(folder: Path) -> tuple[str, dict[str, Any]]:
    first = explain([folder]).diagnosis.verdict.hypothesis
    return first.cause, {name: value for name, value in first.subject.items() if name != "pid"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_the_verdict_is_the_same_in_every_layout(tmp_path: Path, case: str, layout: str) -> None:
    expected = verdict(TESTS / case)
    assert expected[0] not in ("none", "unknown")
    LAYOUTS[layout](TESTS / case, tmp_path)
    assert verdict(tmp_path) == expected
