"""Kernel log lines of network file systems whose server is silent, and of those that answer again.

Source   net/sunrpc/clnt.c (NFS); lustre/ptlrpc/import.c and client.c; net/ceph; fs/smb/client; the log messages of the
         BeeGFS client module and of IBM Storage Scale (mmfs)
"""

from __future__ import annotations

import re

from probes.catalog.kernel.events import NfsStall
from probes.catalog.kernel.lines import Line
from probes.catalog.kernel.tally import Tally

_LUSTRE_NAME = re.compile(r"([\w.-]{1,40}-(?:OST|MDT|MGT)[0-9a-fA-F]{4})")
_LUSTRE_MGS = re.compile(r"\b(MGC?[\d.]{0,20}@\w{1,10}|MGS)\b")
_CEPH = re.compile(r"(?:libceph|ceph): (?:\([\w -]{1,60}\)?: )?((?:mds|osd|mon)\d{1,5})")
_CIFS = re.compile(r"CIFS: (?:VFS: )?\\{1,4}([\w.-]{1,80})")
_BEEGFS = re.compile(r"beegfs", re.I)
_BEEGFS_NODE = re.compile(
    r"(?:node|server|Node)?:? ?(beegfs-(?:storage|meta|mgmtd) [\w.-]{1,60}|[\w.-]{1,60} \[ID: \d{1,6}\])"
)
_SILENT = {
    "Lustre": ("was lost; in progress", "has timed out for slow reply", "has failed due to network error",
               "not responding", "is unavailable", "operation ost_connect", "timed out on "),
    "Ceph": (" hung", " down", "socket closed", "connect error", "caps stale"),
    "CIFS": ("has not responded in", "not responding"),
    "BeeGFS": ("Connect failed", "Retrying communication", "Communication error", "not reachable", "timed out"),
}  # fmt: skip
_GPFS_NAME = re.compile(r"ile system ([\w.-]{1,40})")
_GPFS = ("lost", "unmount", "isk lease", "xpelled", "not responding", "SGPanic")
_BACK = {
    "Lustre": ("Connection restored to", "Connection to .* restored"),
    "Ceph": (" up", "caps renewed", "recovery completed", "session established", " came back"),
    "CIFS": ("reconnected", "Reconnected"),
    "BeeGFS": ("Connected to", "Communication recovered", "reconnected"),
}


class NetfsLines:
    """Reads one line after another."""

    def __init__(self, tally: Tally):
        self.tally = tally

    def take(self, line: Line) -> bool:
        """True when the line was one of these."""
        text = line.text
        if "not responding" in text or text.endswith(" OK"):
            return self._nfs(line)
        if "Lustre" in text:
            return self._other(line, "Lustre", _name(_LUSTRE_NAME, text) or _name(_LUSTRE_MGS, text) or "a server")
        if "ceph" in text[:40]:
            return self._other(line, "Ceph", _name(_CEPH, text))
        if "CIFS" in text[:40]:
            return self._other(line, "CIFS", _name(_CIFS, text))
        if _BEEGFS.search(text[:40]):
            return self._other(line, "BeeGFS", _name(_BEEGFS_NODE, text) or "a server")
        if "mmfs" in text[:60] and ("[E]" in text or "[X]" in text) and any(word in text for word in _GPFS):
            return self._silent(line, "GPFS", _name(_GPFS_NAME, text) or "GPFS")
        return False

    def _nfs(self, line: Line) -> bool:
        """`nfs: server NAME not responding, still trying`, later `nfs: server NAME OK`."""
        _, found, rest = line.text.partition(": server ")
        server, _, what = rest.partition(" ")
        if found and what.startswith("not responding"):
            return self._silent(line, "NFS", server)
        return self._back(line, server) if found and what.strip() == "OK" else False

    def _other(self, line: Line, kind: str, server: str) -> bool:
        if not server:
            return False
        if any(word in line.text for word in _BACK[kind]):
            return self._back(line, server)
        if any(word in line.text for word in _SILENT[kind]):
            return self._silent(line, kind, server)
        return False

    def _silent(self, line: Line, kind: str, server: str) -> bool:
        server = server[:80]
        record = self.tally.count(NfsStall, (server,), line, server=server, answering=False, kind=kind)
        record.fields["answering"] = False
        return True

    def _back(self, line: Line, server: str) -> bool:
        known = self.tally.find(NfsStall, server[:80])
        if known:
            known.fields["answering"], known.last = True, line
        return known is not None


def _name(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text[:500])
    return found[1] if found else ""
