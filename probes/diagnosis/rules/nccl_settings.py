"""NCCL settings or versions that differ between ranks. All must take the same algorithm and transport."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from probes.catalog.ranks.env_facts import OFTEN, OWN_ENDS, OWN_NAMES
from probes.diagnosis.core import Evidence, Hypothesis, Reason, Rule
from probes.diagnosis.job import quoted
from probes.diagnosis.log_evidence import Said, everyone, listed, node_at, node_of, odd_ones, whom
from probes.diagnosis.ranking import likelihoods

CAUSE = "nccl.env_mismatch"
# These choose what goes over the wire or who connects to whom: NCCL's manual, chapter Environment Variables.
MUST_MATCH = frozenset(
    ("NCCL_PROTO", "NCCL_ALGO", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL",
        "NCCL_SHM_DISABLE", "NCCL_BUFFSIZE", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS",
        "NCCL_MAX_CTAS", "NCCL_CROSS_NIC", "NCCL_COLLNET_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE",
        "NCCL_NTHREADS", "NCCL_PXN_DISABLE", "NCCL_TUNER_PLUGIN", "RCCL_MSCCL_ENABLE")
)  # fmt: skip
NEEDED = frozenset(("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_CROSS_NIC"))  # by some networks
COMPARED = ("NCCL_", "RCCL_", "TORCH_NCCL_", "FI_", "UCX_", "GLOO_", "LD_")
PATHS = ("LD_LIBRARY_PATH", "LD_PRELOAD")
_LIBRARY = re.compile(
    r"nccl|rccl|ofi|efa|libfabric|ucx|hpcx|sharp|cuda|rocm|gdr", re.I
)  # what NCCL loads, or its plug-ins
_RANK = re.compile(r"rank \d{1,7}")
_WHOLE = re.compile(r"rank \d{1,7}|the (?:first|second)")  # a process has all that it was given
Told = dict[str, tuple[str, Reason]]  # node -> value, where it stands
Owners = dict[str, list[tuple[Mapping[str, str], str]]]  # node, pod or rank -> what it was given, and where that stands


def judge(evidence: Evidence) -> Iterator[Hypothesis]:
    yield from _mismatched(evidence)
    yield from _versions(evidence)
    told = _settings(evidence)
    for name, values in _environment(evidence).items():
        told.setdefault(name, {}).update(values)
    for name, values in _written(evidence).items():
        told.setdefault(name, {}).update(values)
    yield from _differing(evidence, told)
    yield from _truncated(evidence)
    yield from _only_there(evidence, {name: set(values) for name, values in told.items()})


def _written(evidence: Evidence) -> dict[str, Told]:
    """What environments and nccl.conf hold, by node, pod or rank, where as many of each were brought: not set is a
    value too."""
    owners: Owners = {}
    partly: set[str] = set()  # of a pod's specification: its image may set more
    homes: dict[str, set[str]] = {}
    for seen in evidence.of("host.settings"):
        if seen.node and seen.facts.env:
            node = node_at(evidence, seen.node) or seen.node
            owners.setdefault(node, []).append((seen.facts.env, seen.ref))
        for owner, env in seen.facts.envs.items():
            owners.setdefault(owner, []).append((env, seen.ref))
            partly |= {owner} if not _WHOLE.fullmatch(owner) else set()
            homes.setdefault(owner, set()).add(seen.node or _home(evidence, owner))
    owners = _by_home(owners, homes)
    names = {name for some in owners.values() for env, _ in some for name in env if name.startswith(COMPARED)}
    if len(owners) < 2 or len({len(some) for some in owners.values()}) > 1:
        return {}
    found: dict[str, Told] = {}
    for name in sorted(names):
        for owner, some in owners.items():
            env, ref = next((one for one in some if name in one[0]), some[0])
            if name not in env and owner in partly:
                continue
            value = env.get(name, "")
            says = f"{name} is {value!r} on {owner}" if value else f"{name} is not set on {owner}"
            found.setdefault(name, {})[owner] = (value, Reason(says[:300], ref))
    return found


def _home(evidence: Evidence, owner: str) -> str:
    return str(evidence.job.view(int(owner[5:])).node) if _RANK.fullmatch(owner) else ""


def _by_home(owners: Owners, homes: Mapping[str, set[str]]) -> Owners:
    """Ranks by their nodes, where each node's ranks were all given the same."""
    found: Owners = {}
    for owner, some in owners.items():
        where = homes.get(owner, {owner})
        node = next(iter(where)) if len(where) == 1 else ""
        if not node or (node in found and _compared(found[node][0][0]) != _compared(some[0][0])):
            return owners
        found.setdefault(node, some)
    return found


