"""Trains; STEPS ends it."""

import os
import time

import torch
from trainlib import WORLD, bar, dist, model, start, step

log = start(server=not os.environ.get("STEPS"))
total = int(os.environ.get("STEPS", "100000"))
pause = float(os.environ.get("PAUSE", "0.05"))
net, optimizer = model()
began = time.monotonic()
for number in range(1, total + 1):
    loss = step(net, optimizer, torch.randn(8, 64))
    bar(number, total, began, loss)
    if number % 20 == 0:
        log.info("step %d loss %.4f", number, loss)
    time.sleep(pause)
dist.barrier()
log.info("training finished, world %d", WORLD)
dist.destroy_process_group()
