"""Two groups over all ranks; one rank reduces the gradients before the activations."""

import os

import torch
from trainlib import RANK, WORLD, datetime, dist, dump, start

limit_s = float(os.environ.get("LIMIT", "1800"))
log = start(limit_s)
swapped = int(os.environ.get("LAST_STAGE", "1"))
limit = datetime.timedelta(seconds=limit_s)
tensor_group = dist.new_group(list(range(WORLD)), timeout=limit, group_desc="tp")
data_group = dist.new_group(list(range(WORLD)), timeout=limit, group_desc="dp")
activations, gradients = torch.ones(4096), torch.ones(512)


def reduce_activations():
    dist.all_reduce(activations, group=tensor_group)


def reduce_gradients():
    dist.all_reduce(gradients, group=data_group)


try:
    for number in range(1, 8):
        if number == 6 and swapped == RANK:  # the path with gradient accumulation
            reduce_gradients()
            reduce_activations()
        else:
            reduce_activations()
            reduce_gradients()
        log.info("step %d", number)
except RuntimeError:
    dump()
    raise
