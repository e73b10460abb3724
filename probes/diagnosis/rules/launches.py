"""Nodes that were started with commands that do not fit together: they look for each other in vain.

torchrun's agents meet under one run id at one endpoint, each says how many nodes there are, and without a rendezvous
each node has a rank of its own. Source: torch/distributed/run.py; c10d_rendezvous_backend.py names the key in the store
after the run id, so agents of two ids share a store and never see each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule, Subject
from probes.diagnosis.log_evidence import everyone, node_at, node_of, odd_ones, whom

CAUSE = "fw.rendezvous_failed"
# Commands of one job name one place to meet, or one run.
PLACES = ("rdzv_endpoint", "master_addr")
FITS = ("rdzv_id", "nnodes", "rdzv_backend", "master_port")
CALLED = {"run_id": "rdzv_id", "min_nodes": "nnodes"}  # in torchrun's own list
WORDS = {"rdzv_id": "run id", "nnodes": "number of nodes", "rdzv_backend": "rendezvous backend",
    "master_port": "port of the store", "port": "port of the rendezvous", "node_rank": "rank of the node"}  # fmt: skip


_FILE = re.compile(r"[/ ]|\.(?:log|txt|out|err|sh|cmd|slurm|sbatch|ya?ml)$")  # a log of no known node


class _Started(NamedTuple):
    options: Mapping[str, str]
    ref: str


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    started = _started(evidence)
    if len(started) < 2 or any(True for _ in evidence.job.said("nccl_init_done", "progress")):
        return
    for name, values in _differing(started).items():
        told = ", ".join(f"{value} on {owner}" for owner, value in sorted(values.items())[:4])
        because = [
            Reason(f"{WORDS[name]} {value} on {owner}", started[owner].ref) for owner, value in list(values.items())[:4]
        ]
        failed = any(True for _ in evidence.job.said("rendezvous", "store_timeout", "bootstrap"))
        yield Hypothesis(
            CAUSE, _odd(evidence, values) if name != "node_rank" else {},
            f"The nodes were started with commands that do not fit: {WORDS[name]} {told}", tuple(because),
            ("launch_disagrees", *(("meeting_failed",) if failed else ())),
            would_change=("the same command on every node, but for the rank of the node",),
            ranks=everyone(evidence), nodes=frozenset(evidence.nodes),
        )  # fmt: skip
        return


def _odd(evidence: Evidence, values: Mapping[str, str]) -> Subject:
    """The node whose command is unlike that of most."""
    return whom(node_at(evidence, owner) or owner for owner in odd_ones(dict(values)) if not _FILE.search(owner))


def _started(evidence: Evidence) -> dict[str, _Started]:
    """By node; of a node that was started several times, nothing that changed between them."""
    found: dict[str, _Started] = {}
    for seen in evidence.of("host.settings"):
        for one in seen.facts.launches:
            if owner := one.where or seen.node:
                _add(found, owner, dict(one.options), seen.ref)
    for said in evidence.job.said("launch"):
        owner = node_of(evidence, said) or said[1].file
        _add(found, owner, {CALLED.get(said[0].name, said[0].name): str(said[0].more.get("value", ""))}, said[2].ref)
    return found


def _add(found: dict[str, _Started], owner: str, options: Mapping[str, str], ref: str) -> None:
    there = found.get(owner)
    if there is None:
        found[owner] = _Started(dict(options), ref)
        return
    both = {**options, **there.options}
    found[owner] = _Started({key: value for key, value in both.items() if options.get(key, value) == value}, ref)


def _differing(started: Mapping[str, _Started]) -> dict[str, dict[str, str]]:
    """What differs between commands of one job, the surest first."""
    found: dict[str, dict[str, str]] = {}
    for place in PLACES:
        where = {owner: one.options[place] for owner, one in started.items() if one.options.get(place)}
        together = len(set(where.values())) == 1 and len(where) > 1
        for name in FITS if together else ():
            values = {owner: started[owner].options[name] for owner in where if started[owner].options.get(name)}
            if len(set(values.values())) > 1:
                found.setdefault(name, values)
        ranks = {owner: started[owner].options["node_rank"] for owner in where if "node_rank" in started[owner].options}
        if together and len(set(ranks.values())) < len(ranks):
            found.setdefault("node_rank", ranks)
    ids = {one.options.get("rdzv_id") for one in started.values()}
    ports = {owner: one.options.get("rdzv_endpoint", "").rpartition(":")[2] for owner, one in started.items()}
    if len(ids) == 1 and None not in ids and all(ports.values()) and len(set(ports.values())) > 1:
        found.setdefault("port", ports)
    return found


RULE = Rule((CAUSE,), judge)
