"""A log into which all ranks write, read from end to end. The peer only looks for the same words: GNU grep."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from probes.catalog.logs.reduce import WORDS
from tests.bench.measure import command
from tests.bench.rows import Row

RANKS = 64
ENDED = (
    "[rank{rank}]:[E1129 03:44:12.715298746 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=554400, NumelOut=554400, Timeout(ms)=600000) "
    "ran for 600{rank:03} milliseconds before timing out.\n"
)


def logs(folder: Path, quick: bool) -> Iterator[Row]:
    """`explain` of one log, beside grep for the same words."""
    size = 50_000_000 if quick else 1_000_000_000
    file = folder / "train.log"
    _write(file, size)
    what = f"a log of {size / 1e9:g} GB, {RANKS} ranks interleaved"
    words = folder / "words"
    words.write_text("\n".join(word for _, _, _, some in WORDS for word in some))
    peer = None
    if shutil.which("grep"):
        cost, _ = command(["grep", "-a", "-c", "-F", "-f", str(words), str(file)], {"LC_ALL": "C"})
        peer = cost.cpu_s
        yield Row(what, "grep -c -F -f", cost)
    cost, told = command([sys.executable, "-m", "probes", "explain", str(file), "--json"])
    assert '"hypotheses"' in told, told[:2000]
    yield Row(what, f"Golden15, {size / 1e6 / cost.cpu_s:.0f} MB/s", cost, "100 MB/s, constant memory", peer)
    file.unlink()


def _write(file: Path, size: int) -> None:
    draw, written, step = random.Random(7), 0, 0
    with file.open("w") as log:
        while written < size:
            step += 1
            for rank in range(RANKS):
                at = f"03:{step // 60 % 60:02}:{step % 60:02},{rank:03}"
                line = (
                    f"[rank{rank}]: 2026-11-29 {at} INFO train.loop: iteration {step:8d}/ 100000 | elapsed time per "
                    f"iteration (ms): {4600 + draw.random() * 80:.1f} | lm loss: {2 + draw.random():.6f} | tokens per "
                    f"second per GPU: {3800 + draw.random() * 30:.1f}\n"
                )
                if draw.random() < 0.02:
                    line += (
                        f"gpu-{rank // 8:03}:{40000 + rank}:{41000 + rank} [{rank % 8}] NCCL INFO AllReduce: opCount "
                        f"{step:x} sendbuff 0x7f00 recvbuff 0x7f10 count 554400 datatype 7 op 0 root 0 comm 0x5500 "
                        "[nranks=64] stream 0x5600\n"
                    )
                written += log.write(line)
        for rank in range(RANKS):
            if rank != 17:
                log.write(ENDED.format(rank=rank, seq=step * 3))
