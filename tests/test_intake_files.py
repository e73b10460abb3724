"""The files door meets what strangers send: archives, damage, hostile and foreign files, and whole nodes."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from probes import intake
from probes.core import Capture
from probes.intake import files, items
from probes.intake import logs as logs_of
from probes.transport import replay
from tests.test_intake import HANGS, dumps, logs, of, stacks, unread

FIXTURES = HANGS.parent


class Owned:
    """A pickle that would make a file where it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.system, (f"touch {self.path}",)


# Archives


def test_members_of_archives_are_read_as_files_are(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    case = HANGS / "skip_same"
    with tarfile.open(tmp_path / "in" / "a.tar.gz", "w:gz") as tar:
        for path in case.glob("ws_fr*"):
            tar.add(path, f"run/{path.name}")
    with zipfile.ZipFile(tmp_path / "in" / "b.zip", "w") as archive:
        for path in case.glob("pyspy_nb*"):
            archive.write(path, f"stacks/{path.name}")
    for path in case.glob("rank*_stderr.log"):
        (tmp_path / "in" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    found = intake.read([tmp_path / "in"])
    assert {rank: dump.groups[0].enqueued for rank, dump in dumps(found).items()} == {0: 15, 1: 14, 2: 15}
    assert {one.rank for one in stacks(found)} == {0, 1, 2}
    assert {log.rank for log in logs(found).values()} == {0, 1, 2}
    assert f"{tmp_path}/in/a.tar.gz/run/ws_fr_trace_json_rank1.txt" in [ref for ref, _ in found.readings]


def test_names_and_links_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    log = (HANGS / "skip" / "rank1_stderr.log").read_bytes()
    secret = tmp_path / "secret.log"
    secret.write_bytes(log)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        up = tarfile.TarInfo("../../../tmp/up\x1b[31m_rank1.log")
        up.size = len(log)
        tar.addfile(up, io.BytesIO(log))
        for name in ("/etc/rank3.log", "a/rank1.log", "./a/rank1.log"):
            member = tarfile.TarInfo(name)
            member.size = len(log)
            tar.addfile(member, io.BytesIO(log))
        link = tarfile.TarInfo("rank2.log")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(link)
    before = sorted(tmp_path.rglob("*"))
    found = intake.read([tmp_path / "a.tar"])
    assert [log.rank for log in logs(found).values()] == [1]
    why = {one.file.removeprefix(f"{tmp_path}/a.tar/"): one.why for one in found.unread}
    assert why["rank2.log"] == "a link or device in an archive, which is not followed"
    assert "leads out" in next(said for file, said in why.items() if file.startswith("../../../tmp/up"))
    assert "absolute path" in why["/etc/rank3.log"]
    assert "second member" in why["./a/rank1.log"]
    assert "\x1b" not in "".join(one.file for one in found.unread)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_unpacks_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "FILE_BYTES", 1_000_000)
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(b"[rank0]: line\n" * 10_000_000))
    sizes = [(len(item.data), item.cut) for item in files.walk([tmp_path]) if isinstance(item, items.Item)]
    assert sizes == [(1_000_001, True)]


