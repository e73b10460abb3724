"""The files door takes files as people have them: any encoding, pasted together, rotated, packed, named after nodes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from probes import intake
from probes.intake import archives, items, pasted, unpacking
from probes.intake.hosts import node_of_name, of_report
from tests.test_intake import dumps, logs, unread

OOM = "[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
XID = "[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n"
BASE = Path(__file__).parent.parent


def kinds(found: intake.Intake) -> set[str]:
    return {event.kind for log in logs(found).values() for event in log.events}


def kernel_nodes(found: intake.Intake) -> set[str]:
    """Nodes whose kernel log told of an Xid."""
    return {
        reading.capture.node
        for _, reading in found.readings
        if reading.capture.probe == "host.kernel_log" and reading.findings
    }


# Encodings


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252", "latin-1"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_log_is_read_in_whatever_encoding_it_was_saved(tmp_path: Path, encoding: str, end: str) -> None:
    text = ("[rank1]: é à ü: la mémoire\n" * 3 + OOM).replace("\n", end)
    data = text.encode(encoding)
    if encoding in ("utf-16", "utf-32"):
        assert data[:2] == b"\xff\xfe", "with a mark, as PowerShell writes it"
    (tmp_path / "x.log").write_bytes(data)
    (log,) = logs(intake.read([tmp_path])).values()
    assert log.rank == 1
    assert "cuda_error" in {event.kind for event in log.events}


def test_a_dump_of_text_in_utf_16_is_a_dump_too(tmp_path: Path) -> None:
    case = BASE / "tests/fixtures/hangs/loader_slow/ws_fr_trace_json_rank1.txt"
    (tmp_path / "rank1.json").write_bytes(case.read_text().encode("utf-16"))
    assert list(dumps(intake.read([tmp_path]))) == [1]


def test_a_hole_at_the_beginning_of_a_log_is_passed_over(tmp_path: Path) -> None:
    """logrotate's copytruncate below a writer that does not append."""
    (tmp_path / "rank1.log").write_bytes(b"\0" * 300_000 + OOM.encode())
    assert kinds(intake.read([tmp_path])) == {"cuda_error"}


@pytest.mark.parametrize(
    "data",
    [bytes(range(256)) * 400, b"\x7fELF" + b"\1\2" * 900, os.urandom(90_000), b"\xff\xd8\xff\xe0" + b"JFIF" * 99],
)
def test_what_is_binary_is_said_to_be(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.log").write_bytes(data)
    assert "binary" in unread(intake.read([tmp_path]))["x.log"]


# Pasted together


PASTED = {
    "pdsh": f"gpu-017: {XID}gpu-018: [  1.000000] usb 1-1: new device\n",
    "headings": f"===== gpu-017 =====\n{XID}===== gpu-018 =====\n[  1.000000] usb 1-1: new device\n",
    "dshbak": f"{'-' * 16}\ngpu-017\n{'-' * 16}\n{XID}{'-' * 16}\ngpu-[018-019]\n{'-' * 16}\n[  1.000000] usb\n",
    "ansible": f"gpu-017 | CHANGED | rc=0 >>\n{XID}\ngpu-018 | CHANGED | rc=0 >>\n[  1.000000] usb 1-1\n",
    "pssh": f"[1] 12:00:00 [SUCCESS] gpu-017\n{XID}[2] 12:00:00 [SUCCESS] gpu-018\n[  1.000000] usb 1-1\n",
    "prompts": f"[root@gpu-017 ~]# dmesg | tail\n{XID}[root@gpu-017 ~]# uptime\n 12:00 up 3 days\n",
    "other names": f"=== tz-1 ===\n{XID}=== tz-2 ===\n[  1.000000] usb 1-1: new device\n",
    "debian": f"root@gpu-017:~# dmesg\n{XID}root@gpu-017:~# exit\n",
}


@pytest.mark.parametrize("form", PASTED)
def test_output_of_several_nodes_in_one_file_is_given_to_each(tmp_path: Path, form: str) -> None:
    (tmp_path / "all.txt").write_text(PASTED[form])
    found = intake.read([tmp_path])
    node = "tz-1" if form == "other names" else "gpu-017"
    assert kernel_nodes(found) == {node}
    assert all(f"all.txt: {node[:-1]}" in ref for ref, _ in found.readings)


def test_commands_of_one_node_are_taken_apart_and_given_to_it(tmp_path: Path) -> None:
    (tmp_path / "gpu-017").mkdir()
    text = f"$ dmesg -T\n{XID}$ cat train.log\n{OOM}"
    (tmp_path / "gpu-017" / "notes-of-ada.log").write_text(text)
    found = intake.read([tmp_path])
    assert kernel_nodes(found) == {"gpu-017"}
    assert kinds(found) == {"cuda_error"}


@pytest.mark.parametrize("names", [("gpu-017", "gpu-018"), ("tz-1", "tz-2")])
def test_commands_pasted_into_a_file_per_node_belong_to_the_node_that_it_is_called_after(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    for name in names:
        (tmp_path / f"{name}.txt").write_text(f"$ dmesg\n{XID}$ uptime\n 12:00 up 3 days\n")
    assert kernel_nodes(intake.read([tmp_path])) == set(names)


@pytest.mark.parametrize(
    "text",
    [
        "===== Epoch 1 =====\nloss 1\n===== Epoch 2 =====\nloss 2\n",
        "# a comment\nx = 1\n",
        "ValueError: x\nINFO: y\n",
        "gpu-017:1234:1250 [0] NCCL INFO Bootstrap\ngpu-017:1234:1250 [0] NCCL INFO x\n",
        "=== step 1 ===\nloss 1\n=== step 2 ===\nloss 2\n",
        "=== rank0 ===\nloss 1\n=== rank1 ===\nloss 2\n",
        "=====\ntrain.py FAILED\n-----\nFailures:\n",
        "step 1: loss 2\nstep 2: loss 3\n",
    ],
)
def test_a_log_with_headings_of_its_own_stays_one(text: str) -> None:
    assert pasted.parts_of(text) == []


def test_folded_nodes_of_a_heading_all_get_it() -> None:
    (part,) = pasted.parts_of("-----\ngpu-[009-011,020] (4)\n-----\nhello\n")
    assert part.nodes == ("gpu-009", "gpu-010", "gpu-011", "gpu-020")
    assert pasted.parts_of("-----\ngpu-[1-999999999]\n-----\nhello\n") == []


# Names


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("gpu-017.dmesg.txt", "gpu-017"),
        ("dmesg_gpu-017.log", "gpu-017"),
        ("dmesg-gpu-017.log", "gpu-017"),
        ("nvidia-smi-q.node3.txt", "node3"),
        ("ip-10-0-0-4.log", "ip-10-0-0-4"),
        ("rank0_gpu3.log", ""),
        ("gpu_0_stack.txt", ""),
        ("dmesg.txt", ""),
        ("dmesg-erst-7365523012345678901", ""),  # what pstore keeps of a kernel that failed, and where it kept it
        ("dmesg-efi-170021190301001", ""),
        ("console-ramoops-0", ""),
    ],
)
def test_a_node_in_the_name_of_a_file(name: str, node: str) -> None:
    assert node_of_name(PurePosixPath(name), []) == node


