"""Compiles its model; on one rank the shapes are new in each step, so that it compiles again and again."""

import os
import time

import torch
from trainlib import RANK, dist, start

log = start()
ON = int(os.environ.get("SHARD", "1"))


class Block(torch.nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(32, 32) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = torch.nn.functional.gelu(torch.softmax(layer(x), -1).cumsum(-1)) + x
        return x


tensor = torch.ones(64)
for number in range(1, 6):
    dist.all_reduce(tensor)
    log.info("step %d", number)
    time.sleep(0.1)
if RANK == ON:
    log.info("sequence length changed")
    block = torch.compile(Block(int(os.environ.get("DEPTH", "60"))), dynamic=False)
    for length in range(2, 200):
        block(torch.randn(length, 32)).sum().backward()
for number in range(6, 1000):
    dist.all_reduce(tensor)
    log.info("step %d", number)
    time.sleep(0.5)
