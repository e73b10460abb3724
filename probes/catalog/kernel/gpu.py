"""Kernel log lines of the NVIDIA driver: Xids, SXids of NVSwitches, GPUs off the bus, nvidia-peermem.

Source   the driver's own wording as recorded (tests/fixtures/host.kernel_log); gpud and NVSentinel for its variants
"""

from __future__ import annotations

import re

from probes.catalog.kernel.events import GpuProblem, OffBus, Peermem, SXid, Xid
from probes.catalog.kernel.lines import Line
from probes.catalog.kernel.tally import BURST_S, Record, Tally

XID13_BURST_S = 15.0  # NVSentinel
# What the driver says without an Xid (open-gpu-kernel-modules: osinit.c, kernel_gsp.c, nv.c): words, what it is.
_PROBLEMS = (
    (
        ("RmInitAdapter failed", "rm_init_adapter failed", "probe routine failed", "RmInitNvDevice failed"),
        "init failed",
    ),
    (("API mismatch",), "version mismatch"),
    (("GSP boot failed", "HeartbeatTimedOut", "GSP task timeout", "GSP crash", "rpcSendMessage failed"), "gsp"),
)
OFF_BUS_LINES = 3  # "The NVIDIA GPU ..." and "fallen off the bus" stand on lines of their own


def bus_id(word: str) -> str:
    """`PCI:0000:38:00`, `00000000:38:00.0`, `0018:01:00` as dddd:bb:dd; "" when it is none."""
    parts = word.strip().removeprefix("PCI:").partition(" ")[0].partition(".")[0].lower().split(":")
    if len(parts) == 2:
        parts.insert(0, "0")
    if len(parts) != 3 or not all(0 < len(part) <= 8 and set(part) <= set("0123456789abcdef") for part in parts):
        return ""
    domain, bus, device = (int(part, 16) for part in parts)
    return f"{domain:04x}:{bus:02x}:{device:02x}" if domain < 65536 and bus < 256 and device < 32 else ""


def number(text: str, most: int = 10) -> int | None:
    """The decimal number at the start of a text, or None."""
    digits = len(text[: most + 1]) - len(text[: most + 1].lstrip("0123456789"))
    return int(text[:digits]) if 0 < digits <= most else None


# kernel/module/version.c and main.c: it was built against another ib_core than the one that is loaded
_NOT_LOADED = re.compile(r"disagrees about version of symbol|Unknown symbol|could not insert|[Vv]ersion magic")


class GpuLines:
    """Reads one line after another; keeps the last "The NVIDIA GPU ..." for the line that follows it."""

    def __init__(self, tally: Tally):
        self.tally = tally
        self.named = ""
        self.named_left = 0

    def take(self, line: Line) -> bool:
        """True when the line was one of these."""
        text = line.text
        if "NVRM" in text:
            return self._nvrm(line)
        if "SXid (" in text:
            return self._sxid(line)
        if ("peermem" in text or "nv_peer_mem" in text) and _NOT_LOADED.search(text):
            self.tally.count(Peermem, (True,), line, refused=True)
            return True
        if "nvidia-peermem" in text and "ERROR" in text:
            self.tally.count(Peermem, (), line)
            return True
        return False

    def _nvrm(self, line: Line) -> bool:
        text = line.text
        if "Xid (" in text:
            return self._xid(line)
        self.named_left -= 1
        if "The NVIDIA GPU " in text:
            self.named, self.named_left = bus_id(text.partition("The NVIDIA GPU ")[2]), OFF_BUS_LINES
        if "fallen off" not in text or " bus" not in text:
            return self._problem(line)
        after = text.partition("NVRM: GPU ")[2].removeprefix("at ")
        bus = bus_id(after.partition(" ")[0].rstrip(":")) or (self.named if self.named_left >= 0 else "")
        if bus:
            self.tally.count(OffBus, (bus,), line, bus_id=bus)
        return bool(bus)

    def _problem(self, line: Line) -> bool:
        """`NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x24:0x65:1424)`, and what else comes without a number."""
        what = next((what for words, what in _PROBLEMS if any(word in line.text for word in words)), "")
        if not what:
            return False
        after = line.text.partition("GPU ")[2].removeprefix("at ")
        bus = bus_id(after.partition(" ")[0].rstrip(":"))
        self.tally.count(GpuProblem, ("nvidia", bus, what), line, bus_id=bus, vendor="nvidia", what=what)
        return True

    def _xid(self, line: Line) -> bool:
        """`NVRM: Xid (PCI:0000:38:00): 13, pid=1, name=python3, text`; MIG puts ` GPU-I:05` after the bus id."""
        where, _, rest = line.text.partition("Xid (")[2].partition("): ")
        bus, code = bus_id(where), number(rest, 4)
        if not bus or code is None:
            return False
        fields = {"bus_id": bus, "xid": code, "pid": None, "process": "", "pids": (), "caused_by": None}
        fields |= {"verdict": "", "fatal": None, "link": None, "subcodes": ()}
        burst_s = XID13_BURST_S if code == 13 else BURST_S
        record = self.tally.count(Xid, (bus, code), line, burst_s, **fields)
        self._process(record, rest)
        if "caused by previous Xid " in rest:
            record.fields["caused_by"] = number(rest.partition("caused by previous Xid ")[2], 4)
        if code == 154 and "(" in rest:
            record.fields["verdict"] = rest.rpartition("(")[2].partition(")")[0][:60]
        if 144 <= code <= 150:
            _nvlink5(record, rest)
        return True

    def _process(self, record: Record, rest: str) -> None:
        pid = number(rest.partition("pid=")[2])
        if pid is None:  # pid='<unknown>'
            return
        record.add("pids", pid)
        if record.fields["pid"] is None:
            record.fields["pid"] = pid
            record.fields["process"] = rest.partition("name=")[2].partition(", ")[0][:32]

    def _sxid(self, line: Line) -> bool:
        """`SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 text`, beside a Severity and a Data line."""
        where, _, rest = line.text.partition("SXid (")[2].partition("): ")
        bus, code = bus_id(where), number(rest, 6)
        if not bus or code is None:
            return False
        what = rest.partition(", ")[2]
        record = self.tally.note(SXid, (bus, code), line, bus_id=bus, sxid=code, fatal=None, links=())
        if what.startswith(("Fatal", "Non-fatal")):
            record.count += 1
            record.fields["fatal"] = what.startswith("Fatal") or record.fields["fatal"] is True
            link = number(what.partition("Link ")[2], 3)
            if link is not None:
                record.add("links", link)
        return True


def _nvlink5(record: Record, rest: str) -> None:
    """`149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 ...)`."""
    words = rest.partition(", ")[2].partition(" (")
    if " Fatal " in words[0] + " ":
        record.fields["fatal"] = True
    elif " Nonfatal " in words[0] + " " and record.fields["fatal"] is None:
        record.fields["fatal"] = False
    if record.fields["link"] is None:
        record.fields["link"] = number(words[0].rpartition("Link ")[2], 3)
    try:
        info = int(words[2].partition(" ")[0].rstrip(")")[:10], 16)
    except ValueError:
        return
    record.add("subcodes", (info >> 20) & 0x3F)
