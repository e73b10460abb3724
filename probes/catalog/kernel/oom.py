"""Kernel log lines of the OOM killer.

Source   mm/oom_kill.c and mm/memcontrol.c; sizes are printed in kB there
"""

from __future__ import annotations

from typing import Any

from probes.catalog.kernel.events import OomKill
from probes.catalog.kernel.gpu import number
from probes.catalog.kernel.lines import Line
from probes.catalog.kernel.tally import Record, Tally

# In small letters: who retypes a line seldom keeps the large ones.
_KILLS = ("out of memory: kill", "memory cgroup out of memory: kill", "killed process ", "oom_reaper: reaped process ")
_VERBS = ("Killed process ", "Kill process ", "reaped process ")


class OomLines:
    """Reads one line after another. `oom` holds what the report said before it named its victim."""

    def __init__(self, tally: Tally):
        self.tally = tally
        self.oom: dict[str, Any] = {}

    def take(self, line: Line) -> bool:
        """True when the line names a victim."""
        if "oom-kill:constraint=" in line.text:
            return self._oom_constraint(line)
        if line.text[:40].lower().startswith(_KILLS) and self._oom_kill(line):
            return True
        if " invoked oom-killer" in line.text or "memory: usage " in line.text:
            return self._oom_context(line)
        return False

    def _oom_context(self, line: Line) -> bool:
        text = line.text
        if " invoked oom-killer" in text:
            self.oom = {}
        elif text.startswith("memory: usage ") and "limit " in text:
            limit = number(text.partition("limit ")[2], 18)
            self.oom["limit_bytes"] = None if limit is None else limit * 1024
        return False

    def _oom_constraint(self, line: Line) -> bool:
        """`oom-kill:constraint=C,nodemask=(null),...,oom_memcg=/a,task_memcg=/a/b,task=NAME,pid=1,uid=0` (kernel 5)."""
        rest = line.text.partition("oom-kill:constraint=")[2]
        self.oom["constraint"] = rest.partition(",")[0][:40]
        self.oom["cgroup"] = rest.partition("oom_memcg=")[2].partition(",")[0][:400]
        self.oom["task_cgroup"] = rest.partition(",task_memcg=")[2].partition(",")[0][:400]
        name, _, tail = rest.partition(",task=")[2].rpartition(",pid=")
        pid = number(tail)
        if pid is None:
            return False
        self._killed(line, pid, name)
        return True

    def _oom_kill(self, line: Line) -> bool:
        """`Killed process 12 (name) total-vm:`, `Kill process 12 (name) score 50 ...`, `reaped process 12 (name)`"""
        low = line.text.lower()
        for verb in _VERBS:
            at = low.find(verb.lower())
            rest = line.text[at + len(verb) :] if at >= 0 else ""
            pid = number(rest) if rest else None
            if pid is not None:
                break
        else:
            return False
        inside = rest.partition("(")[2]
        for end in (") total-vm:", ") score ", "), now ", "), UID"):
            if end in inside:
                name = inside.partition(end)[0]
                break
        else:
            name = inside.rpartition(")")[0]
        known = self.tally.find(OomKill, pid)
        record = self._killed(line, pid, name)
        if verb == "Killed process ":
            record.count += 1
            rss = number(rest.partition("anon-rss:")[2], 18)
            record.fields["rss_bytes"] = record.fields["rss_bytes"] if rss is None else rss * 1024
            if low.startswith("memory cgroup") and not record.fields["constraint"]:
                record.fields["constraint"] = "CONSTRAINT_MEMCG"
            self.oom = {}
        elif known is None and low.startswith("memory cgroup"):
            record.fields["constraint"] = "CONSTRAINT_MEMCG"
        return True

    def _killed(self, line: Line, pid: int, name: str) -> Record:
        fields: dict[str, Any] = {
            "constraint": "",
            "cgroup": "",
            "limit_bytes": None,
            "rss_bytes": None,
            "task_cgroup": "",
        }
        fields |= self.oom
        return self.tally.note(OomKill, (pid,), line, pid=pid, process=name[:64], **fields)
