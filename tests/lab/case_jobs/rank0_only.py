"""Evaluates on rank 0 only, and waits for all ranks inside the branch."""

import torch
from trainlib import RANK, dist, model, start, step

log = start()
net, optimizer = model()


def evaluate(net):
    with torch.no_grad():
        score = net.module(torch.randn(32, 64)).mean()
    dist.barrier()
    return score.item()


for number in range(1, 500):
    loss = step(net, optimizer, torch.randn(8, 64))
    if number % 25 == 0:
        log.info("step %d loss %.4f", number, loss)
        if RANK == 0:
            log.info("evaluation: %.4f", evaluate(net))
