"""Runs a tool of infiniband-diags, which asks the whole fabric by management datagrams: plainly, then by `sudo -n`.

SENT TO THE NODE (ib.fabric, ib.fabric_errors, ib.resources): compiled there by Python 3.6 and later; only names of
probes.runner beside its own.
"""

from __future__ import annotations

from probes.runner import Absent, Denied, sh, which

TOOLS = ("ibnetdiscover", "iblinkinfo", "ibqueryerrors")


def place_of(tool: str) -> str | None:
    import os

    for folder in ("/usr/sbin", "/sbin"):  # Debian's place, which is not on the PATH of a plain login
        if which(tool) is None and os.access(f"{folder}/{tool}", os.X_OK):
            return f"{folder}/{tool}"
    return which(tool)


def ask(tool: str, arguments: list[str], good: tuple[int, ...], limit: int) -> str:
    """What it printed. `good`: statuses of an answer; 0 without a word is one where `good` has more than that.

    Raises Absent, Denied, RuntimeError.
    """
    import glob
    import os
    import pwd

    path = place_of(tool) or ""
    if not path:
        raise Absent(f"{tool} is not installed here: ask a node that has it (package infiniband-diags)")
    sudo = which("sudo") if os.getuid() else None
    for front in ([], [sudo, "-n"]) if sudo else ([],):
        status, out, err = sh(front + [path] + arguments, limit)
        if status in good and (out.strip() or (status == 0 and len(good) > 1)):
            return out
        if "umad" not in err.lower():
            break  # with the right to ask it failed for another reason, which more rights do not change
    devices = glob.glob("/dev/infiniband/umad*")
    if not devices and not os.path.isdir("/sys/class/infiniband"):
        raise Absent("no InfiniBand adapter here: /sys/class/infiniband is not there")
    if not devices:
        raise Absent("no /dev/infiniband/umad*: the kernel module ib_umad is not loaded here. Ask another node")
    mine = any(os.access(device, os.R_OK | os.W_OK) for device in devices)
    if not mine and not (sudo and sh([sudo, "-n", "-l", path])[0] == 0):
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = f"#{os.getuid()}"
        tools = ", ".join(found for found in map(place_of, TOOLS) if found)
        allow = f"{user} ALL=(root) NOPASSWD: {tools}"
        raise Denied(f"this login may not open /dev/infiniband/umad*. Allow in sudoers: {allow}")
    raise RuntimeError(f"{path} ended with status {status}: {err.strip()[-300:] or out.strip()[-300:] or 'no word'}")
