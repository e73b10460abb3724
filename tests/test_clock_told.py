"""How far a node's clock is off, in the words of whoever noticed it.

Right values follow from the manuals: ntpdate(8) and sntp(1) print source minus node, chronyc(1) says slow or fast,
munge prints when a credential was made and when it was looked at.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged

GAVE_UP = "torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError\n"
TRACKING = """\
Reference ID    : 0A000001 (ntp1)
Stratum         : 3
System time     : {} seconds {} of NTP time
Leap status     : Normal
"""
SLURMD = (
    "[2026-06-01T10:00:{0:02d}.018] error: Munge decode failed: Expired credential\n"
    "[2026-06-01T10:00:{0:02d}.018] auth/munge: _print_cred: ENCODED: Mon Jun  1 {1}:{0:02d} 2026\n"
    "[2026-06-01T10:00:{0:02d}.018] auth/munge: _print_cred: DECODED: Mon Jun  1 10:00:{0:02d} 2026\n"
)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("both.txt", "2026-06-01T09:44:57.300Z\n" + TRACKING.format("903.881", "slow"), "903.881 s behind"),
        ("grep.txt", "System time     : 903.881204 seconds slow of NTP time\n", "903.881 s behind"),
        ("ntpdate.txt", "server 10.0.0.1, stratum 2, offset 903.881204, delay 0.02571\n", "903.881 s behind"),
        ("sntp.txt", "2026-06-01 10:20:11.123456 (+0000) -61.5 +/- 0.012 ntp1 10.0.0.1 s2\n", "61.500 s ahead"),
        (
            "timesync.txt",
            "       Server: 10.0.0.1 (ntp1)\nPoll interval: 32s\n       Offset: +15min 3.881s\n",
            "903.881 s behind",
        ),
        ("journal.txt", "Jun 01 09:58:05 n-2 chronyd[700]: System clock wrong by -903.881204 seconds\n", "904 s wrong"),
        (
            "messages",
            "Jun  1 09:58:01 n-2 kernel: usb 1-1: new\n"
            "Jun  1 09:58:05 n-2 chronyd[7]: System clock wrong by 31.5 seconds\n",
            "32 s wrong",
        ),
        ("slurmd.log", SLURMD.format(5, "09:50") + SLURMD.format(15, "09:50"), "600.000 s ahead"),
    ],
)
def test_a_clock_that_is_far_off_explains_a_rendezvous_that_failed(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    verdict = judged(tmp_path, {"n-1/rank0.log": GAVE_UP, f"n-2/{name}": text}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject) == ("host.clock_offset", {"node": "n-2"})
    assert says in verdict.hypothesis.says


@pytest.mark.parametrize(
    "files",
    [
        # credentials that waited in a queue for different times tell of no clock
        {"n-2/slurmd.log": SLURMD.format(5, "09:50") + SLURMD.format(15, "09:41")},
        {"n-2/journal.txt": "Jun 01 09:58:05 n-2 chronyd[700]: System clock wrong by 1.2 seconds\n"},
        # a correction from before the job began
        {"n-2/journal.txt": "May 01 09:58:05 n-2 chronyd[700]: System clock wrong by 903.2 seconds\n"},
        {"n-2/both.txt": "2026-06-01T10:00:00.300Z\n" + TRACKING.format("0.000003", "slow")},
    ],
)
def test_a_clock_that_is_or_was_well_in_time_is_not_blamed(tmp_path: Path, files: dict[str, str]) -> None:
    began = "".join(f"2026-06-01 09:5{minute}:00 INFO step={minute} loss=9.1 step_ms=900\n" for minute in (7, 8, 9))
    verdict = judged(tmp_path, {"n-1/rank0.log": began} | files).verdict
    assert verdict.hypothesis.cause in ("none", "unknown")


def test_the_node_that_alone_refuses_is_named_where_the_log_is_nobody_s(tmp_path: Path) -> None:
    srun = "srun: error: Task launch for StepId=8.0 failed on node n-7: Protocol authentication error\n"
    files = {"brought/job.out": srun, "brought/refused.log": SLURMD.format(5, "09:50") + SLURMD.format(15, "09:50")}
    verdict = judged(tmp_path / "evidence", files).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject) == ("host.clock_offset", {"node": "n-7"})
