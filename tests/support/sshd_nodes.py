"""Real sshd nodes on this machine, each with its own faults.

As root every node is a set of namespaces (mount, host name, processes) around a real sshd: its own /root, /dev/shm,
/proc and PATH, so that rc files, tools and left-over processes are the node's own. All listen on loopback addresses.
Without root the sshds run as the present user, without namespaces; tests that need more are marked `needs_root`.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.namespaces import unshare_mounts
from tests.support.wait import until

ROOT = os.geteuid() == 0
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "/usr/sbin/sshd"

# A /dev of the node's own, into which a test may lay devices that this machine has not.
OWN_DEV = """d=/var/tmp/dev; mkdir $d; mount -t tmpfs -o mode=755 tmpfs $d
for n in null zero full random urandom tty; do touch $d/$n; mount --bind /dev/$n $d/$n; done
mkdir $d/pts $d/shm; mount --rbind /dev/pts $d/pts; mount --rbind /dev/shm $d/shm
mount --rbind $d /dev
"""


def free_port(address: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


@dataclass
class Node:
    name: str
    address: str
    port: int
    home: Path
    process: subprocess.Popen[bytes] | None = None
    before: dict[str, set[str]] = field(default_factory=dict)

    @property
    def sshd_pid(self) -> int:
        """The listening sshd as seen from outside: the child of unshare, or the process itself."""
        assert self.process
        if not ROOT:
            return self.process.pid
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def processes(self) -> list[str]:
        """What runs on the node besides its listening sshd, as `pid name` from outside."""
        mine = os.readlink(f"/proc/{self.sshd_pid}/ns/pid")
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.readlink(f"/proc/{entry}/ns/pid") == mine and int(entry) != self.sshd_pid:
                    stat = Path(f"/proc/{entry}/stat").read_text()
                    if stat.rpartition(")")[2].split()[0] not in "ZX":
                        found.append(f"{entry} {stat.partition('(')[2].rpartition(')')[0]}")
            except OSError:
                continue
        return found

    def files(self) -> dict[str, set[str]]:
        """Names in the places where something could be left behind."""
        inside = Path(f"/proc/{self.sshd_pid}/root")
        return {place: set(os.listdir(inside / place)) for place in ("dev/shm", "tmp", "var/tmp", "run", "root")}

    def left_behind(self) -> dict[str, set[str]]:
        now = self.files()
        return {place: now[place] - self.before[place] for place in now if now[place] - self.before[place]}


class Lab:
    """Starts nodes; keeps one SSH configuration, key and known_hosts file for them. Use as a context manager."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.nodes: dict[str, Node] = {}
        self.key = folder / "id_lab"
        self.config = folder / "ssh_config"
        self.known_hosts = folder / "known_hosts"
        self._next = 1
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True)
        self.known_hosts.touch()
        self.config.write_text(f"Host *\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n  User {self.user}\n"
                               f"  UserKnownHostsFile {self.known_hosts}\n")  # fmt: skip

    @property
    def user(self) -> str:
        import pwd

        return pwd.getpwuid(os.geteuid()).pw_name

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            self.stop(node)

    def address(self) -> str:
        self._next += 1
        return f"127.15.0.{self._next}"

    def name(self, name: str, address: str, port: int, extra: str = "") -> None:
        """Make `name` known to the SSH configuration."""
        # The first value wins in ssh_config(5), so a node's own lines go before those for all.
        self.config.write_text(f"Host {name}\n  HostName {address}\n  Port {port}\n{extra}{self.config.read_text()}")

    def start(
        self,
        name: str,
        sshd: str = "",
        rc: str = "",
        tools: dict[str, str] | None = None,
        trust: bool = True,
        mounts: str = "",
        config: str = "",
        bare_path: bool = False,
        account: str = "",
        sudoers: str = "",
    ) -> Node:
        """One node. `sshd`: more lines of sshd_config; `rc`: its ~/.bashrc; `tools`: scripts first on its PATH;
        `mounts`: shell lines run in its mount namespace; `config`: more lines for it in the client's configuration.
        `bare_path`: nothing but `tools` is on its PATH. `account`: log in as this plain user, which only this node
        has (root only); `sudoers`: what it may do through the real sudo."""
        place = self.folder / name
        home = place / "home"
        home.mkdir(parents=True)
        bin_folder = place / "bin"
        bin_folder.mkdir()
        for tool, script in (tools or {}).items():
            (bin_folder / tool).write_text(script)
            (bin_folder / tool).chmod(0o755)
        if rc:
            (home / ".bashrc").write_text(rc)
        node = Node(name, self.address(), 0, home)
        node.port = free_port(node.address)
        host_key = place / "host_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key], check=True)
        shutil.copy(f"{self.key}.pub", place / "authorized_keys")
        if account:
            mounts = f"{mounts}\n{self._account(place, account, sudoers)}"
            config = f"  User {account}\n{config}"
            sshd = f"AuthorizedKeysFile /mnt/authorized_keys\n{sshd}"
        path = str(bin_folder) if bare_path else f"{bin_folder}:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
        (place / "sshd_config").write_text(
            f"{sshd}\nListenAddress {node.address}\nPort {node.port}\nHostKey {host_key}\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {place}/authorized_keys\nStrictModes no\nPermitRootLogin prohibit-password\n"
            f"PasswordAuthentication no\nKbdInteractiveAuthentication no\nUseDNS no\nSetEnv PATH={path}\n"
        )
        self._spawn(node, place, mounts)
        self.nodes[name] = node
        self.name(name, node.address, node.port, config)
        if trust:
            self.trust(node)
        return node

    def _account(self, place: Path, name: str, sudoers: str) -> str:
        """Shell lines that give the node a user of its own: nothing outside its mount namespace changes."""
        for file, line in (
            ("passwd", f"{name}:x:4242:4242::/mnt:/bin/bash"),
            ("group", f"{name}:x:4242:"),
            ("shadow", f"{name}:*:19000:0:99999:7:::"),
        ):
            (place / file).write_text(Path(f"/etc/{file}").read_text() + line + "\n")
        (place / "sudoers").write_text(f"root ALL=(ALL) ALL\n{sudoers}\n")
        (place / "sudoers").chmod(0o440)
        lines = [f"mount --bind {place}/{file} /etc/{file}" for file in ("passwd", "group", "shadow", "sudoers")]
        keys = f"cp {place}/authorized_keys /mnt/authorized_keys && chmod 644 /mnt/authorized_keys"
        return "\n".join([*lines, "mount -t tmpfs -o mode=755 tmpfs /mnt", keys])

    def trust(self, node: Node) -> None:
        kind, key = (self.folder / node.name / "host_key.pub").read_text().split()[:2]
        with self.known_hosts.open("a") as known:
            known.write(f"[{node.address}]:{node.port} {kind} {key}\n")

    def _spawn(self, node: Node, place: Path, mounts: str) -> None:
        sshd = f"exec {SSHD} -D -e -f {place}/sshd_config"
        command = ["/bin/sh", "-c", sshd]
        if ROOT:
            lines = [
                "set -e",
                f"hostname {node.name}",
                f"mount --rbind {self.folder} /mnt",
                "for place in /tmp /var/tmp /dev/shm /run; do mount -t tmpfs tmpfs $place; done",
                f"mkdir -p /run/sshd {self.folder}",
                f"mount --rbind /mnt {self.folder}",
                "umount --lazy /mnt",
                f"mount --bind {node.home} /root",
                mounts,
                sshd,
            ]
            unshare = ["unshare", *unshare_mounts(), "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
            command = [*unshare, "/bin/sh", "-c", "\n".join(lines)]
        with (place / "sshd.log").open("wb") as log:
            node.process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        process = node.process

        def listening() -> bool:
            said = (place / "sshd.log").read_text()
            assert process.poll() is None, f"the node {node.name} ended: {said}"
            return "listening on" in said

        until(listening, 10, f"sshd of {node.name} to listen")
        if ROOT:
            node.before = node.files()

    def stop(self, node: Node) -> None:
        if node.process and node.process.poll() is None:
            os.killpg(node.process.pid, signal.SIGKILL)
            node.process.wait()


class FrozenMount:
    """A file system whose writers hang in state D, unkillable, until it is thawed: the stand-in for a wedged driver.

    Needs root and a loop device. `fsfreeze` on a loop-mounted ext4.
    """

    def __init__(self, folder: Path):
        self.image, self.mount = folder / "frozen.img", folder / "frozen"

    def __enter__(self) -> FrozenMount:
        self.mount.mkdir()
        self.image.write_bytes(b"\0" * (16 << 20))
        subprocess.run(["mkfs.ext4", "-q", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.mount], check=True)
        subprocess.run(["fsfreeze", "-f", self.mount], check=True)
        return self

    def thaw(self) -> None:
        subprocess.run(["fsfreeze", "-u", self.mount], check=False, capture_output=True)

    def __exit__(self, *_: object) -> None:
        self.thaw()
        until(lambda: subprocess.run(["umount", self.mount], capture_output=True).returncode == 0, 20, "umount")
