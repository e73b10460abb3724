"""Loader workers that compute for each sample, beside a training loop with its own communication threads."""

import time

import torch
from torch.utils.data import DataLoader, Dataset
from trainlib import model, start, step


class Augmented(Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        sample = torch.randn(400, 64)
        for _ in range(30):
            sample = torch.sort(sample.sin(), dim=0).values
        return sample[0]


def main():
    log = start()
    net, optimizer = model()
    at = time.monotonic()
    for number, batch in enumerate(DataLoader(Augmented(), batch_size=8, num_workers=3), 1):
        waited = time.monotonic() - at
        loss = step(net, optimizer, batch)
        log.info("step %d loss %.4f data %.2f s whole %.2f s", number, loss, waited, time.monotonic() - at)
        at = time.monotonic()


if __name__ == "__main__":
    main()
