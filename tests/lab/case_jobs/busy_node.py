"""Trains with real work on the CPU and says how long each part of a step takes."""

import os
import time

import torch
from trainlib import RANK, bar, dist, model, start

log = start(server=not os.environ.get("PLAIN"))
width, late = int(os.environ.get("WIDTH", "768")), int(os.environ.get("SHARD", "-1"))
net, optimizer = model(width)
began = time.monotonic()


def augment(batch):
    for _ in range(int(os.environ.get("TIMES", "40"))):
        batch = torch.sort(batch.sin().flip(1), dim=1).values
    return batch


for number in range(1, 100000):
    start_of_step = time.monotonic()
    batch = torch.randn(256, width)
    if late == RANK:
        batch = augment(batch)
    data_s = time.monotonic() - start_of_step
    optimizer.zero_grad()
    with net.no_sync():
        net(batch).pow(2).mean().backward()
    compute_s = time.monotonic() - start_of_step - data_s
    for parameter in net.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    whole_s = time.monotonic() - start_of_step
    log.info(
        "step %d: %.2f s (data %.2f compute %.2f allreduce %.2f)",
        number, whole_s, data_s, compute_s, whole_s - data_s - compute_s,
    )  # fmt: skip
    if not os.environ.get("PLAIN"):
        bar(number, 100000, began, 0.0)
