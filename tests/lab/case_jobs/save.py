"""Saves a checkpoint each 20 steps: into FOLDER, by rank 0 (or by each with SHARDED=1), then a barrier."""

import os
import time

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from trainlib import RANK, bar, dist, model, start, step

FOLDER, SHARDED = os.environ["CKPT"], bool(os.environ.get("SHARDED"))


def save_checkpoint(net, optimizer, number):
    path = f"{FOLDER}/step-{number}{f'-rank{RANK}' if SHARDED else ''}.pt"
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": number}
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno()) if os.path.isfile(path) else None


@record
def main():
    log = start(float(os.environ.get("LIMIT", "1800")), server=not os.environ.get("PLAIN"))
    net, optimizer = model(int(os.environ.get("WIDTH", "512")))
    began = time.monotonic()
    for number in range(1, 2000):
        loss = step(net, optimizer, torch.randn(8, int(os.environ.get("WIDTH", "512"))))
        bar(number, 2000, began, loss)
        if number % 20 == 0:
            if SHARDED or RANK == 0:
                log.info("saving checkpoint at step %d", number)
                save_checkpoint(net, optimizer, number)
                log.info("saved checkpoint at step %d", number)
            dist.barrier()
        time.sleep(0.05)


main()
