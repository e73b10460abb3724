"""python -m tests.bench [--quick] [--json FILE] [ROW ...]    Measure the diagnosis beside its peers, in one run.

Rows: recorder, merged, logs, diagnosis, suites. --quick measures small sizes, to see that everything runs. Nothing is
asserted: a loaded machine is slow, so what counts is the ratio to the peer of the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import asking, diagnosis, logs, recorder
from tests.bench.rows import Row

ROWS: dict[str, Callable[[Path, bool], Iterator[Row]]] = {
    "recorder": recorder.from_files,
    "merged": recorder.merged,
    "logs": logs.logs,
    "diagnosis": diagnosis.diagnosis,
    "suites": asking.suites,
}


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], help="only these")
    chosen = parser.parse_args(words)
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in ROWS.items():
            if not chosen.rows or name in chosen.rows:
                found += measure(Path(folder), chosen.quick)
    table = Table("what", "who", "CPU s", "wall s", "peak MB", "goal", "ratio to the peer")
    for row in found:
        table.add_row(*row.cells)
    Console(highlight=False, width=160).print(table)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
