"""What the jobs of the recorded cases share: a start, a log, a progress bar, a model. Needs torch (CPU, gloo)."""

from __future__ import annotations

import datetime
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
_kept: list[object] = []  # the worker server lives as long as the job


def start(timeout_s: float = 1800, server: bool = True) -> logging.Logger:
    """Joins the job; with `server`, answers on /tmp/worker_<rank>.sock (torch's worker server)."""
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s [rank{RANK}] %(levelname)s %(message)s", stream=sys.stderr
    )
    log = logging.getLogger("train")
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout_s))
    if server:
        _kept.append(c10d._WorkerServer(f"/tmp/worker_{RANK}.sock"))
    log.info("rank %d of %d on %s, pid %d", RANK, WORLD, os.uname().nodename, os.getpid())
    return log


class Net(torch.nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(width, width)
        self.head = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.embed(x)))


def model(width: int = 64, **options: object) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    net = torch.nn.parallel.DistributedDataParallel(Net(width), **options)
    return net, torch.optim.AdamW(net.parameters(), lr=1e-3)


def step(net: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = net(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def bar(done: int, total: int, began: float, loss: float, word: str = "Training") -> None:
    """A progress bar of rank 0, as people have it: one line, written over."""
    if RANK:
        return
    share, took = done / total, time.monotonic() - began
    full = int(share * 20)
    left = took / max(done, 1) * (total - done)
    sys.stderr.write(
        f"\r{word}: {share:4.0%}|{'█' * full}{' ' * (20 - full)}| {done}/{total} "
        f"[{took / 60:02.0f}:{took % 60:02.0f}<{left // 60:02.0f}:{left % 60:02.0f}, loss={loss:.3f}]"
    )
    sys.stderr.flush()


def dump(prefix: str = "fr_trace_rank_") -> None:
    """Leaves this rank's flight recorder in the working folder."""
    with open(f"{prefix}{RANK}", "wb") as file:
        file.write(c10d._dump_fr_trace())
