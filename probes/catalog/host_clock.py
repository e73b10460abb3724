"""How far is this node's clock from ours, and is its time service in order?

Source   eight exchanges on the open SSH channel (the node's time against ours before and after, as in NTP, RFC 5905);
         chronyc(1) tracking, else ntpq(8) -c rv, else timedatectl(1) show; adjtimex(2) status of the kernel
Units    seconds; a positive offset means that the node is ahead of us; UTC
Shape    Clock: offset and its bound (the true offset lies within offset +/- bound), and the time service's own view
Errors   ParseError when a line of the exchange is not three numbers
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from probes.core import Finding, ParseError, Probe, sections
from probes.runner import isolate, sh, which

# torch's dynamic rendezvous compares peers' heartbeats with its own clock: 5 s x 3 missed (keep_alive_interval and
# keep_alive_max_attempt of torch.distributed.elastic). Munge and Kerberos refuse tickets at 300 s.
ELASTIC_S = 15.0
WARN_S = 1.0


@dataclass(frozen=True, slots=True)
class Clock:
    offset_s: float | None  # None: the exchange gave nothing (a capture made by hand)
    bound_s: float | None
    round_trip_s: float | None  # the shortest of the exchanges
    service: str  # "chrony", "ntpd", "timesyncd" or ""
    synchronised: bool | None  # None: nothing on the node says so
    service_offset_s: float | None  # what the service believes, positive when the node is ahead of its source
    # The node's own time as a tool printed it: nodes that were asked together differ by it. Below a day where only the
    # time of the day was printed.
    told_at: float | None = None


def _collect() -> Mapping[str, str]:
    import functools

    def printed(argv: list[str]) -> str:
        status, out, _ = sh(argv)
        return out if status == 0 else ""

    parts = {}
    try:
        import ctypes

        # struct timex, adjtimex(2): modes 0 only reads; the return value 5 is TIME_ERROR, not synchronised
        timex = (ctypes.c_ubyte * 256)()
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(timex))
        parts["adjtimex"] = f"state {state}"
    except (ImportError, OSError, AttributeError):
        pass
    for name, argv in (
        ("chronyc -n tracking", ["chronyc", "-n", "tracking"]),
        ("ntpq -n -c rv", ["ntpq", "-n", "-c", "rv"]),
        ("timedatectl show", ["timedatectl", "show"]),
    ):
        if which(argv[0]):
            # Apart: a service that hangs (timedatectl waits 25 s for a stuck D-Bus) must not cost the measured offset.
            # 1 s for each: together they end within the probe's time.
            (answer,) = isolate([(name, functools.partial(printed, argv))], 1.0)
            if answer["outcome"] == "ok" and answer["text"].strip():
                parts[name] = answer["text"]
                break
    return parts or {"adjtimex": ""}


def parse(text: str) -> Clock:
    """Text of the sections above into a Clock."""
    parts = sections(text)
    offset = bound = trip = None
    if parts.get("golden15/pings"):
        offset, bound, trip = _offset(parts["golden15/pings"])
    service, synchronised, believed = service_of(parts)
    return Clock(offset, bound, trip, service, synchronised, believed)


def _offset(text: str) -> tuple[float, float, float]:
    """Each exchange says there - answered <= offset <= there - asked. All of them hold, so they are intersected."""
    low, high, trip = float("-inf"), float("inf"), float("inf")
    best = (0.0, float("inf"))
    for line in text.splitlines():
        try:
            asked, there, answered = (float(word) for word in line.split())
        except ValueError:
            raise ParseError(f"clock exchange: expected three times in seconds, found {line[:80]!r}") from None
        if not all(map(math.isfinite, (asked, there, answered))):
            raise ParseError(f"clock exchange: expected three times in seconds, found {line[:80]!r}")
        if answered < asked:
            continue  # our own clock was stepped back during this exchange
        low, high = max(low, there - answered), min(high, there - asked)
        trip = min(trip, answered - asked)
        if answered - asked < best[1]:
            best = (there - (asked + answered) / 2, answered - asked)
    if trip == float("inf"):
        raise ParseError("clock exchange: no usable line; our own clock may have been stepped")
    if low > high:  # a clock was stepped or slewed between exchanges: the shortest exchange alone
        return best[0], best[1] / 2, trip
    return (low + high) / 2, (high - low) / 2, trip


def service_of(parts: Mapping[str, str]) -> tuple[str, bool | None, float | None]:
    """(service, whether it is in step, what it believes the offset to be): None where it does not say."""
    if chrony := parts.get("chronyc -n tracking"):
        lines = dict(line.split(":", 1) for line in chrony.splitlines() if ":" in line)
        pairs = {key.strip(): value.strip() for key, value in lines.items()}
        if "Leap status" not in pairs:
            raise ParseError("chronyc tracking: expected a line 'Leap status', found none")
        # 127.127.1.1 is no source: with `local` in chrony.conf a node that lost all sources follows itself.
        alone = pairs.get("Reference ID", "").startswith("7F7F01")
        synchronised = pairs["Leap status"] != "Not synchronised" and not alone
        return "chrony", synchronised, _chrony_offset(pairs.get("System time", "")) if synchronised else None
    if ntp := parts.get("ntpq -n -c rv"):
        pairs = dict(word.strip().split("=", 1) for word in ntp.replace("\n", ",").split(",") if "=" in word)
        offset_ms = _float(pairs.get("offset", ""))
        # ntpd's offset is source minus node, in ms (ntpq(8)); turned here so that positive means the node is ahead.
        return "ntpd", "leap_alarm" not in ntp, None if offset_ms is None else -offset_ms / 1000
    if timed := parts.get("timedatectl show"):
        pairs = dict(line.split("=", 1) for line in timed.splitlines() if "=" in line)
        if "NTPSynchronized" in pairs:
            return "timesyncd", pairs["NTPSynchronized"] == "yes", None
    if len(state := parts.get("adjtimex", "").split()) > 1 and state[0] == "state":
        return "", state[1] != "5", None
    return "", None, None


def _chrony_offset(text: str) -> float | None:
    """ "0.000000052 seconds slow of NTP time": slow is behind. The CSV form has no word for the direction."""
    words = text.split()
    if len(words) < 3 or words[1] != "seconds" or words[2] not in ("slow", "fast"):
        return None
    seconds = _float(words[0])
    return None if seconds is None else -seconds if words[2] == "slow" else seconds


def _float(word: str) -> float | None:
    try:
        found = float(word)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def findings(clock: Clock) -> Iterator[Finding]:
    """Offset past what breaks elastic rendezvous, past what confuses the order of evidence; service not in order."""
    if clock.offset_s is not None and clock.bound_s is not None:
        certain = max(0.0, abs(clock.offset_s) - clock.bound_s)
        where = "ahead of" if clock.offset_s > 0 else "behind"
        says = f"clock is {abs(clock.offset_s):.3f} s {where} ours (+/- {clock.bound_s:.3f} s)"
        if certain > ELASTIC_S:
            yield Finding("host.clock_offset", "bad", f"{says}: elastic rendezvous fails beyond {ELASTIC_S:g} s")
        elif certain > WARN_S:
            yield Finding("host.clock_offset", "warn", f"{says}: times in its logs are corrected by this")
    elif clock.service_offset_s is not None and abs(clock.service_offset_s) > WARN_S:
        where = "ahead of" if clock.service_offset_s > 0 else "behind"
        says = f"clock is {abs(clock.service_offset_s):.3f} s {where} its source, says {clock.service}"
        far = abs(clock.service_offset_s) > ELASTIC_S
        more = f": elastic rendezvous fails beyond {ELASTIC_S:g} s" if far else ""
        yield Finding("host.clock_offset", "bad" if far else "warn", says + more)
    if clock.synchronised is False:
        says = "the node's clock is not synchronised to any time source"
        if clock.offset_s is not None and clock.bound_s is not None and abs(clock.offset_s) + clock.bound_s <= WARN_S:
            says += f"; it is only {abs(clock.offset_s):.3f} s from ours now, which harms nothing yet"
        yield Finding("host.clock_unsynchronised", "warn", says)


PROBE = Probe(
    "host.clock",
    "How far is this node's clock from ours, and is its time service in order?",
    parse,
    findings,
    collect=_collect,
    by_hand="chronyc -n tracking || ntpq -n -c rv || timedatectl show",
    timeout_s=4.0,
    wants_pings=True,
    cost="17 ms",
)
