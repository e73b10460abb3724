"""The environment of a program or container, however it was brought: threads it may start, NCCL and library settings.

    NCCL_ALGO=Ring          env, /proc/PID/environ, nccl.conf; also export, declare -x, `-x` of mpirun, `-e` of docker
    "NCCL_ALGO=Ring"        docker inspect, OCI's config.json
    "NCCL_ALGO": "Ring"     JSON; NCCL_ALGO: Ring   YAML, kubectl describe
    name: NCCL_ALGO         value: Ring below it: pods of Kubernetes
    PID TTY STAT TIME COMMAND     ps eww: python train.py RANK=3 NCCL_ALGO=Ring
    3: NCCL_ALGO=Ring       srun -l; [1,3]<stdout>: mpirun, [rank3]: torchrun
    < NCCL_ALGO=Ring        diff of two of them, also -u

Where one text tells of several pods, containers or ranks, each is told by its name (`Settings.envs`).
Source   env(1); NCCL's manual, Environment Variables; docker inspect (Config.Env); Kubernetes API, EnvVar
Units    none
Errors   ParseError where no variable of ours is in it

The environment of a rank, with RANK in it, also tells whose process it is (see _process_extract).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from probes.catalog.network.net_facts import Settings
from probes.catalog.ranks.process_extract import environments_in
from probes.core import clean
from probes.intake.tools import Tool
from probes.intake.tools._text import host_in, refuse
from probes.intake.tools.host.limits import quiet

NAMES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "KMP_AFFINITY", "GOMP_CPU_AFFINITY",
    "OMP_PROC_BIND", "LD_LIBRARY_PATH", "LD_PRELOAD", "MASTER_ADDR",
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")  # fmt: skip
OURS = ("NCCL_", "RCCL_", "GLOO_", "FI_", "UCX_", "TORCH_NCCL_")
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_HOSTS = ("SLURMD_NODENAME", "NODE_NAME", "HOSTNAME")
MOST_NAMES, MOST_OWNERS, DEEP = 400, 1024, 24
_KEY = r"(?P<key>[A-Z][A-Z0-9_]{2,60})"
_LINE = re.compile(
    r"^[ \t]{0,24}(?:/proc/\d{1,10}/environ:)?(?:[-+] ?)?(?:export |declare -x |-x |-e |--env[= ])?['\"]?"
    rf"{_KEY}=['\"]?"
    r"(?P<value>[^\n\"']{0,400})",
    re.M,
)
_YAML = re.compile(
    rf"^[ \t]{{0,24}}[-\"']{{0,2}}\s?{_KEY}[\"']?:[ \t]{{1,20}}[\"']?(?P<value>[^\n\"']{{0,400}}?)[\"']?,?$", re.M
)
_PAIR = re.compile(
    rf"^[ \t]{{0,24}}-?\s?\"?name\"?:\s?[\"']?{_KEY}[\"']?,?\n"
    r"[ \t]{0,24}\"?value\"?:\s?[\"']?(?P<value>[^\n\"']{0,400}?)[\"']?,?$",
    re.M,
)
_IN_JSON = re.compile(r'(?:"name"\s{0,8}:\s{0,8})?"([A-Z][A-Z0-9_]{2,60})(?:"\s{0,8}[:,}]\s{0,40}["\d]|=)')
_RANKED = re.compile(
    rf"^\s{{0,8}}(?:\[(?:1,)?(?P<mpi>\d{{1,7}})\]<std\w{{3}}>:|\[?(?:[Rr]ank[ _]?)?(?P<rank>\d{{1,7}})\]?:)\s{{0,4}}"
    rf"{_KEY}=(?P<value>[^\n]{{0,400}})$",
    re.M,
)
_WORD = re.compile(r" ([A-Z][A-Z0-9_]{2,60})=(\S{0,400})")
_DIFF = re.compile(rf"^(?P<side>[<>+-]) ?{_KEY}=(?P<value>[^\n]{{0,400}})$", re.M)
_SIDE = re.compile(r"^(---|\+\+\+) (\S{1,120})", re.M)
_SIDES = {"<": "the first", "-": "the first", ">": "the second", "+": "the second"}
_POD = re.compile(r"^(?:Name:|  name:)\s{1,24}([a-z][\w.-]{1,80})$", re.M)
_OWNER_KEYS = ("nodeName", "Hostname", "hostname", "host", "node", "pod", "Name", "name", "rank")
_HEAD = "kind: Pod\n"
_LOG = (" NCCL INFO", " NCCL WARN", "Traceback (most", "[rank", '"communicators"', '"traceEvents"', '"OOMKilled"')


# Whoever looked for a file of settings and found none: nothing is set by it. glibc's words, also in other languages.
_NO_FILE = re.compile(r"(?:[\w./-]{0,40}: )?(?:[^\n:]{0,40}['\"])?(?:/\S{1,80})?/\.?nccl\.conf['\"]?: [^\n:]{4,60}")


def ours(key: str) -> bool:
    return key in NAMES or key.startswith(OURS)


def fits(head: str, name: str) -> bool:
    """Most lines are variables; in JSON and YAML it is enough that some of ours are. A log of a job stays one."""
    if _NO_FILE.fullmatch(head.strip()[:400]):
        return True
    lines = [
        line
        for line in head.replace("\0", "\n").splitlines()
        if line.strip() and not line.lstrip().startswith(("#", "@@", "---", "+++"))
    ]
    several = [one["key"] for pattern in (_RANKED, _DIFF) for one in pattern.finditer(head)]
    if len(several) * 2 >= len(lines) and any(map(ours, several)):
        return True
    if any(mark in head for mark in _LOG):
        return False
    if head.lstrip()[:1] in "[{":
        return any(map(ours, _IN_JSON.findall(head)))
    found = [key for key, _ in _pairs(head)]
    if not any(ours(key) or key == "PATH" for key in found):
        return False
    if _structured(head):
        return True
    return len(found) * (5 if len(lines) <= 40 else 2) > len(lines) * 2


def _structured(head: str) -> bool:
    return bool(re.search(r"^(?:apiVersion|kind|services|Name|spec|env):", head, re.M))


def _pairs(text: str) -> list[tuple[str, str]]:
    text = text.replace("\0", "\n").replace("\r", "")
    found = [(one["key"], one["value"]) for pattern in (_PAIR, _LINE) for one in pattern.finditer(text)]
    if _structured(text):
        found += [(one["key"], one["value"]) for one in _YAML.finditer(text)]
    return found


def read(text: str) -> Settings:
    text = text[:4_194_304]
    if _NO_FILE.fullmatch(text.strip()[:400]):
        return Settings(env={"": "told"})
    if commands := of_commands(text):
        return Settings(envs=commands)
    nested = _of_json if text.lstrip()[:1] in "[{" else _of_pods
    owners = _of_ranks(text) or _of_processes(text) or _of_diff(text) or nested(text)
    if len(owners) > 1:
        return Settings(envs=owners)
    pairs = next(iter(owners.values()), None) or dict(_pairs(text[:262_144]))
    if not pairs:
        raise refuse("lines NAME=value", text)
    told = {key: clean(value.strip())[:400] for key, value in list(pairs.items())[:4096] if ours(key)}
    told = dict(list(told.items())[:MOST_NAMES])
    rank = next((pairs[key] for key in RANKS if re.fullmatch(r"\d{1,7}", pairs.get(key, ""))), "")
    return Settings(envs={f"rank {int(rank)}": told}) if rank else Settings(env=told | {"": "told"})


def _of_ranks(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for one in _RANKED.finditer(text):
        owner = f"rank {int(one['mpi'] or one['rank'])}"
        if ours(one["key"]) and (owner in found or len(found) < MOST_OWNERS):
            found.setdefault(owner, {})[one["key"]] = clean(one["value"].strip())[:400]
    return found if len(found) > 1 else {}


def _of_processes(text: str) -> dict[str, dict[str, str]]:
    """Those of several ranks, one after the other; {} of fewer."""
    found: dict[str, dict[str, str]] = {}
    for _, told in environments_in(text)[:MOST_OWNERS]:
        pairs = dict(_pairs(told))
        rank = next((pairs[key] for key in RANKS if re.fullmatch(r"\d{1,7}", pairs.get(key, ""))), "")
        if rank:
            found[f"rank {int(rank)}"] = {key: clean(one.strip())[:400] for key, one in pairs.items() if ours(key)}
    return found if len(found) > 1 else {}


def of_commands(text: str) -> dict[str, dict[str, str]]:
    """Rows of `ps eww`: the environment stands behind each command. Only those of ranks."""
    found: dict[str, dict[str, str]] = {}
    for line in text[:1_048_576].split("\n"):
        pairs = dict(_WORD.findall(line[:20_000])) if " RANK=" in line[:20_000] else {}
        if re.fullmatch(r"\d{1,7}", pairs.get("RANK", "")) and len(found) < MOST_OWNERS:
            found[f"rank {int(pairs['RANK'])}"] = {key: clean(one)[:400] for key, one in pairs.items() if ours(key)}
    return found


def _of_diff(text: str) -> dict[str, dict[str, str]]:
    """The two sides of a diff; what both have alike it does not show."""
    rows = list(_DIFF.finditer(text))
    sides = dict(_SIDES)
    for mark, file in _SIDE.findall(text):
        sides["-" if mark == "---" else "+"] = clean(file.rpartition("/")[2].partition(".")[0]) or sides[mark[0]]
    found: dict[str, dict[str, str]] = {sides["<"]: {}, sides[">"]: {}} if rows and rows[0]["side"] in "<>" else {}
    found = found or ({sides["-"]: {}, sides["+"]: {}} if rows else {})
    for one in rows:
        if ours(one["key"]) and sides[one["side"]] in found:
            found[sides[one["side"]]][one["key"]] = clean(one["value"].strip())[:400]
    return found


def _of_pods(text: str) -> dict[str, dict[str, str]]:
    """Several pods in one text, as kubectl describe and `-o yaml` list them one after the other."""
    places = [(one.start(), one[1]) for one in _POD.finditer(text)][:MOST_OWNERS]
    ends = [*(start for start, _ in places[1:]), len(text)][: len(places)]
    found: dict[str, dict[str, str]] = {}
    for (start, name), end in zip(places, ends, strict=True):
        env = {key: clean(value.strip())[:400] for key, value in _pairs(_HEAD + text[start:end]) if ours(key)}
        if env:
            found.setdefault(name, {}).update(env)
    return found


def _of_json(text: str) -> dict[str, dict[str, str]]:
    """The environments in a tree of JSON, by the nearest name around each."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    found: dict[str, dict[str, str]] = {}
    for owner, key, value in _walk(tree, "", 0):
        if ours(key) and (owner in found or len(found) < MOST_OWNERS):
            env = found.setdefault(owner, {})
            if len(env) < MOST_NAMES:
                env[clean(key)[:64]] = clean(value)[:400]
    return found


