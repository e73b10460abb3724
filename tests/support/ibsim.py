"""A simulated InfiniBand fabric with the real tools on it: ibsim, the fabric; opensm, its manager; ibnetdiscover.

Each run has a folder and sockets of its own (IBSIM_SOCKNAME), so that several run side by side. A process takes part by
preloading libumad2sim, as the adapter that SIM_HOST names. It lays a /sys/class/infiniband for that one adapter, called
ibsim0, into its working folder and shows it to C programs. Python opens files by open64, which it does not catch: the
collector of ib.ports reads nothing there. `ports_text` therefore prints those very files, as tail would.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

from tests.support.wait import until

PRELOAD = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so"
TOOLS = "/usr/sbin:/usr/bin:/sbin:/bin"
DISCOVERS = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors")
# Listing is what makes the preloaded library lay its files out, below the working folder.
COPY = """import os, shutil
os.listdir("/sys/class/infiniband")
shutil.copytree(f"sys-{os.getpid()}/sys/class/infiniband/ibsim0", "ibsim0", dirs_exist_ok=True)
"""
OF_HCA = ("node_guid", "hca_type", "fw_ver")
OF_PORT = ("state", "phys_state", "rate", "lid", "sm_lid")


def net(leaves: int, nodes: int) -> str:
    """A net file of ibsim(1): `nodes` nodes with one adapter for each of `leaves` leaf switches, and one spine."""
    blocks = []
    for leaf in range(leaves):
        ports = [f'[{n}]\t"gpu-{n:03d} mlx5_{leaf}"[1]' for n in range(1, nodes + 1)]
        ports.append(f'[{nodes + 1}]\t"spine-00"[{leaf + 1}]')
        blocks.append(f'Switch\t{nodes + 1} "leaf-{leaf:02d}"\n' + "\n".join(ports))
    spine = [f'[{leaf + 1}]\t"leaf-{leaf:02d}"[{nodes + 1}]' for leaf in range(leaves)]
    blocks.append(f'Switch\t{leaves} "spine-00"\n' + "\n".join(spine))
    for n in range(1, nodes + 1):
        blocks += [f'Hca\t1 "gpu-{n:03d} mlx5_{leaf}"\n[1]\t"leaf-{leaf:02d}"[{n}]' for leaf in range(leaves)]
    return "\n\n".join(blocks) + "\n"


class Fabric:
    """A running fabric with a subnet manager. Use as a context manager."""

    def __init__(self, folder: Path, net_file: str, manager: str) -> None:
        self.folder = folder
        self.manager = manager  # the adapter that opensm runs at: "gpu-001 mlx5_0"
        self.socket = f"golden15-{uuid.uuid4().hex[:12]}"
        (folder / "net").write_text(net_file)
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Fabric:
        log = (self.folder / "ibsim.log").open("wb")
        env = {**os.environ, "IBSIM_SOCKNAME": self.socket}
        command = ["ibsim", "-s", str(self.folder / "net")]
        self.console = subprocess.Popen(
            command, cwd=self.folder, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log
        )
        log.close()
        self._started.append(self.console)
        until(lambda: b"sim>" in (self.folder / "ibsim.log").read_bytes(), 10, "ibsim to be ready")
        place = self.folder / "sm"
        place.mkdir()
        arguments = ["opensm", "-f", "stdout", "-s", "1"]  # looks again each second
        with (self.folder / "opensm.log").open("wb") as out:
            opensm = subprocess.Popen(
                arguments, cwd=place, env=self.env(self.manager), stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        self._started.append(opensm)
        until(lambda: b"SUBNET UP" in (self.folder / "opensm.log").read_bytes(), 20, "opensm to bring the subnet up")
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._started):
            process.kill()
            process.wait(10)
        assert self.console.stdin
        self.console.stdin.close()

    def env(self, hca: str) -> dict[str, str]:
        """The environment of a process that takes part as this adapter."""
        mine = {"IBSIM_SOCKNAME": self.socket, "SIM_HOST": hca, "LD_PRELOAD": PRELOAD}
        return {**os.environ, "PATH": TOOLS, **mine}

    def say(self, command: str) -> None:
        """Type a command into ibsim's console, such as `Unlink "gpu-002 mlx5_1"[1]`; returns when it is carried out."""
        assert self.console.stdin
        before = (self.folder / "ibsim.log").read_bytes().count(b"sim>")
        self.console.stdin.write(command.encode() + b"\n")
        self.console.stdin.flush()
        until(lambda: (self.folder / "ibsim.log").read_bytes().count(b"sim>") > before, 10, f"ibsim to do {command}")

    def tool_path(self, hca: str) -> Path:
        """A folder with tools that take part as this adapter: for the PATH of a collector."""
        place = self.folder / f"as-{re.sub('[^a-z0-9]', '-', hca)}"
        place.mkdir(exist_ok=True)
        for name, script in self.tools(hca, place).items():
            (place / name).write_text(script)
            (place / name).chmod(0o755)
        return place

    def tools(self, hca: str, place: Path) -> dict[str, str]:
        """Scripts that are the real tools, taking part as this adapter; `place` is where they lay out its files."""
        words = " ".join(
            f"{name}={shlex.quote(self.env(hca)[name])}" for name in ("IBSIM_SOCKNAME", "SIM_HOST", "LD_PRELOAD")
        )
        return {
            name: f'#!/bin/sh\ncd {shlex.quote(str(place))}\n{words} exec /usr/sbin/{name} "$@"\n' for name in DISCOVERS
        }

    def ports_text(self, hcas: dict[str, str]) -> str:
        """{name on the node: adapter} -> what ib.ports would bring: the files that the simulator lays out for each."""
        return "".join(
            f"==> /sys/class/infiniband/{name}/{path} <==\n{(place / path).read_text().strip()}\n\n"
            for name, place in self.ports_files(hcas).items()
            for path in (*OF_HCA, *(f"ports/1/{file}" for file in OF_PORT))
        )

    def ports_files(self, hcas: dict[str, str]) -> dict[str, Path]:
        """{name on the node: adapter} -> the folder of that adapter as the simulator lays it out now."""
        found = {}
        for name, hca in hcas.items():
            place = self.folder / f"sys-{name}"
            place.mkdir(exist_ok=True)
            program = [sys.executable, "-I", "-c", COPY]
            subprocess.run(program, cwd=place, env=self.env(hca), check=True, timeout=20, capture_output=True)
            found[name] = place / "ibsim0"
        return found
