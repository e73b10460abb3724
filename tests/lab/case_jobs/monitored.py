"""After loading, a monitored barrier; one rank's file lock is held by somebody who is gone."""

import fcntl
import os

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from trainlib import RANK, datetime, dist, start

ON = int(os.environ["SHARD"])


@record
def main():
    log = start(120, server=False)
    dist.all_reduce(torch.ones(8))
    if RANK == ON:
        with open("cache.lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    log.info("loading done")
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=12), wait_all_ranks=True)


main()