def _compared(env: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in env.items()
        if name.startswith(COMPARED) and name not in OFTEN | OWN_NAMES and not name.endswith(OWN_ENDS)
    }  # fmt: skip


def _only_there(evidence: Evidence, told: dict[str, set[str]]) -> Iterator[Hypothesis]:
    """A setting that must match and that NCCL names on some nodes only, though it names other settings on all."""
    said: dict[str, dict[str, Said]] = {}
    for one in evidence.job.said("nccl_setting"):
        if node := node_of(evidence, one):
            said.setdefault(node, {}).setdefault(one[0].name, one)
    every: dict[str, Said] = {}
    for some in said.values():
        every.update(some)
    for name in sorted(set(every) & MUST_MATCH):
        have = {node for node, some in said.items() if name in some}
        if 2 * len(have) >= len(said) or len(told.get(name, ())) > len(have):
            continue
        yield Hypothesis(
            CAUSE, whom(have), f"NCCL says {name} on {listed(have)} only, not on {listed(set(said) - have)}",
            tuple(quoted(*said[node][name]) for node in sorted(have)[:3]), ("setting_named_there_only",),
            would_change=(f"{name} the same on every node",), ranks=everyone(evidence), nodes=frozenset(have),
        )  # fmt: skip
        return


def _mismatched(evidence: Evidence) -> Iterator[Hypothesis]:
    """NCCL's own check. Every rank names the first one whose version is not its own."""
    said = list(evidence.job.said("nccl_version_mismatch"))
    if not said:
        return
    versions: dict[str, object] = {}
    for event, _, _ in said:
        for rank, version in ((event.about[:1], "version"), ((event.more.get("other"),), "other_version")):
            if rank and rank[0] is not None and version in event.more:
                versions[str(rank[0])] = event.more[version]
    odd = odd_ones(versions)
    rank = int(odd[0]) if len(odd) == 1 else None
    view = evidence.job.view(rank) if rank is not None else None
    nodes = {evidence.job.view(int(one)).node for one in odd} - {""} or _of_packages(evidence)
    yield Hypothesis(
        CAUSE,
        view.subject if view is not None else whom(nodes),
        _load(rank, nodes),
        tuple(quoted(*one) for one in said[:4]),
        ("version_mismatch",),
        would_change=("the same NCCL version printed on every node",),
        ranks=everyone(evidence),
        nodes=frozenset(nodes),
    )


def _of_packages(evidence: Evidence) -> set[str]:
    """The nodes whose package of NCCL is unlike that of most."""
    versions: dict[str, object] = {}
    for seen in evidence.of("host.versions"):
        if seen.node and (version := seen.facts.found.get("NCCL")):
            versions[seen.node] = version
    return set(odd_ones(versions))


def _load(rank: int | None, nodes: set[str]) -> str:
    where = f" on {listed(nodes)}" if nodes else ""
    if rank is None:
        return f"Ranks{where} load different NCCL versions"
    return f"Rank {rank}{where} loads another NCCL than the others"


def _versions(evidence: Evidence) -> Iterator[Hypothesis]:
    values: dict[str, object] = {}
    lines: dict[str, Said] = {}
    for one in evidence.job.said("nccl_version"):
        node = node_of(evidence, one)
        if node:
            values[node] = one[0].name
            lines.setdefault(node, one)
    if len(set(values.values())) < 2:
        return
    odd = odd_ones(values)
    told = ", ".join(f"{values[node]} on {node}" for node in sorted(values)[:4])
    yield Hypothesis(
        CAUSE,
        whom(odd),
        f"Nodes load different NCCL versions: {told}",
        tuple(quoted(*lines[node]) for node in (*odd, *values))[:4],
        ("versions_differ",),
        would_change=("the same NCCL version printed on every node",),
        ranks=everyone(evidence),
        nodes=frozenset(odd),
    )


def _settings(evidence: Evidence) -> dict[str, Told]:
    """What NCCL printed. A setting that a node does not print is not known to be unset there."""
    found: dict[str, Told] = {}
    for one in evidence.job.said("nccl_setting"):
        if node := node_of(evidence, one):
            value = str(one[0].more.get("value", ""))
            found.setdefault(one[0].name, {})[node] = (value, quoted(*one))
    return found


