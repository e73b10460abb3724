"""Joins by the environment, reduces something small, then something large."""

import os

import torch
from trainlib import dist, start

log = start(float(os.environ.get("LIMIT", "60")), server=False)
for size in (4, 16, 64, 4_000_000, 4_000_000):
    dist.all_reduce(torch.ones(size))
    log.info("reduced %d numbers", size)
