"""A learning rate that blows up, or a sample of one rank with inf in it; both are noticed after the reduction."""

import os
import time

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from trainlib import RANK, bar, model, start

ON, GUARD = int(os.environ.get("SHARD", "-1")), bool(os.environ.get("GUARD"))


@record
def main():
    log = start(30, server=False)
    net, optimizer = model()
    began = time.monotonic()
    for number in range(1, 400):
        batch = torch.randn(8, 64)
        if RANK == ON and number >= 30:
            batch[3, 7] = float("inf")
        optimizer.zero_grad()
        loss = net(batch).pow(2).mean()
        if not torch.isfinite(loss):
            log.warning("step %d: loss is %s on this rank", number, loss.item())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        bar(number, 400, began, loss.item())
        if number % 10 == 0 or number >= 30:
            log.info("step %d loss %.4f grad_norm %.4f", number, loss.item(), norm.item())
        if GUARD and number == 34:
            raise FloatingPointError(f"grad norm is {norm.item()} at step {number}")
        time.sleep(0.02)


main()
