"""A training job of three ranks that hangs, for the tests that need torch: started by torchrun, CPU and gloo.

usage: FAULT=skip|stop|loader FOLDER=DIR torchrun --nproc_per_node=3 hang_job.py      The victim is rank 1.
"""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.utils.data import DataLoader, Dataset

FAULT, FOLDER, RANK = os.environ["FAULT"], os.environ["FOLDER"], int(os.environ["RANK"])


class Sleepy(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        if RANK == 1 and place >= 8:
            sleep_in_the_dataset()
        return torch.zeros(4)


def sleep_in_the_dataset():
    time.sleep(3600)


def loader_job():
    for batch in DataLoader(Sleepy(), batch_size=4, num_workers=1):
        dist.all_reduce(batch)


def main():
    dist.init_process_group("gloo")
    server = c10d._WorkerServer(f"{FOLDER}/worker_{RANK}.sock")
    tensor = torch.ones(16)
    for _ in range(3):
        dist.all_reduce(tensor)
    if FAULT == "loader":
        loader_job()
    if FAULT == "stop" and RANK == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if FAULT == "stop" or RANK != 1:
        dist.all_reduce(tensor)  # number 4
    dist.broadcast(tensor, 0)
    del server


main()
