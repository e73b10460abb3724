"""Mount namespaces for nodes in tests, whose mounts must never reach this machine."""

from __future__ import annotations

from pathlib import Path


def mount_points() -> list[list[str]]:
    """Fields of /proc/self/mountinfo, proc_pid_mountinfo(5)."""
    return [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def root_is_a_mount() -> bool:
    """False in a plain chroot, where what is above is out of sight."""
    return any(fields[4] == "/" for fields in mount_points())


def unshare_mounts() -> list[str]:
    """Options of unshare(1) for a mount namespace of its own.

    In a plain chroot the propagation of / cannot be set. Then every mount must be private already.
    """
    if root_is_a_mount():
        return ["--mount", "--propagation", "private"]
    shared = [fields[4] for fields in mount_points() if any(word.startswith("shared:") for word in fields[6:])]
    assert not shared, f"in a chroot with shared mounts ({shared[0]}) a node's mounts would show outside"
    return ["--mount", "--propagation", "unchanged"]
