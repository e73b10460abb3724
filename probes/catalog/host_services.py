"""Do the services that training leans on run, and did any unit of this node fail?

Source   systemctl(1): show of units that exist here (LoadState, ActiveState, SubState, Result, NRestarts), and
         list-units --failed --plain --no-legend. It asks systemd over D-Bus, which may hang: then this probe times out
Units    restarts since the node was booted
Shape    Services
Errors   ParseError when a block lacks its Id; Absent where no systemd runs (a container)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.core import Finding, ParseError, Probe, clean, lines_of, sections
from probes.runner import Absent, sh, which

SHOW, FAILED = "systemctl show", "systemctl list-units --failed"
MOST = 400
RESTARTS = 3  # by systemd, of a unit that is not active now; judgement
# Those that a node of a training cluster cannot do without, when it has them; of others only a failure is told.
NEEDED = {
    "slurmd": "Slurm starts no steps here",
    "munge": "Slurm's daemons cannot authenticate",
    "kubelet": "Kubernetes takes this node for lost",
    "containerd": "no container starts",
    "docker": "no container starts",
    "crio": "no container starts",
    "nvidia-fabricmanager": "CUDA fails with error 802 on machines with NVSwitch",
    "nvidia-imex": "GPUs of other nodes of an NVLink domain cannot be reached",
    "nvidia-persistenced": "the driver unloads when no process uses a GPU",
    "chronyd": "the clock drifts",
    "chrony": "the clock drifts",
    "ntpd": "the clock drifts",
    "systemd-timesyncd": "the clock drifts",
    "openibd": "the adapters' modules may not be loaded",
    "sssd": "users may not be found",
    "autofs": "file systems are not mounted when needed",
}


@dataclass(frozen=True, slots=True)
class Unit:
    """In systemd's own words. `restarts`: None before systemd 235."""

    name: str
    active: str  # active, inactive, failed, activating ...
    sub: str  # running, dead, auto-restart ...
    result: str = ""  # success, exit-code, signal, oom-kill, timeout ...
    restarts: int | None = None
    enabled: bool = False  # to be started at boot


@dataclass(frozen=True, slots=True)
class Services:
    units: tuple[Unit, ...]
    failed: tuple[str, ...]  # of all units of the node


def _collect() -> Mapping[str, str]:
    import os

    tool = which("systemctl")
    if not tool or not os.path.isdir("/run/systemd/system"):
        raise Absent("no systemd runs here")
    names = [
        *("slurmd", "munge", "kubelet", "containerd", "docker", "crio", "nvidia-fabricmanager", "nvidia-imex"),
        *("nvidia-persistenced", "nvidia-dcgm", "chronyd", "chrony", "ntpd", "systemd-timesyncd", "openibd"),
        *("sssd", "autofs", "rpc-statd", "opensm"),
    ]
    keys = "Id,LoadState,ActiveState,SubState,Result,NRestarts,UnitFileState"
    status, out, err = sh([tool, "show", "-p", keys] + [name + ".service" for name in names])
    if status != 0 and not out.strip():
        raise OSError(f"systemctl show ended with status {status}: {err.strip()[-200:]}")
    failed = sh([tool, "list-units", "--failed", "--plain", "--no-legend", "--no-pager"])[1]
    return {"systemctl show": out, "systemctl list-units --failed": failed}


def parse(text: str) -> Services:
    """Blocks of `KEY=value` with an empty line between two units; units that are not installed are left out."""
    parts = sections(text)
    if SHOW not in parts:
        raise ParseError(f"expected a block '==> {SHOW} <==', found {clean(', '.join(parts))[:60]!r}")
    units = []
    for block in clean(parts[SHOW]).replace("\r", "").split("\n\n")[:MOST]:
        told = dict(line.partition("=")[::2] for line in block.strip().splitlines())
        if not told:
            continue
        if "Id" not in told or "ActiveState" not in told:
            raise ParseError(f"{SHOW}: expected Id= and ActiveState= of each unit, found {block.strip()[:60]!r}")
        if told.get("LoadState") == "not-found":
            continue
        restarts = told.get("NRestarts", "")
        units.append(
            Unit(
                told["Id"].removesuffix(".service")[:80],
                told["ActiveState"][:20],
                told.get("SubState", "")[:20],
                told.get("Result", "")[:20],
                int(restarts[:9]) if restarts.isdecimal() else None,
                told.get("UnitFileState", "").startswith("enabled"),
            )
        )
    failed = [
        words[0] for line in lines_of(clean(parts.get(FAILED, "")), 400) if (words := line.replace("●", "").split())
    ]
    return Services(tuple(units), tuple(name[:80] for name in failed[:MOST]))


def findings(services: Services) -> Iterator[Finding]:
    """Needed services that should run and do not; other units that failed, in one line."""
    for unit in services.units:
        why = f": {NEEDED[unit.name]}" if unit.name in NEEDED else ""
        again = unit.sub == "auto-restart" or ((unit.restarts or 0) >= RESTARTS and unit.active != "active")
        if again:
            says = f"{unit.name} is started again and again ({unit.restarts or 'some'} times, {unit.result}){why}"
            yield Finding("host.service_down", "warn", says, {"unit": unit.name})
        elif unit.active == "failed":
            says = f"{unit.name} failed ({unit.result}){why}"
            yield Finding("host.service_down", "warn", says, {"unit": unit.name})
        elif unit.active == "inactive" and unit.enabled and why:
            says = f"{unit.name} is enabled and does not run{why}"
            yield Finding("host.service_down", "warn", says, {"unit": unit.name})
    told = {unit.name for unit in services.units}
    others = [name for name in services.failed if name.removesuffix(".service") not in told]
    if others:
        more = f" and {len(others) - 6} more" if len(others) > 6 else ""
        yield Finding("host.units_failed", "info", f"units that failed on this node: {', '.join(others[:6])}{more}")


PROBE = Probe(
    "host.services",
    "Do the services that training leans on run, and did any unit fail?",
    parse,
    findings,
    collect=_collect,
    by_hand="systemctl --failed; systemctl status slurmd kubelet containerd nvidia-persistenced chronyd",
    timeout_s=4.0,
    cost="not measured: no systemd ran there",
)
