"""Ends on one rank in the way that HOW names."""

import ctypes
import os
import sys
import time

import torch
from torch.distributed.elastic.multiprocessing.errors import record
from trainlib import RANK, bar, model, start, step

HOW, ON = os.environ["BUILD"], int(os.environ["SHARD"])


def collate(samples):
    sizes = {len(sample) for sample in samples}
    if len(sizes) != 1:
        raise ValueError(f"samples of different length in one batch: {sorted(sizes)}")
    return torch.stack(samples)


@record
def main():
    log = start(300, server=False)
    net, optimizer = model()
    began = time.monotonic()
    for number in range(1, 2000):
        odd = number == 33 and RANK == ON
        if odd and HOW == "native":
            ctypes.string_at(0)
        if odd and HOW == "exit":
            log.error("tokenizer cache is of another version, giving up")
            sys.exit(3)
        samples = [torch.randn(64) for _ in range(8)]
        if odd and HOW == "collate":
            samples[5] = torch.randn(63)
        loss = step(net, optimizer, collate(samples))
        bar(number, 2000, began, loss)
        if number % 10 == 0:
            log.info("step %d loss %.4f", number, loss)
        time.sleep(0.02)


main()
