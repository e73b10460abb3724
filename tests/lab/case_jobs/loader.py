"""Reads shards; one rank's samples stop coming. MODE: sleep (a lock service), pipe (a stream whose writer is gone)."""

import os
import time

import torch
from torch.utils.data import DataLoader, Dataset
from trainlib import RANK, bar, model, start, step

MODE, WORKERS, ON = os.environ["SOURCE"], int(os.environ["WORKERS"]), int(os.environ["SHARD"])


class Tokens(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if RANK == ON and index >= 40:
            self.fetch(index)
        return torch.randn(64)

    def fetch(self, index):
        if MODE == "sleep":
            while not os.path.exists(f"data/lease-{index}"):
                time.sleep(5)
        else:
            with open("data/stream-03.jsonl") as stream:
                return stream.readline()


def main():
    log = start()
    net, optimizer = model()
    began = time.monotonic()
    for number, batch in enumerate(DataLoader(Tokens(), batch_size=4, num_workers=WORKERS), 1):
        loss = step(net, optimizer, batch)
        bar(number, 1000, began, loss)
        log.info("step %d loss %.4f", number, loss)


if __name__ == "__main__":
    main()
