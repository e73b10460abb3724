"""A metrics thread of one rank builds histograms in pure Python beside the training loop."""

import os
import threading
import time

import torch
from trainlib import RANK, bar, model, start, step

log = start(server=False)
ON = int(os.environ.get("SHARD", "1"))


def histogram(values):
    buckets = {}
    for value in values:
        key = round(value * 50)
        buckets[key] = buckets.get(key, 0) + 1
    return buckets


def publish_metrics():
    values = [k * 0.37 % 11 for k in range(200000)]
    while True:
        histogram(values)


if RANK == ON:
    for k in range(6):
        threading.Thread(target=publish_metrics, name=f"metrics-{k}", daemon=True).start()
net, optimizer = model()
began = time.monotonic()
for number in range(1, 100000):
    at = time.monotonic()
    loss = step(net, optimizer, torch.randn(8, 64))
    took = time.monotonic() - at
    bar(number, 100000, began, loss)
    log.info("step %d loss %.4f %.2f s", number, loss, took)
