"""Stacks of the processes of a node's ranks: what each thread was in, whichever tool told it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One call. `function` as the tool names it: py-spy adds the class, faulthandler does not. A frame of native code
    has the library as its file and no line.
    """

    function: str
    file: str
    line: int | None

    @property
    def short(self) -> str:
        """`train_step (trainer.py:412)`"""
        place = self.file.rpartition("/")[2] + (f":{self.line}" if self.line is not None else "")
        return f"{self.function} ({place})"


@dataclass(frozen=True, slots=True)
class Thread:
    """`tid` is the kernel's number, `thread_id` the pthread's, as flight-recorder entries have it; each may be None.

    `active` and `gil` are None where the tool does not tell: active means running or runnable, gil that it holds the
    interpreter's lock. `wchan` is the kernel function it sleeps in, `state` its letter, "" where not known. `frames`
    are innermost first.
    """

    tid: int | None
    thread_id: int | None
    name: str
    active: bool | None
    gil: bool | None
    state: str
    wchan: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Look:
    """What an earlier dump of the same process showed: its main thread, and the thread that held the interpreter's
    lock ("" where none did, or the tool does not tell). `beside`: of the other threads that are in code with lines of
    no library, (name, innermost call, whether it runs or holds the lock)."""

    frames: tuple[Frame, ...]
    active: bool | None
    gil: bool | None
    holder: str
    holder_at: str
    beside: tuple[tuple[str, str, bool], ...] = ()


BESIDE = 64  # threads
# py-spy shortens paths of libraries to what follows site-packages. Who waits there waits for something else.
_LIBRARIES = ("site-packages", "dist-packages", "lib/python3", "torch/", "threading.py", "queue.py", "selectors.py",
    "socket.py", "concurrent/futures/", "multiprocessing/", "asyncio/", "ssl.py", "subprocess.py", "grpc/",
    "<")  # fmt: skip


def _own(frame: Frame) -> bool:
    return frame.line is not None and not any(part in frame.file for part in _LIBRARIES)


@dataclass(frozen=True, slots=True)
class ProcessStack:
    """`how`: "py-spy", "py-spy (sent)", "worker server", "faulthandler", or "" when no stack was had; `why` says why.

    `worker`: a child of the rank, such as a data-loader worker. `kernel` is the main thread's stack in the kernel,
    innermost first, empty unless the login is root. `state` and `wchan` are the main thread's. `earlier`: other dumps
    of the same process, where there were several.
    """

    pid: int | None
    rank: int | None
    worker: bool
    comm: str
    how: str
    why: str
    state: str
    wchan: str
    kernel: tuple[str, ...]
    threads: tuple[Thread, ...]
    earlier: tuple[Look, ...] = ()

    @property
    def holder(self) -> Thread | None:
        """The thread that holds the interpreter's lock, where the tool tells."""
        return next((thread for thread in self.threads if thread.gil), None)

    @property
    def look(self) -> Look:
        """This dump, as a later one keeps it."""
        main, holder = self.main, self.holder
        at = next((frame.short for frame in holder.frames if frame.line is not None), "") if holder else ""
        return Look(
            main.frames[:40] if main else (),
            main.active if main else None,
            main.gil if main else None,
            (holder.name or str(holder.tid or "a thread")) if holder else "",
            at,
            tuple(
                (thread.name, thread.frames[0].short, bool(thread.active or thread.gil))
                for thread in self.threads[:BESIDE]
                if thread is not main and thread.name and thread.frames and _own(thread.frames[0])
            ),
        )

    @property
    def main(self) -> Thread | None:
        """The thread that runs the program: by its name, its number, or as the last that faulthandler prints."""
        for thread in self.threads:
            if thread.name == "MainThread" or (thread.tid is not None and thread.tid == self.pid):
                return thread
        ends = [thread for thread in self.threads if thread.frames and thread.frames[-1].function == "<module>"]
        return ends[-1] if ends else self.threads[-1] if self.threads else None


@dataclass(frozen=True, slots=True)
class Stacks:
    processes: tuple[ProcessStack, ...]
    left_out: int  # processes that were not asked because there are too many
    tool: str  # how py-spy was had, or why not
