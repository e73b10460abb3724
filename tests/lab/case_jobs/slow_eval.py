"""Evaluates on rank 0 every 10 steps, longer each time; the limit of the group is short."""

import os
import time

import torch
from trainlib import RANK, dist, model, start, step

log = start(float(os.environ.get("LIMIT", "8")), server=False)
net, optimizer = model()


def evaluate(batches):
    began = time.monotonic()
    with torch.no_grad():
        for number in range(1, batches + 1):
            until = time.monotonic() + 0.9
            while time.monotonic() < until:
                net.module(torch.randn(256, 64))
            log.info("evaluation: batch %d/%d", number, batches)
    log.info("evaluation took %.1f s", time.monotonic() - began)


for number in range(1, 60):
    loss = step(net, optimizer, torch.randn(8, 64))
    if number % 10 == 0:
        log.info("step %d loss %.4f", number, loss)
        if RANK == 0:
            evaluate(3 * number // 10)
        dist.barrier()
