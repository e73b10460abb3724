"""Keeps every batch: in the rank (WHERE=rank) or in its loader's workers (WHERE=worker)."""

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset
from trainlib import RANK, model, start, step

WHERE, ON = os.environ["CACHE"], int(os.environ["SHARD"])


class Cached(Dataset):
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 100000

    def __getitem__(self, index):
        if WHERE == "worker" and RANK == ON and index > 100:
            self.cache[index] = torch.ones(1024, 2048)
        return torch.randn(64)


def main():
    log = start(300, server=False)
    net, optimizer = model()
    history = []
    for number, batch in enumerate(DataLoader(Cached(), batch_size=8, num_workers=1 if WHERE == "worker" else 0), 1):
        loss = step(net, optimizer, batch)
        if WHERE == "rank" and RANK == ON and number > 30:
            history.append(torch.ones(4096, 2048))
        if number % 10 == 0:
            log.info("step %d loss %.4f", number, loss)
        time.sleep(0.02)


if __name__ == "__main__":
    main()
