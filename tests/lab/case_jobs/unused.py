"""Two heads, and a batch on one rank that uses one of them."""

import os

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from trainlib import RANK, dist, start

ON, LAST = int(os.environ["SHARD"]), bool(os.environ.get("LAST_BATCH"))


class TwoHeads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = torch.nn.Linear(64, 64)
        self.text_head = torch.nn.Linear(64, 32)
        self.image_head = torch.nn.Linear(64, 32)

    def forward(self, x, with_images):
        hidden = self.trunk(x)
        text = self.text_head(hidden).mean()
        return text + self.image_head(hidden).mean() if with_images else text


@record
def main():
    log = start(float(os.environ.get("LIMIT", "60")), server=LAST)
    net = torch.nn.parallel.DistributedDataParallel(TwoHeads())
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for number in range(1, 12):
        optimizer.zero_grad()
        net(torch.randn(8, 64), with_images=not (RANK == ON and number == 9)).backward()
        optimizer.step()
        log.info("step %d", number)
        if LAST and number == 9:
            log.info("epoch done")
            dist.barrier()


main()
