"""The supervisor's loop: one thread that starts parts, shows their output, restarts those that die, and ends them all.

One thread, because what runs between fork and exec (die_with_parent) is only safe in a process without others.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from config.supervisor.parts import Part
from config.supervisor.process import Process, how_it_ended

TICK = 0.1  # seconds between two looks while something is awaited
IDLE = 5.0
LONGEST_BACK_OFF = 30.0
STEADY = 10.0  # seconds a part must have run for its death to count as the first


@dataclass
class Slot:
    """One part and its present process, if any."""

    part: Part
    process: Process | None = None
    ready: bool = False
    ended_early: int = 0
    start_at: float = 0.0


def say(line: str) -> None:
    """A line for the person at the terminal. A closed terminal or a full disk under the log is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        print(line, flush=True)


def back_off(ended_early: int) -> float:
    """Seconds to wait before the next start of a part that died early this many times in a row."""
    return min(LONGEST_BACK_OFF, 2.0 ** (ended_early - 1)) if ended_early > 1 else 0.0


class Supervisor:
    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.stop_signals = 0
        self.looping = False
        self.wake_read, self.wake_write = os.pipe()
        for fd in (self.wake_read, self.wake_write):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # the wake-up is what counts
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_stop_signal)

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop_signals += 1
        if not self.looping:  # still setting up, perhaps waiting for a database
            raise KeyboardInterrupt

    def start(self, part: Part) -> None:
        slot = self.slots.setdefault(part.name, Slot(part))
        slot.ready = False
        slot.process = Process(part)

    def run(self, look: Callable[[], bool]) -> None:
        """Keep the parts running until a signal asks to stop. `look` is called at every turn; False means that it
        waits for nothing, so that the loop may rest."""
        self.looping = True
        while not self.stop_signals:
            waiting = look() or any(slot.process is None for slot in self.slots.values())
            self._turn(TICK if waiting else IDLE)
            self._restart_dead()

    def _turn(self, timeout: float) -> None:
        """Wait until a part has something to say, or ended, and see to it."""
        running = [slot for slot in self.slots.values() if slot.process]
        outputs = {slot.process.output: slot for slot in running if slot.process}
        readies = {slot.process.ready_fd: slot for slot in running if slot.process and not slot.ready}
        found, _, _ = select.select([self.wake_read, *outputs, *readies], [], [], timeout)
        for fd in found:
            if fd == self.wake_read:
                os.read(fd, 4096)
            elif fd in outputs:
                self._show(outputs[fd])
            elif readies[fd].process.said_ready():  # type: ignore[union-attr]
                readies[fd].ready = True
        self._reap()

    def _show(self, slot: Slot) -> None:
        assert slot.process is not None
        for line in slot.process.read_lines():
            if any(phrase in line for phrase in slot.part.hidden):
                continue
            say(f"{slot.part.name:<7} | {line}")

    def _reap(self) -> None:
        """Take leave of ended processes. The group of a part is killed while its leader is still there to hold the
        number."""
        by_pid = {slot.process.pid: slot for slot in self.slots.values() if slot.process}
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            slot = by_pid.get(ended.si_pid)
            if slot is not None and slot.process is not None:
                slot.process.kill_group()
                self._show(slot)
            _, status = os.waitpid(ended.si_pid, 0)
            if slot is not None:
                self._ended(slot, os.waitstatus_to_exitcode(status))

    def _ended(self, slot: Slot, status: int) -> None:
        assert slot.process is not None
        lasted = time.monotonic() - slot.process.started
        slot.process.close(status)
        slot.process, slot.ready = None, False
        if self.stop_signals or not self.looping:
            return
        slot.ended_early = 0 if lasted >= STEADY else slot.ended_early + 1
        delay = back_off(slot.ended_early)
        slot.start_at = time.monotonic() + delay
        when = f"in {delay:.0f} s" if delay else "now"
        say(f"The {slot.part.name} ended unexpectedly ({how_it_ended(status)}). Starting it again {when}.")

    def _restart_dead(self) -> None:
        for slot in self.slots.values():
            if slot.process is None and not self.stop_signals and time.monotonic() >= slot.start_at:
                try:
                    self.start(slot.part)
                except OSError as error:  # no process or file handle to be had just now
                    slot.ended_early += 1
                    slot.start_at = time.monotonic() + back_off(slot.ended_early + 1)
                    say(f"The {slot.part.name} could not be started ({error.strerror}). Trying again soon.")

    def stop(self) -> None:
        """End every part: SIGTERM, then SIGKILL after its limit or at a second Ctrl-C; the broker last. Whatever of
        their descendants is left is killed too."""
        self.looping = True
        self.stop_signals = max(1, self.stop_signals)
        for last in (False, True):
            self._stop([slot for slot in self.slots.values() if slot.part.stop_last is last and slot.process])
        kill_descendants()

    def _stop(self, slots: list[Slot]) -> None:
        begun, signals = time.monotonic(), self.stop_signals
        for slot in slots:
            if slot.process:
                slot.process.terminate()
        while any(slot.process for slot in slots):
            for slot in slots:
                late = time.monotonic() - begun > slot.part.stop_after or self.stop_signals > signals
                if slot.process and late:
                    slot.process.kill_group()
            self._turn(TICK)


def kill_descendants(limit: float = 2.0) -> None:
    """Kill what the parts left behind in sessions of their own, and say so if it does not die: a process in
    uninterruptible sleep cannot be killed by anybody."""
    import psutil

    left = psutil.Process().children(recursive=True)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(left, timeout=limit)
    if alive:
        say(f"These processes cannot be ended: {', '.join(str(p.pid) for p in alive)}. They end when their I/O does.")
