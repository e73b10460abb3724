"""Rank 0 prepares the data, the others wait until it has."""

import os
import time

from trainlib import RANK, dist, start

log = start(float(os.environ.get("LIMIT", "1800")))
SIZE = int(os.environ.get("DOCUMENTS", "100000"))


def tokenize(document):
    counts = {}
    for word in document.split():
        for end in range(1, len(word) + 1):
            counts[word[:end]] = counts.get(word[:end], 0) + 1
    return counts


def prepare(total):
    began = time.monotonic()
    for number in range(total):
        tokenize(" ".join(f"token{number + k}" for k in range(400)))
        if number % 200 == 0:
            took = time.monotonic() - began
            log.info("tokenizing: %d/%d documents, %.1f per second", number, total, number / max(took, 0.001))


if RANK == 0:
    prepare(SIZE)
dist.barrier()
log.info("data ready")