def _walk(tree: Any, owner: str, depth: int) -> Iterator[tuple[str, str, str]]:
    if depth > DEEP:
        return
    if isinstance(tree, list):
        for one in tree:
            if isinstance(one, str) and "=" in one[:64]:
                yield owner, one.partition("=")[0], one.partition("=")[2]
            else:
                yield from _walk(one, owner, depth + 1)
    elif isinstance(tree, dict):
        if isinstance(tree.get("name"), str) and isinstance(tree.get("value"), str) and ours(tree["name"]):
            yield owner, tree["name"], tree["value"]
            return
        inner = _owner(tree) or owner
        for key, one in tree.items():
            if isinstance(one, str | int | float):
                yield inner, str(key), str(one)
            else:
                named = inner if inner != owner or not _is_owner(str(key), one) else _called(clean(str(key))[:80])
                yield from _walk(one, named, depth + 1)


def _called(name: str) -> str:
    rank = re.fullmatch(r"(?:rank[ _-]?)?(\d{1,7})", name, re.I)
    return f"rank {int(rank[1])}" if rank else name


def _is_owner(key: str, one: Any) -> bool:
    """Whether a key names whose environment stands below it: worker-0, rank 3, gpu-017."""
    return isinstance(one, dict | list) and bool(re.search(r"\d", key)) and len(key) < 80


