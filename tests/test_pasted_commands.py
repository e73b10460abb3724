"""Sessions as people paste them: which node a command ran on, and rows that come without their header."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from probes import intake
from probes.intake.commands import asked
from probes.intake.names import without_keys
from probes.intake.tools.gpu import amd_smi


def test_a_remote_command_ran_on_the_node_that_it_names() -> None:
    assert asked("ssh -o ConnectTimeout=5 root@gpu-017 'dmesg -T | tail'").node == "gpu-017"
    assert asked("kubectl exec -n ml train-3 -c main -- nvidia-smi -L") == asked("ssh train-3 nvidia-smi -L")
    assert asked("sudo timeout -k 2 20 ssh 10.0.0.7 nvidia-smi").node == "10.0.0.7"
    many = asked('pdsh -w gpu-[001-004] "nvidia-smi"')
    assert (many.node, many.many, many.command) == ("", True, "nvidia-smi")


def test_rows_without_a_header_get_the_columns_that_were_asked_for(tmp_path: Path) -> None:
    query = "index,utilization.gpu,power.draw"
    (tmp_path / "paste.txt").write_text(
        f"$ clush -w b200-[1-2] 'nvidia-smi --query-gpu={query} --format=csv,noheader'\n"
        "b200-1: 0, 97 %, 811.20 W\nb200-1: 1, 96 %, 805.00 W\nb200-2: 0, 12 %, 190.11 W\nb200-2: 1, 95 %, 799.30 W\n"
    )
    told = {
        (reading.capture.node, gpu.index): gpu.utilisation_percent
        for _, reading in intake.read([tmp_path]).readings
        for gpu in reading.facts.gpus
    }
    assert told == {("b200-1", 0): 97, ("b200-1", 1): 96, ("b200-2", 0): 12, ("b200-2", 1): 95}


def test_a_folder_may_say_that_it_is_a_node() -> None:
    assert without_keys(PurePosixPath("node=dgx-4/dmesg.txt")) == PurePosixPath("dgx-4/dmesg.txt")


def test_what_a_program_printed_is_read_although_its_command_ends_like_a_program(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text(
        "$ torchrun --nproc_per_node=2 fit.py\n"
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n$ nvidia-smi -L\n"
        "GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-3333-4444-555555555555)\n"
    )
    assert {reading.capture.probe for _, reading in intake.read([tmp_path]).readings} >= {"rank.log", "gpu.state"}


def test_the_monitor_of_amd_smi_tells_load_heat_and_clock() -> None:
    gpus = amd_smi.read("GPU  POWER  GPU_TEMP  GFX_UTIL  GFX_CLOCK\n  0  511 W     64 °C      98 %   1902 MHz\n").gpus
    told = gpus[0]
    assert (told.power_w, told.temperature_c, told.utilisation_percent, told.sm_mhz) == (511.0, 64, 98, 1902)
