"""Files that torchrun keeps of its ranks, also of those that are gone. SENT TO THE NODE with rank.log's collector."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from probes.runner import isolate

MOST_FOLDERS = 8  # of all jobs of a node, and of their attempts before


def job_of(row: dict[str, Any]) -> str:
    """What tells two jobs on one node apart. "none" is torchrun's run id unless it is given another."""
    run_id = "" if row["run_id"] == "none" else row["run_id"]
    return " ".join(str(part) for part in (run_id, row["slurm_job"], row["master"]) if part)


def listed(places: list[dict[str, Any]], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Files in the run folders of torchrun (attempt_N/<local rank>/...) that no living rank named.

    A rank that is gone leaves its error.json and logs there. Its rank is counted on from a living one of this node:
    torchrun numbers the ranks of a node in the order of their local ranks.
    """
    known = {place["file"] for place in places}
    jobs = {place["pid"]: place["job"] for place in places}
    bases = _bases(rows)
    folders: dict[str, int] = {}
    for place in places:
        folder, _, local = os.path.dirname(place["file"]).rpartition("/")
        if local.isdigit() and os.path.basename(folder).startswith("attempt_"):
            folders.setdefault(folder, place["pid"])
            base = bases.get(place["job"])
            if place["rank"] is None and not place["writers"] and base is not None:
                place.update(rank=base + int(local), writers=[base + int(local)])
    for folder in list(folders):  # of a job that was started again, the attempt before this one
        before, _, attempt = folder.rpartition("_")
        if attempt.isdigit() and int(attempt) > 0:
            folders.setdefault(f"{before}_{int(attempt) - 1}", folders[folder])
    present = {os.path.dirname(os.path.dirname(file)) for file in known}
    found = []
    for result in isolate(
        [(one, _lister(f"/proc/{pid}/root{one}")) for one, pid in sorted(folders.items())[-MOST_FOLDERS:]], 1.0
    ):
        folder, pid = result["name"], folders[result["name"]]
        how = "run folder" if folder in present else "earlier attempt"
        for line in result["text"].split("\n"):
            local, _, name = line.partition("/")
            if name and f"{folder}/{line}" not in known:
                base = bases.get(jobs[pid])
                rank = None if base is None else base + int(local)
                place = {"path": f"/proc/{pid}/root{folder}/{line}", "file": f"{folder}/{line}", "how": how}
                place.update(pid=pid, rank=rank, writers=[] if rank is None else [rank], deleted=False, job=jobs[pid])
                found.append(place)
    return found


def _bases(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """{job: rank of local rank 0 on this node}; None where the living ranks do not agree on it."""
    found: dict[str, Any] = {}
    for row in rows:
        if row["local_rank"] is not None:
            base = row["rank"] - row["local_rank"]
            found[job_of(row)] = base if found.get(job_of(row), base) == base else None
    return found


def _lister(folder: str) -> Callable[[], str]:
    def work() -> str:
        found = []
        for local in sorted(os.listdir(folder))[:64]:
            if local.isdigit() and len(local) < 5:
                names = os.listdir(folder + "/" + local)
                found += [local + "/" + n for n in names if n in ("error.json", "stdout.log", "stderr.log")]
        return "\n".join(found)

    return work
