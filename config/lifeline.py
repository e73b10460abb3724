"""What ties a part to the supervisor: it dies with it, and tells it when it is ready. Standard library only."""

import ctypes
import os
import signal
import sys

READY_FD = "GOLDEN15_READY_FD"
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process (SIGKILL) when process `parent` dies, however it dies.

    Runs between fork and exec. The setting survives exec but not fork, so every process of a chain sets its own. It is
    bound to the parent's thread that forked (prctl(2)): fork from the main thread only. Elsewhere than on Linux it
    does nothing.
    """
    if _libc is None:
        return
    _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants: the supervisor then finds and ends those in sessions of their own."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def report_ready() -> None:
    """Tell the supervisor, once, that this part does its work. Does nothing when no supervisor started it."""
    fd = os.environ.pop(READY_FD, "")
    if not fd:
        return
    try:
        os.write(int(fd), b"ready\n")
        os.close(int(fd))
    except OSError:  # the supervisor is gone; the kernel is about to tell us
        pass
