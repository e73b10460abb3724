"""Loader workers hand large samples over in shared memory."""

import torch
from torch.utils.data import DataLoader, Dataset
from trainlib import model, start, step


class Images(Dataset):
    def __len__(self):
        return 100000

    def __getitem__(self, index):
        return torch.randn(3, 512, 512)


def main():
    log = start(300, server=False)
    net, optimizer = model()
    for number, batch in enumerate(DataLoader(Images(), batch_size=8, num_workers=2), 1):
        loss = step(net, optimizer, batch[:, 0, :8, :64].reshape(-1, 64))
        log.info("step %d loss %.4f", number, loss)


if __name__ == "__main__":
    main()