def _environment(evidence: Evidence) -> dict[str, Told]:
    """What the processes were started with, where all ranks of a node have the same; not set is a value too."""
    nodes = {seen.node: seen for seen in evidence.of("rank.env") if seen.node and len(seen.facts.jobs) == 1}
    names = {name for seen in nodes.values() for name in seen.facts.jobs[0].shared if name.startswith("NCCL_")}
    own = {name for seen in nodes.values() for rank in seen.facts.jobs[0].ranks for name in rank.own}
    found: dict[str, Told] = {}
    for name in names - own if len(nodes) > 1 else ():
        for node, seen in nodes.items():
            value = seen.facts.jobs[0].shared.get(name, "")
            says = f"{name} is {value!r} on {node}" if value else f"{name} is not set on {node}"
            found.setdefault(name, {})[node] = (value, Reason(says, seen.ref))
    return found


def _differing(evidence: Evidence, told: dict[str, Told]) -> Iterator[Hypothesis]:
    """Settings that differ on the same nodes or ranks are one fault."""
    found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for name, one in told.items():
        values: dict[str, object] = {owner: value for owner, (value, _) in one.items()}
        if len(set(values.values())) > 1 and (signal := _signal(name, [value for value, _ in one.values()])):
            found.setdefault(tuple(sorted(odd_ones(values) or _setter(name, values))), []).append((name, signal))
    networks = {str(one[0].name) for one in evidence.job.said("nccl_net") if "Using network" in one[0].text}
    apart = ("networks_differ_too",) if len(networks) > 1 else ()
    for odd, some in found.items():
        some.sort(key=lambda item: -likelihoods()[item[1]]["ratio"])
        first = told[some[0][0]]
        values = {owner: value for owner, (value, _) in first.items()}
        listed_values = ", ".join(f"{value or 'not set'} on {owner}" for owner, value in sorted(values.items())[:4])
        shown = [told[name][owner][1] for name, _ in some[:3] for owner in dict.fromkeys((*odd[:2], *values))][:6]
        more = f"; so do {', '.join(name for name, _ in some[1:4])}" if len(some) > 1 else ""
        subject, nodes = _owner(evidence, odd)
        yield Hypothesis(
            CAUSE,
            subject,
            f"{some[0][0]} differs{'' if subject.get('rank') is not None else ' between nodes'}: {listed_values}{more}",
            tuple(shown),
            tuple(dict.fromkeys((*(signal for _, signal in some), *apart))),
            would_change=(f"{some[0][0]} the same on every node",),
            ranks=everyone(evidence),
            nodes=nodes,
        )


def _truncated(evidence: Evidence) -> Iterator[Hypothesis]:
    """A message that is longer than its receiver expected."""
    said = [one for one in evidence.job.said("nccl_warn") if "message truncated" in one[0].text]
    if said:
        nodes = {node_of(evidence, one) for one in said}
        yield Hypothesis(
            CAUSE, {}, f"{listed(nodes)[:1].upper()}{listed(nodes)[1:]} got other sizes than it expected, says NCCL",
            tuple(quoted(*one) for one in said[:3]), ("message_truncated",),
            would_change=("NCCL_* of every rank, the same", "the same sizes in the flight recorders of all ranks"),
            ranks=everyone(evidence), nodes=frozenset(nodes),
        )  # fmt: skip


def _setter(name: str, values: Mapping[str, object]) -> Sequence[str]:
    """Of two, the one that sets what NCCL chooses by itself; what a network needs may be missing on the other."""
    alone = [owner for owner, value in values.items() if value]
    return alone if len(values) == 2 and len(alone) == 1 and name in MUST_MATCH - NEEDED else ()


def _signal(name: str, values: list[str]) -> str:
    """How much it tells that this one differs; "" where that is usual."""
    if name in OFTEN | OWN_NAMES:
        return ""
    if not name.isupper():  # of a plug-in its version, which it prints
        return "plugin_versions_differ"
    if name in PATHS:
        parts = [set(value.split(":")) for value in values]
        apart = {part for some in parts for part in some if not all(part in one for one in parts)}
        return "library_path_differs" if any(_LIBRARY.search(part) for part in apart) else ""
    if name in MUST_MATCH:
        return "setting_must_match"
    return "" if name.endswith(OWN_ENDS) else "setting_differs"


def _owner(evidence: Evidence, odd: Sequence[str]) -> tuple[dict[str, str | int], frozenset[str]]:
    """Whom it is about: a rank, the node of all these ranks, or nodes."""
    ranks = [int(one[5:]) for one in odd if _RANK.fullmatch(one)]
    views = [evidence.job.view(rank) for rank in ranks]
    nodes = {view.node for view in views} | {one for one in odd if not _RANK.fullmatch(one)}
    if len(odd) == 1 and views:
        return dict(views[0].subject), frozenset(nodes - {""})
    return dict(whom(nodes)), frozenset(nodes - {""})


RULE = Rule((CAUSE,), judge)
