"""python -m tests.accuracy [FOLDER] [--json FILE] [--only WORD] [--fit]    Judge cases; is the verdict right?

Exit status: 0 the goals of the test split are met, 1 they are not, 2 a case is malformed. --only prints cases in full.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from probes.explain import explain
from tests.accuracy import fitting, peers
from tests.accuracy.cases import FOLDER, LANES, Case, cases, neutral
from tests.accuracy.score import Judged, Tally, reliability, tally

GOAL_TOP1 = 0.95
Row = tuple[Judged, peers.Blame | None, peers.Blame | None]


def judge(case: Case) -> Judged:
    """Explain a copy of the evidence."""
    with neutral(case) as place:
        begun = time.process_time()
        ranked = explain([place]).diagnosis.ranked
        seconds = time.process_time() - begun
    said = tuple((one.hypothesis.cause, dict(one.hypothesis.subject), one.probability) for one in ranked)
    return Judged(case, said, ranked[0].hypothesis.says, seconds)


def _row(case: Case) -> Row:
    judged = judge(case)
    with neutral(case) as place:
        return judged, peers.torchrun(case, place), peers.torchfrtrace(case, place)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="other cases than those of tests/cases")
    parser.add_argument("--json", type=Path, help="also write every verdict to this file")
    parser.add_argument("--only", default="", help="only cases with this in their name, with what was said")
    parser.add_argument("--fit", action="store_true", help="the tempering that fits the tuning split best")
    chosen = parser.parse_args(words)
    try:
        found = [one for one in cases(chosen.folder) if chosen.only in one.name]
    except ValueError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 2
    if chosen.fit:
        return fitting.show(found)
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(_row, found, chunksize=4))
    judged = [row[0] for row in rows]
    console = Console(highlight=False, soft_wrap=True, width=140)
    _wrong(console, judged, bool(chosen.only))
    _tallies(console, judged)
    _shortfalls(console, judged)
    _reliability(console, judged)
    _peers(console, rows)
    if chosen.json:
        chosen.json.write_text(json.dumps([_plain(one) for one in judged], indent=1))
    return _goals(console, judged)


def _plain(one: Judged) -> dict[str, Any]:
    said = [{"cause": cause, "subject": subject, "probability": share} for cause, subject, share in one.said[:5]]
    return {"case": one.case.name, "split": one.case.split, "right": one.right, "said": said, "cpu_s": one.seconds}


def _wrong(console: Console, judged: Sequence[Judged], in_full: bool) -> None:
    """Wrong ones of the tuning split with what was said. Of the test split not even names, which tell the cause: nobody
    shall write a rule for one."""
    for one in judged:
        if (one.right or one.case.split == "test") and not in_full:
            continue
        console.print(f"{'right' if one.right else 'wrong'}  {one.case.split:<6} {one.case.name}", markup=False)
        truths = "; ".join(str(dict(truth)) for truth in (*one.case.accepted, *one.case.second))
        console.print(f"       is    {truths}", markup=False)
        for cause, subject, share in one.said[:3]:
            console.print(f"       said  {share:.2f} {cause} {subject}", markup=False)
        console.print(f"       {one.says}", markup=False, style="dim")


def _tallies(console: Console, judged: Sequence[Judged]) -> None:
    table = Table(
        "cases", "n", "first", "of three", "wrong at 0.8", "controls", "with a finding", "two faults", "both of three"
    )
    for split in ("tuning", "test"):
        mine = [one for one in judged if one.case.split == split]
        for lane in LANES:
            _tally_row(table, f"{split}, {lane}", tally([one for one in mine if one.case.lane == lane]))
        _tally_row(table, f"{split}, all", tally(mine), "bold")
    _tally_row(table, "recorded ones", tally([one for one in judged if one.case.real]))
    _tally_row(table, "all", tally(judged), "bold")
    console.print(table)
    causes = Counter(truth["cause"] for one in judged for truth in one.case.accepted[:1])
    seconds = sum(one.seconds for one in judged)
    console.print(
        f"{len(causes)} causes; {sum(one.case.real for one in judged)} of {len(judged)} recorded; {seconds:.1f} s CPU"
    )


def _shortfalls(console: Console, judged: Sequence[Judged]) -> None:
    """How the wrong ones are wrong, in numbers only."""
    for split in ("tuning", "test"):
        counts = Counter(one.shortfall for one in judged if one.case.split == split and not one.right)
        console.print(f"{split}, wrong: " + ("; ".join(f"{n} {says}" for says, n in counts.most_common()) or "none"))


def _tally_row(table: Table, name: str, told: Tally, style: str = "") -> None:
    if told.n:
        first, three = f"{100 * told.top1 / told.n:.0f} %", f"{100 * told.top3 / told.n:.0f} %"
        numbers = (told.n, first, three, told.confidently_wrong, told.controls, told.findings_in_controls)
        numbers += (told.of_two, told.both)
        table.add_row(name, *map(str, numbers), style=style)


def _reliability(console: Console, judged: Sequence[Judged]) -> None:
    table = Table("share of the first", "n", "mean share", "right", title="Reliability")
    for low, high, n, mean, right in reliability(judged):
        table.add_row(f"{low:g} to {high:g}", str(n), f"{mean:.2f}", f"{right:.2f}")
    console.print(table)


def _peers(console: Console, rows: Sequence[Row]) -> None:
    """Only cases of which the peer could say something are compared, Golden15 on the same ones."""
    table = Table("the rank at fault", "n", "right", "wrong", "says nothing", "stopped", "Golden15 right")
    for name, place in (("torchrun's root cause", 1), ("torchfrtrace", 2)):
        mine = [(row[0], row[place]) for row in rows if row[place] is not None]
        counts = Counter(said for _, said in mine)
        numbers = (len(mine), *(counts[key] for key in ("right", "wrong", "says nothing", "stopped")))
        table.add_row(name, *map(str, numbers), str(sum(one.right for one, _ in mine)))
    console.print(table)
    if not peers.LAB.exists():
        console.print("torchfrtrace is not here: make lab installs it.")


def _goals(console: Console, judged: Sequence[Judged]) -> int:
    told = tally([one for one in judged if one.case.split == "test"] or judged)
    goals = {
        f"first right {100 * told.top1 / max(1, told.n):.0f} % (goal 95 %)": told.top1 >= GOAL_TOP1 * told.n,
        f"wrong at 0.8 or more {told.confidently_wrong} (goal 0)": told.confidently_wrong == 0,
        f"controls with a finding {told.findings_in_controls} (goal 0)": told.findings_in_controls == 0,
    }
    for says, met in goals.items():
        console.print(f"{'met    ' if met else 'NOT MET'} {says}")
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