def test_a_kernel_log_belongs_to_the_node_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "gpu-017.dmesg.txt").write_text(XID)
    (tmp_path / "dmesg_lab7.log").write_text(XID)
    (tmp_path / "lab7").mkdir()
    (tmp_path / "lab7" / "messages").write_text(f"Jun  1 12:00:00 lab7 kernel: {XID}")
    assert kernel_nodes(intake.read([tmp_path])) == {"gpu-017", "lab7"}


def test_files_beside_each_other_that_differ_in_a_number_are_of_nodes(tmp_path: Path) -> None:
    (tmp_path / "tz-1_dmesg.txt").write_text(XID)
    (tmp_path / "tz-2_dmesg.txt").write_text(XID)
    assert kernel_nodes(intake.read([tmp_path])) == {"tz-1", "tz-2"}


def test_the_node_of_a_report_of_sos(tmp_path: Path) -> None:
    folder = tmp_path / "sosreport-lab7-0042-2026-06-01-abcdefg" / "sos_commands" / "kernel"
    folder.mkdir(parents=True)
    (folder / "dmesg").write_text(XID)
    assert kernel_nodes(intake.read([tmp_path])) == {"lab7"}
    assert of_report("sosreport-gpu-017-2026-06-01-abcdefg") == "gpu-017"
    assert of_report("sosreport") == ""


# Rotated


def test_rotated_parts_are_one_log_the_oldest_first(tmp_path: Path) -> None:
    (tmp_path / "rank1.log").write_text("[rank1]: step 30/100\n" + OOM)
    (tmp_path / "rank1.log.1").write_text(
        "[rank1]: step 20/100\n[rank1]: Watchdog caught collective operation timeout\n"
    )
    (tmp_path / "rank1.log.2.gz").write_bytes(gzip.compress(b"[rank1]: ValueError: an old one\n"))
    (tmp_path / "rank1.log.10.gz").write_bytes(gzip.compress(b"[rank1]: KeyError: the oldest\n"))
    found = intake.read([tmp_path])
    ((ref, log),) = logs(found).items()
    assert (log.rank, log.size_bytes is not None) == (1, True)
    lines = [event.line for event in log.events]
    assert lines == sorted(line for line in lines if line is not None)
    assert found.readings[0][0].endswith("rank1.log")


def test_numbers_that_may_be_ranks_are_not_taken_for_parts(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"job.out.{rank}").write_text(OOM.replace("rank1", f"rank{rank}"))
    assert {log.rank for log in logs(intake.read([tmp_path])).values()} == {0, 1}


# Packed