def _owner(tree: dict[str, Any]) -> str:
    """What an object calls itself; of a pod the name in its metadata, of a container that Docker runs its host name."""
    about = [tree.get("metadata"), tree.get("Config"), tree]
    if isinstance(about[0], dict) and isinstance(about[0].get("name"), str):
        return clean(about[0]["name"])[:80]
    if isinstance(about[1], dict) and isinstance(about[1].get("Hostname"), str):
        return clean(about[1]["Hostname"])[:80]
    env = tree.get("env")
    if isinstance(env, list) and any(isinstance(one, dict) and "name" in one for one in env):
        return ""  # a container of a pod: the pod's name tells more
    if "env" in tree or "Env" in tree or "environment" in tree:
        told = next((tree[key] for key in _OWNER_KEYS if isinstance(tree.get(key), str | int)), "")
        return _called(clean(str(told).lstrip("/"))[:80]) if "image" not in tree else ""
    return ""


def host(text: str) -> str:
    """The node by a prompt, or as the environment itself names it; the id of a container is none."""
    said = dict(_pairs(text[:65_536])) if text.lstrip()[:1] not in "[{" else {}
    told = next((said[key] for key in _HOSTS if re.fullmatch(r"[a-zA-Z][\w.-]{0,62}", said.get(key, ""))), "")
    return host_in(text) or ("" if re.fullmatch(r"[0-9a-f]{12}", told) else told)


TOOL = Tool("environment", "host.settings", fits, read, quiet, host, log=True)
