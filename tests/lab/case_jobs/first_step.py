"""Every rank compiles in its first step, and then trains."""

import torch
from trainlib import dist, start

log = start()


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(40))

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(torch.softmax(layer(x), -1).cumsum(-1)) + x
        return x


log.info("compiling the model, the first step takes a while")
block = torch.compile(torch.nn.parallel.DistributedDataParallel(Block()))
for number in range(1, 1000):
    block(torch.randn(8, 32)).sum().backward()
    log.info("step %d", number)
    dist.barrier()
