"""Joins by the environment (RANK, WORLD_SIZE, MASTER_ADDR), as started by hand or by srun, and trains."""

import os

import torch
from trainlib import dist, model, start, step

log = start(float(os.environ.get("LIMIT", "20")), server=False)
net, optimizer = model()
for number in range(1, 40):
    loss = step(net, optimizer, torch.randn(8, 64))
    if number % 10 == 0:
        log.info("step %d loss %.4f", number, loss)
dist.barrier()