def test_xz_and_bz2_and_several_streams_are_unpacked(tmp_path: Path) -> None:
    (tmp_path / "rank1.log.xz").write_bytes(lzma.compress(b"[rank1]: a\n") + lzma.compress(OOM.encode()))
    (tmp_path / "rank2.log.bz2").write_bytes(bz2.compress(OOM.replace("1", "2").encode()))
    with tarfile.open(tmp_path / "c.tar.xz", "w:xz") as tar:
        member = tarfile.TarInfo("rank3.log")
        data = OOM.replace("rank1", "rank3").encode()
        member.size, member.mtime = len(data), 1_700_000_000
        tar.addfile(member, io.BytesIO(data))
    found = intake.read([tmp_path])
    assert {log.rank for log in logs(found).values()} == {1, 2, 3}
    cut = lzma.compress(os.urandom(99_999))[:50_000]
    (tmp_path / "cut.xz").write_bytes(cut)
    assert "cut.xz" in unread(intake.read([tmp_path]))


def test_a_bomb_is_refused_and_the_rest_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MUCH", 1_000_000)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"[rank2]: line\n" * 5_000_000))
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("big.log", b"\n" * 50_000_000)
    (tmp_path / "rank1.log").write_text(OOM)
    found = intake.read([tmp_path])
    assert "refused: it unpacks" in unread(found)["bomb.zip"]
    said = [one.why for one in found.unread if one.file.endswith("bomb.gz")]
    assert any("refused: it unpacks" in one for one in said)
    assert kinds(found) == {"cuda_error"}


def test_links_passwords_and_huge_lists_in_a_zip_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("rank2.log")
        link.external_attr, link.create_system = 0o120777 << 16, 3
        archive.writestr(link, "/etc/passwd")
        archive.writestr("rank1.log", OOM)
    data = bytearray((tmp_path / "a.zip").read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 8] |= 1
    (tmp_path / "b.zip").write_bytes(bytes(data))
    found = intake.read([tmp_path])
    why = {one.file: one.why for one in found.unread}
    assert [said for file, said in why.items() if file.endswith("a.zip/rank2.log")] == [
        "a link or device in an archive, which is not followed"
    ]
    assert any("password" in said for said in why.values())
    assert kinds(found) == {"cuda_error"}
    monkeypatch.setattr(archives, "MEMBERS", 1)
    assert "at most 1 are unpacked" in unread(intake.read([tmp_path / "a.zip"]))["a.zip"]


# How much memory


RUN = """
import resource, sys
from pathlib import Path
from probes import intake
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = intake.read([Path(sys.argv[1])])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
kinds = sorted({e.kind for _, r in found.readings for log in getattr(r.facts, "logs", ()) for e in log.events})
print((peak - before) // 1024, *kinds)
"""


def grown(path: Path) -> tuple[int, list[str]]:
    """(MiB of memory that reading it took, kinds of events)."""
    done = subprocess.run([sys.executable, "-c", RUN, str(path)], cwd=BASE, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    size, *told = done.stdout.split()
    return int(size), told


def test_a_long_line_and_a_long_log_take_little_memory_and_still_tell(tmp_path: Path) -> None:
    """Measured: 1 GB of each takes 88 MiB in all, 40 more than none. Bounds are generous."""
    with (tmp_path / "line.log").open("wb") as handle:
        handle.write(OOM.encode())
        for _ in range(300):
            handle.write(b"x" * 1_048_576)
        handle.write(b"\n[rank1]: ValueError: behind the line\n")
    size, told = grown(tmp_path / "line.log")
    assert size < 150
    assert "cuda_error" in told
    noise = textwrap.dedent("2026-06-01 12:00:00 some words that tell nothing\n").encode() * 20_000
    with (tmp_path / "middle.log").open("wb") as handle:
        for part in range(40):
            handle.write(OOM.encode() if part == 20 else noise)
    size, told = grown(tmp_path / "middle.log")
    assert size < 150
    assert "cuda_error" in told, "from the middle, which is not kept"


def test_a_line_without_end_is_passed_on_in_part() -> None:
    stream = io.BytesIO(b"a\n" + b"b" * 1_000_000 + b"\nc\n")
    item = items.Item("x", PurePosixPath("x"), stream.read(10), stream=stream)
    rest = b"".join(item.blocks())
    assert len(rest) < 2 * items.LONG_LINE + items.HEAD * 5
    assert rest.endswith(b"\nc\n")
    assert item.cut_lines == 1


def test_a_line_without_end_is_said_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "rank1.log").write_text("a\n" * 600_000 + "x" * 900_000 + "\n" + OOM)
    found = intake.read([tmp_path])
    assert kinds(found) == {"cuda_error"}
    assert "were cut off" in unread(found)["rank1.log"]


def test_the_second_run_of_a_command_in_one_session_is_no_rank(tmp_path: Path) -> None:
    stack = (
        'Process {0}: python t.py\nPython v3.11.7 (python3)\n\nThread {0} (idle): "MainThread"\n    <module> (t.py:2)\n'
    )
    runs = "".join(f"$ py-spy dump -p {pid}\n{stack.format(pid)}" for pid in (8101, 8102, 8101, 8102))
    (tmp_path / "session.txt").write_text(runs)
    told = [one.rank for _, reading in intake.read([tmp_path]).readings if (facts := reading.facts)
        for one in getattr(facts, "processes", ())]  # fmt: skip
    assert told and set(told) == {None}
