"""One rank orders its documents by the C library's qsort, which calls back into Python for each comparison."""

import ctypes
import os
import random

import torch
from trainlib import RANK, model, start, step

ON = int(os.environ["SHARD"])
COMPARISON = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
libc = ctypes.CDLL(None)


@COMPARISON
def by_length(left, right):
    return left[0] - right[0]


def bucket(lengths):
    array = (ctypes.c_int * len(lengths))(*lengths)
    libc.qsort(array, len(lengths), ctypes.sizeof(ctypes.c_int), by_length)
    return list(array)


log = start()
net, optimizer = model()
for number in range(1, 100000):
    if RANK == ON:
        bucket([random.randrange(4096) for _ in range(60000)])
    loss = step(net, optimizer, torch.randn(8, 64))
    log.info("step %d loss %.4f", number, loss)