def test_a_log_that_is_cut_off_in_its_archive_still_tells(tmp_path: Path) -> None:
    lines = "".join(
        f"[rank1]:[W1129 14:15:52.{n:09} WorkerServer.cpp:113] line {n * 7919 % 9973}\n" for n in range(5000)
    )
    packed = gzip.compress(b"[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n" + lines.encode())
    (tmp_path / "rank1.log.gz").write_bytes(packed[: len(packed) // 2])
    found = intake.read([tmp_path])
    (log,) = logs(found).values()
    assert (log.rank, "cuda_error" in {event.kind for event in log.events}) == (1, True)
    assert "damaged or cut off" in unread(found)["rank1.log.gz"]


def test_of_a_very_long_log_the_beginning_and_the_end_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs_of, "FIRST_BYTES", 100_000)
    monkeypatch.setattr(logs_of, "LAST_BYTES", 100_000)
    middle = "".join(f"[rank1]: step {n} of the middle\n" for n in range(20_000))
    (tmp_path / "x.log").write_text(middle + "[rank1]: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (log,) = logs(intake.read([tmp_path])).values()
    assert "cuda_error" in {event.kind for event in log.events}


def test_an_archive_with_too_many_members_is_not_read_to_its_end(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for number in range(50):
            archive.writestr(f"{number}.txt", "x")
    found = list(files.walk([tmp_path], items.Budget(files=10)))
    assert len([one for one in found if isinstance(one, items.Item)]) == 10
    assert "there is too much in it" in [one.why for one in found if isinstance(one, items.Unread)][0]


def test_headers_that_ask_for_memory_are_refused(tmp_path: Path) -> None:
    """A name of a gigabyte packs into a megabyte, and tarfile reads names whole."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    (tmp_path / "name.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + b"a" * 4096)
    header.type = tarfile.XHDTYPE
    (tmp_path / "pax.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + b"a" * 4096)
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("rank1.log", "[rank1]: line")
    found = unread(intake.read([tmp_path]))
    assert "a header of 1073741824 bytes" in found["name.tar"]
    assert "a header of 1073741824 bytes" in found["pax.tar"]
    assert "compressed in a way" in found["rank1.log"]


def test_archives_in_archives_end(tmp_path: Path) -> None:
    data = (HANGS / "skip" / "rank1_stderr.log").read_bytes()
    for _ in range(6):
        data = gzip.compress(data)
    (tmp_path / "rank1.log.gz").write_bytes(data)
    found = intake.read([tmp_path])
    assert found.readings == ()
    assert "archives within archives" in unread(found)["rank1.log.gz"]


def test_a_damaged_archive_gives_what_was_before_the_damage(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for rank in (0, 1, 2):
            tar.add(HANGS / "ddp_unused" / f"fr_exit_rank_{rank}", f"fr_exit_rank_{rank}")
    data = packed.getvalue()
    (tmp_path / "a.tgz").write_bytes(data[: len(data) * 9 // 10])
    found = intake.read([tmp_path])
    assert 0 in dumps(found)
    assert any("damaged or cut off" in one.why for one in found.unread)


# Dumps that are none, or worse


def test_hostile_foreign_and_cut_off_dumps_are_said_and_cost_nobody_else(tmp_path: Path) -> None:
    for path in (HANGS / "skip_same").glob("ws_fr*"):
        shutil.copy(path, tmp_path)
    good = (HANGS / "ddp_unused" / "fr_exit_rank_0").read_bytes()
    (tmp_path / "nccl_trace_rank_3").write_bytes(pickle.dumps(Owned(tmp_path / "owned"), 2))
    (tmp_path / "nccl_trace_rank_4").write_bytes(good[: len(good) // 2])
    (tmp_path / "nccl_trace_rank_5").write_bytes(pickle.dumps({"weights": [1.0] * 100}, 4))
    (tmp_path / "nccl_trace_rank_6").write_bytes(b"\x80\x02}r\x00\x00\x00\x08.")  # asks for a memo of a gigabyte
    (tmp_path / "nccl_trace_rank_7").write_bytes(b"")
    (tmp_path / "rank_8.json").write_text('{"version": "2.10", "entries": [{"pg_id": 0')
    found = intake.read([tmp_path])
    assert not (tmp_path / "owned").exists()
    assert set(dumps(found)) == {0, 1, 2}
    said = unread(found)
    assert "posix.system" in said["nccl_trace_rank_3"]
    assert "nothing of it was run" in said["nccl_trace_rank_3"]
    assert "ends too early" in said["nccl_trace_rank_4"]
    assert "no flight-recorder dump" in said["nccl_trace_rank_5"]
    assert "more memory" in said["nccl_trace_rank_6"]
    assert said["nccl_trace_rank_7"] == "it is empty"
    assert "cannot be decoded" in said["rank_8.json"] or "too early" in said["rank_8.json"]


def test_a_rank_whose_only_dump_is_not_read_is_known_to_be_there(tmp_path: Path) -> None:
    for rank in (0, 2):
        shutil.copy(HANGS / "sigstop" / f"ws_fr_trace_json_rank{rank}.txt", tmp_path)
    (tmp_path / "fr_rank1.pickle").write_bytes(b"\x80\x02}q\x00(")
    found = intake.read([tmp_path])
    missing = [one for _, reading in of(found, "rank.flight_recorder") for one in reading.facts.missing]
    assert [(one.rank, one.refused) for one in missing] == [(1, True)]


def test_a_rank_without_a_dump_is_said_and_placed_where_its_neighbours_are(tmp_path: Path) -> None:
    """Four ranks on two nodes: ranks 2 and 3 are the second node's, so the one without files is there too."""
    for node, ranks in (("gpu-000", (0, 1)), ("gpu-001", (3,))):
        (tmp_path / node).mkdir()
        for rank in ranks:
            config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
            entry = {"pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 7, "record_id": 7,
                "profiling_name": "nccl:all_reduce", "state": "scheduled", "retired": False, "frames": []}  # fmt: skip
            whole = {"version": "2.10", "pg_config": config, "entries": [entry]}
            (tmp_path / node / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(whole, 2))
    found = intake.read([tmp_path])
    ((ref, reading),) = (one for one in of(found, "rank.flight_recorder") if one[1].facts.missing)
    assert [(one.rank, one.why, one.refused) for one in reading.facts.missing] == [
        (2, "none is among the files", False)
    ]
    assert (ref, reading.capture.node) == (str(tmp_path / "gpu-001"), "gpu-001")


def test_a_dump_of_the_oldest_form_is_read(tmp_path: Path) -> None:
    """torch 2.1 and 2.2 wrote a bare list."""
    for rank, seqs in ((0, (1, 2, 3)), (1, (1, 2))):
        rows = [
            {"pg_id": 0, "seq_id": seq, "profiling_name": "nccl:all_reduce", "input_sizes": [[4]],
             "output_sizes": [[4]], "state": "completed" if seq < 3 else "scheduled", "frames": []}
            for seq in seqs
        ]  # fmt: skip
        (tmp_path / f"trace_{rank}.json").write_text(json.dumps(rows))
        (tmp_path / f"rank{rank}.pkl").write_bytes(pickle.dumps(rows, 2))
    found = dumps(intake.read([tmp_path]))
    assert {rank: (dump.schema, dump.groups[0].enqueued) for rank, dump in found.items()} == {
        0: ("list", 3),
        1: ("list", 2),
    }


# Odd things in a folder


def test_what_is_no_file_is_said_and_does_not_make_us_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "core").write_bytes(b"\x7fELF" + bytes(4096))
    assert unread(intake.read([tmp_path])) == {
        "pipe": "not a regular file", "link": "a link, which is not followed", "loop": "a link, which is not followed",
        "core": "binary, of no known form"}  # fmt: skip


def test_a_path_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(intake.NoSuchPath, match="no-such: No such file"):
        intake.read([HANGS / "skip", tmp_path / "no-such"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("it hung again, see the wiki\n", "no line in it has a known form"),
        ("CA 'mlx5_0'\n\tCA type: MT4129\n", "ibstat"),
        ('{"schemaVersion": 1, "traceEvents": []}', "profiler"),
        ('{"a": 1}', "JSON of no known form"),
        ("#404\nnot found", "failed, status 404"),
        ("   \n\n", "it is empty"),
        ("step 3 of the recipe: mix until NaN bread\n", "no line in it has a known form"),
    ],
)
def test_what_is_no_evidence_says_why(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x.txt").write_text(text)
    found = intake.read([tmp_path])
    assert found.readings == ()
    assert why in unread(found)["x.txt"]


def test_lines_made_to_be_slow_are_not(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("[" * 200_000, "==> " * 50_000, "[rank0]" * 100_000, "Process 1: " * 50_000, "pid=" * 100_000 + "x",
         "[rank1] " + "pid= " * 100_000, "kern :" * 100_000, "A=" * 200_000, "(most recent call first):\n" * 20_000)
    ):  # fmt: skip
        (tmp_path / f"{number}_rank{number}.log").write_text(text)
    intake.read([tmp_path])  # within pytest's time limit of a test


# Nodes as a whole


def test_a_kernel_log_names_its_node_or_its_folder_does(tmp_path: Path) -> None:
    journal = "Nov 29 14:16:00 lab-b kernel: NVRM: Xid (PCI:0000:38:00): 79, GPU has fallen off the bus.\n" * 3
    (tmp_path / "x.txt").write_text(journal)
    for node in ("lab-c1", "lab-c2"):
        (tmp_path / node).mkdir()
        (tmp_path / node / "dmesg").write_text(
            "[ 12.345678] NVRM: Xid (PCI:0000:38:00): 79, GPU has fallen off the bus.\n"
        )
    found = dict(of(intake.read([tmp_path]), "host.kernel_log"))
    assert {Path(ref).relative_to(tmp_path).as_posix(): reading.capture.node for ref, reading in found.items()} == {
        "x.txt": "lab-b", "lab-c1/dmesg": "lab-c1", "lab-c2/dmesg": "lab-c2"}  # fmt: skip
    assert {f.code for reading in found.values() for f in reading.findings} == {"kernel.xid"}


def test_recorded_outputs_of_tools_are_known_by_their_content(tmp_path: Path) -> None:
    wanted = {
        "a.txt": ("gpu.state", "gpu.state/h100_590_idle.out"),
        "b.txt": ("host.kernel_log", "host.kernel_log/iso_contained_ecc.out"),
        "c.txt": ("ib.ports", "ib.ports/h100_connectx7.out"),
        "d.txt": ("host.load", "host.load/busy_v2.out"),
        "e.txt": ("host.storage", "host.storage/nfs_silent.out"),
        "f.txt": ("host.clock", "host.clock/chrony_ahead_903s.out"),
    }
    for name, (_, source) in wanted.items():
        shutil.copy(FIXTURES / source, tmp_path / name)
    found = intake.read([tmp_path])
    assert {Path(ref).name: reading.capture.probe for ref, reading in found.readings} == {
        name: probe for name, (probe, _) in wanted.items()
    }
    assert found.unread == ()


def test_saved_captures_are_read_as_they_were_taken(tmp_path: Path) -> None:
    out = (FIXTURES / "host.kernel_log" / "seconds_hardware.out").read_bytes()
    taken = [
        Capture("gpu-001", "host.kernel_log", "ok", out, at=1_795_961_507.0),
        Capture("login1", "host.kernel_log", "denied", why="the kernel log is for root only"),
        Capture("login1", "gpu.state", "ok", b"not what nvidia-smi prints"),
    ]
    replay.save(tmp_path / "saved", taken)
    found = intake.read([tmp_path])
    outcomes = {(r.capture.node, r.capture.probe): r.outcome for _, r in found.readings}
    assert outcomes == {
        ("gpu-001", "host.kernel_log"): "ok", ("login1", "host.kernel_log"): "denied",
        ("login1", "gpu.state"): "failed"}  # fmt: skip
    assert [Path(one.file).name for one in found.unread] == ["gpu.state.out"]
    alone = intake.read([tmp_path / "saved" / "login1"])  # a node's folder by itself still names it
    assert {r.capture.node for _, r in alone.readings} == {"login1"}


def test_a_copy_of_a_sysfs_tree_is_the_ports_of_its_node(tmp_path: Path) -> None:
    port = tmp_path / "gpu-9" / "sys" / "class" / "infiniband" / "mlx5_0" / "ports" / "1"
    port.mkdir(parents=True)
    for name, text in (("state", "1: DOWN"), ("phys_state", "3: Disabled"), ("rate", "400 Gb/sec (4X NDR)"),
        ("link_layer", "InfiniBand")):  # fmt: skip
        (port / name).write_text(text + "\n")
    ((ref, reading),) = intake.read([tmp_path]).readings
    assert (reading.capture.probe, reading.capture.node) == ("ib.ports", "gpu-9")
    assert reading.facts.ports[0].hca == "mlx5_0"


def test_several_files_in_one_as_tail_prints_them_are_each_read(tmp_path: Path) -> None:
    parts = [
        f"==> {rank}/rank{rank}.log <==\n{(HANGS / 'skip' / f'rank{rank}_stderr.log').read_text()}" for rank in range(3)
    ]
    (tmp_path / "all.txt").write_text("\n".join(parts))
    assert sorted(log.rank for log in logs(intake.read([tmp_path])).values()) == [0, 1, 2]
