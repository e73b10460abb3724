"""Whose a file is when another file beside it says it: `hostname`, `uname -a`, a report's folder, a job of one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import bring, job_log

OFF = "[Wed Apr 22 07:58:19 2026] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
UNAME = "Linux {} 6.8.0-45-generic #45-Ubuntu SMP PREEMPT_DYNAMIC x86_64 x86_64 x86_64 GNU/Linux\n"


def nodes(folder: Path, files: dict[str, str]) -> set[str]:
    return {one.capture.node for _, one in bring(folder, files).readings if one.capture.probe == "host.kernel_log"}


@pytest.mark.parametrize(
    ("files", "node"),
    [
        ({"hostname": "wolf\n", "dmesg.txt": OFF}, "wolf"),
        ({"hostname.txt": "wolf.cluster.example.org\n", "var/log/dmesg": OFF}, "wolf"),
        ({"uname-a.txt": UNAME.format("wolf"), "kernel/dmesg-T.txt": OFF}, "wolf"),
        ({"all.txt": f"$ hostname\nwolf\n$ dmesg -T\n{OFF}"}, "wolf"),
        ({"box7/hostname": "wolf\n", "box7/dmesg": OFF, "box8/hostname": "fox\n", "box8/dmesg": OFF}, "wolf fox"),
        ({"node1/hostname": "wolf\n", "node1/dmesg": OFF}, "wolf"),
        ({"sosreport-wolf-12345-2026-04-22-abcdefg/sos_commands/kernel/dmesg": OFF}, "wolf"),
        ({"sosreport-wolf-2026-04-22/sos_commands/kernel/dmesg": OFF}, "wolf"),
        ({"sosreport-gpu-42-0422/sos_commands/kernel/dmesg": OFF}, "gpu-42"),
        # The file's own name counts before what stands beside it; two names for one folder are none.
        ({"hostname": "wolf\n", "dmesg.gpu-017.txt": OFF}, "gpu-017"),
        ({"hostname-1": "wolf\n", "hostname-2": "fox\n", "dmesg.txt": OFF}, ""),
    ],
)  # fmt: skip
def test_the_node_of_a_kernel_log(tmp_path: Path, files: dict[str, str], node: str) -> None:
    assert nodes(tmp_path / "incident", files) == (set(node.split()) or {""})


def test_a_job_of_one_node_is_where_a_nameless_kernel_log_is_from(tmp_path: Path) -> None:
    logs = {f"rank{rank}.log": job_log("wolf", rank) for rank in range(4)}
    assert nodes(tmp_path / "incident", logs | {"dmesg.txt": OFF}) == {"wolf"}
    logs["rank3.log"] = job_log("fox", 3)
    assert nodes(tmp_path / "brought", logs | {"dmesg.txt": OFF}) == {""}


def test_headings_without_an_end_that_differ_in_their_number_are_nodes(tmp_path: Path) -> None:
    text = "".join(f"### z{number}\n$ dmesg -T\n{OFF}$ nproc\n96\n" for number in (4, 5))
    assert nodes(tmp_path / "incident", {"both.txt": text}) == {"z4", "z5"}


@pytest.mark.parametrize(
    ("files", "node"),
    [
        ({"hgx-7-sol.log": OFF}, "hgx-7"),
        ({"serial_console_hgx-7.txt": OFF}, "hgx-7"),
        ({"hgx-7-bmc/sol.log": OFF, "job.log": job_log("hgx-7", 0)}, "hgx-7"),
        # A word that no list has, where a rank's log tells the node; with a number in it, it is another node's.
        ({"hgx-7-afterwards.txt": OFF, "job.log": job_log("hgx-7", 0)}, "hgx-7"),
        ({"hgx-7-2.txt": OFF, "job.log": job_log("hgx-7", 0)}, "hgx-7-2"),
        ({"paste.txt": f"$ ipmitool -I lanplus -H hgx-7-bmc -U ops sol activate\n{OFF}"}, "hgx-7"),
    ],
)
def test_words_of_a_console_are_none_of_a_nodes_name(tmp_path: Path, files: dict[str, str], node: str) -> None:
    assert nodes(tmp_path / "incident", files) == {node}


OTHER = "[Wed Apr 22 07:58:19 2026] nvidia-peermem: loaded\n"
LAYOUTS = {
    "a rule above and below": "-----\n{0}\n-----\n{2}-----\n{1}\n-----\n{3}",
    "a colon": "{0}:\n{2}\n{1}:\n{3}",
    "a hash": "# {0}\n{2}\n# {1}\n{3}",
    "words": "On {0}:\n{2}\nOn {1}:\n{3}",
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "names", [("x1000c0s3b0n0", "x1000c0s3b0n1"), ("lrdn0412", "lrdn0413"), ("hgx-r07-04", "hgx-r07-05")]
)
def test_names_that_stand_alone_above_what_is_theirs(tmp_path: Path, names: tuple[str, str], layout: str) -> None:
    text = LAYOUTS[layout].format(*names, OFF, OTHER)
    assert nodes(tmp_path / "incident", {"paste.txt": text}) == set(names)


def test_what_salt_prints_is_indented(tmp_path: Path) -> None:
    text = f"$ salt 'g*' cmd.run 'dmesg -T'\ng0123:\n    {OFF}g0124:\n    {OTHER}"
    assert nodes(tmp_path / "incident", {"salt.txt": text}) == {"g0123", "g0124"}


@pytest.mark.parametrize("name", ["mlx5_0", "eth1", "rank3", "gpu2", "cuda12", "step3"])
def test_parts_of_a_machine_above_lines_are_no_nodes(tmp_path: Path, name: str) -> None:
    text = f"{name}:\n{OFF}\n{name[:-1]}{int(name[-1]) + 1}:\n{OTHER}"
    assert nodes(tmp_path / "incident", {"paste.txt": text}) <= {""}


@pytest.mark.parametrize(
    ("paths", "node"),
    [
        (("dmesg-i8001.txt", "dmesg-i8002.txt"), "i8001"),
        (("frontier04312_dmesg.txt", "frontier04313_dmesg.txt"), "frontier04312"),
        (("gpu12_dmesg.txt", "gpu13_dmesg.txt"), "gpu12"),
        (("dgx-3-dmesg-2026-04-22.txt",), "dgx-3"),
        (("dmesg-ip-10-0-5-33.txt",), "ip-10-0-5-33"),
        (("r2i3n4.dmesg.txt",), "r2i3n4"),
    ],
)
def test_a_nodes_name_in_names_of_files(tmp_path: Path, paths: tuple[str, ...], node: str) -> None:
    files = dict(zip(paths, (OFF, OTHER), strict=False))
    assert node in nodes(tmp_path / "incident", files)
