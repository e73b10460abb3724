"""Lines that tell that there is no room: on a disk, in /dev/shm, or for the rest of a checkpoint.

Source   strerror(3) of ENOSPC and EDQUOT; torch: utils/data/_utils/signal_handling.py, ATen/MapAllocator.cpp,
         caffe2/serialize/inline_container.cc; datasets/builder.py
Shape    DISK, SHARED: shapes as _log_shapes reads them
"""

from __future__ import annotations

from probes.catalog.logs.shapes import shape

DISK = (
    shape("disk_full", "No space left", r"No space left on device(?:: '(?P<where>(?!/dev/shm)[^']{1,200})')?"),
    # datasets/builder.py; aria2c, rsync and others say it in these words as well
    shape(
        "disk_full",
        "disk space",
        r"(?i:\b(?:not enough|insufficient|out of|no free) disk space\b)",
        name="No space left",
    ),
    # torch/csrc/jit/serialization, caffe2/serialize/inline_container.cc: what a write that was cut leaves behind
    shape(
        "write_cut",
        "inline_container",
        r"inline_container\.cc:\d{1,5}\] ?\. "
        r"(?P<name>unexpected pos \d{1,20} vs \d{1,20}|PytorchStreamWriter failed)",
    ),
    shape("write_cut", "PytorchStreamWriter failed writing", r"(?P<name>PytorchStreamWriter failed) writing"),
    shape("disk_full", "Disk quota exceeded", r"(?P<name>Disk quota exceeded)(?:: '(?P<where>[^']{1,200})')?"),
)

SHARED = (
    shape("shm_full", "out of shared memory", r"(?:worker \(pid (?P<pid>\d{1,9})\) )?.{0,60}?out of shared memory"),
    shape(
        "shm_full",
        "No space left on device",
        r"(?P<where>(?:/dev/shm|</?torch_)\S{0,80}).{0,40}No space left on device",
    ),
    # torch/utils/data/_utils/signal_handling.py, DataLoader.cpp
    shape("shm_full", "bus error", r"(?P<name>bus error) encountered in worker.{0,60}?insufficient shared memory"),
    shape("shm_full", "unable to open shared memory object", r"shared memory object (?P<where><?\S{1,80})"),
)
