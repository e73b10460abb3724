"""A small real training job on CPU with gloo, and ways in which one rank of it goes wrong.

usage: torchrun ... training_job.py CASE VICTIM FOLDER. Needs torch. Each rank serves FOLDER/worker_<rank>.sock (torch's
worker server, with its flight recorder). CASES says what the victim does; `train` is a job without a fault.
"""

from __future__ import annotations

import datetime
import logging
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

CASE, VICTIM, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOR_EVER = 3600
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{RANK}] %(levelname)s %(message)s")
say = logging.getLogger("train").info


class Samples(Dataset):
    """The victim's thirteenth sample never comes: it sleeps (`slow`) or computes without end (`spin`)."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if RANK == VICTIM and index >= 12:
            if self.how == "slow":
                time.sleep(FOR_EVER)
            number = 0
            while self.how == "spin":
                number += index % 127
        return torch.randn(64)


def steps(interrupt: int = 0) -> None:
    """Train for ever; the victim gets a signal after thirty steps."""
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    count = 0
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()
        count += 1
        if count % 20 == 0:
            say(f"step {count}")
        if RANK == VICTIM and interrupt and count == 30:
            os.kill(os.getpid(), interrupt)
        time.sleep(0.02)


def load(how: str, workers: int) -> None:
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    for count, batch in enumerate(DataLoader(Samples(how), batch_size=4, num_workers=workers)):
        model(batch).sum().backward()
        say(f"step {count}")


def skip(tensor: torch.Tensor) -> None:
    """The victim leaves out one collective; the next one of all is another."""
    if RANK != VICTIM:
        dist.all_reduce(tensor)
    dist.all_gather_into_tensor(torch.empty(WORLD * 8), torch.ones(8))


def skip_same(tensor: torch.Tensor) -> None:
    """The victim leaves out one of ten equal collectives: all seems well until the last one."""
    for count in range(10):
        if not (count == 4 and RANK == VICTIM):
            dist.all_reduce(tensor)
    say("loop done")
    time.sleep(FOR_EVER)


def order(tensor: torch.Tensor) -> None:
    """The victim calls two collectives in the other order."""
    small = torch.ones(16)
    calls = [lambda: dist.all_reduce(tensor), lambda: dist.broadcast(small, 0)]
    for call in reversed(calls) if RANK == VICTIM else calls:
        call()
    time.sleep(FOR_EVER)


def nan_rs(tensor: torch.Tensor) -> None:
    """NaN reaches the shard of one rank, which alone skips its step."""
    gradients = torch.ones(WORLD * 4)
    if RANK == VICTIM:
        gradients[4 * VICTIM + 1] = float("nan")
    shard = torch.empty(4)
    dist.reduce_scatter_tensor(shard, gradients)
    if torch.isnan(shard).any():
        say("found NaN on this rank: skipping step")
        time.sleep(FOR_EVER)
    dist.all_reduce(tensor)
    time.sleep(FOR_EVER)


def main() -> None:
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=30))
    server = _WorkerServer(f"{FOLDER}/worker_{RANK}.sock")
    tensor = torch.ones(1024)
    for _ in range(5):
        dist.all_reduce(tensor)
    say(f"{RANK} of {WORLD} ready, pid {os.getpid()}, {type(server).__name__}")
    cases = {
        "train": steps,
        "sigstop": lambda: steps(signal.SIGSTOP),
        "sigkill": lambda: steps(signal.SIGKILL),
        "loader_slow": lambda: load("slow", 2),
        "loader_gil0": lambda: load("spin", 0),
        "skip": lambda: skip(tensor),
        "skip_same": lambda: skip_same(tensor),
        "order": lambda: order(tensor),
        "nan_rs": lambda: nan_rs(tensor),
    }
    cases[CASE]()


if __name__ == "__main__":
    main()
