"""One rank gathers another shape (KIND=shape), type (dtype) or calls another collective (op)."""

import os

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from trainlib import RANK, WORLD, dist, start

KIND, ON = os.environ["FEATURE"], int(os.environ["SHARD"])


def gather_scores(count, dtype=torch.float32):
    scores = torch.ones(count, 8, dtype=dtype)
    dist.all_gather_into_tensor(torch.empty(WORLD * count, 8, dtype=dtype), scores)


@record
def main():
    log = start(60, server=False)
    tensor = torch.ones(1024)
    for number in range(1, 15):
        dist.all_reduce(tensor)
        odd = number == 12 and RANK == ON
        if KIND == "shape":
            gather_scores(40 if odd else 41)
        elif KIND == "dtype":
            dist.all_reduce(torch.ones(2048, dtype=torch.float16 if odd else torch.float32))
        elif odd:
            dist.broadcast(tensor, 0)
        else:
            gather_scores(41)
        log.info("step %d", number)


main()
