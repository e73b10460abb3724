"""Ports, filters and steps in further forms in which on-call people bring them."""

from __future__ import annotations

from pathlib import Path

from probes.intake.tables import steps_in
from probes.intake.tools.network import network_policy, reach
from tests.test_environments_brought import GAVE_UP
from tests.test_network_forms import first, named
from tests.test_networks_brought import LATE, LOST, NOTHING

# More of what on-call people try -------------------------------------------------------------------------------------


def test_what_telnet_says_is_of_the_port_that_it_was_asked_for(tmp_path: Path) -> None:
    text = "gpu-001$ telnet gpu-002 29500\nTrying 10.0.0.2...\ntelnet: Unable to connect to remote host: {}\n"
    lost = first(tmp_path, {"p.txt": text.format("Connection timed out"), "job.log": LATE.replace("head", "gpu-002")})
    assert named(lost) == ("net.bootstrap_blocked", {"node": "gpu-002"})
    opened = reach.named(reach.read("Trying 10.0.0.2...\nConnected to gpu-002.\n"), "a/telnet_gpu-002_29500")
    assert [(one.peer, one.port, one.why) for one in opened.reaches] == [("gpu-002", 29500, "")]


GROUP = (
    '{"SecurityGroups": [{"IpPermissions": [{"IpProtocol": "%s", "FromPort": 22, "ToPort": 22}], '
    '"IpPermissionsEgress": [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]}]}'
)


def test_security_groups_that_let_in_a_few_ports_are_filters_and_open_ones_are_not() -> None:
    assert network_policy.fits(GROUP % "tcp", "")
    assert [one.text for one in network_policy.read(GROUP % "tcp").filters] == ["security groups let in only ports 22"]
    assert network_policy.read(GROUP % "-1").filters == ()


def test_a_full_table_of_connections_shuts_the_ports_of_its_node(tmp_path: Path) -> None:
    line = "[ 8810.123456] nf_conntrack: nf_conntrack: table full, dropping packet\n"
    assert first(tmp_path, {"gpu-2/dmesg.txt": line * 3}).hypothesis.cause in NOTHING
    log = LOST + "Connection timed out) errno 115(Operation now in progress)\n"
    found = first(tmp_path / "b", {"gpu-2/dmesg.txt": line * 3, "rank0.log": log})
    assert found.hypothesis.cause == "net.bootstrap_blocked"


def test_a_nodes_one_port_without_a_name_is_that_of_the_command_which_asked_for_it(tmp_path: Path) -> None:
    rates = "".join(f"c{n}: {'25 Gb/sec (1X EDR)' if n == 4 else '100 Gb/sec (4X EDR)'}\n" for n in range(1, 6))
    sysfs = f"$ pdsh -w c[1-5] 'cat /sys/class/infiniband/mlx5_3/ports/1/rate'\n{rates}"
    found = first(tmp_path, {"typed.txt": sysfs})
    assert named(found)[0] == "ib.link_degraded"
    assert {key: found.hypothesis.subject[key] for key in ("node", "hca")} == {"node": "c4", "hca": "mlx5_3"}

    lines = "".join(f"c{n}: \t\tState: Active\nc{n}: \t\tRate: {25 if n == 4 else 100}\n" for n in range(1, 6))
    found = first(tmp_path / "b", {"typed.txt": f"$ pdsh -w c[1-5] \"ibstat mlx5_3 | grep -E 'State|Rate'\"\n{lines}"})
    assert {key: found.hypothesis.subject[key] for key in ("node", "hca")} == {"node": "c4", "hca": "mlx5_3"}


def test_steps_that_monitoring_exported_are_read_as_a_log_tells_them() -> None:
    assert steps_in("_step,train/loss,step_time_ms\n1,2.0,58000\n2,2.1,59000\n") == (
        "step 1 step_time 58.000000 s\nstep 2 step_time 59.000000 s\n"
    )
    assert steps_in("step,loss\n1,2.0\n2,2.1\n") == ""
    assert steps_in("rank,step,step_time_s\n0,1,2.0\n1,1,2.1\n") == ""


def test_a_log_that_begins_as_python_prints_a_dictionary_is_read(tmp_path: Path) -> None:
    head = "{'loss': 2.1, 'epoch': 0.4}\nSaving model checkpoint to ./out/checkpoint-500\n"
    text = head + "".join(GAVE_UP.format(n) for n in range(1, 8))
    assert first(tmp_path, {"job.log": text}).hypothesis.cause == "fw.checkpoint_stall"


def test_times_since_the_start_are_no_times_of_a_step() -> None:
    assert steps_in("step,elapsed_s\n1,60\n2,120\n3,180\n") == ""


def test_how_long_an_epoch_takes_is_not_how_long_a_step_does(tmp_path: Path) -> None:
    waits = "".join(GAVE_UP.format(n) for n in range(4))
    rows = ["epoch {n} loss 2.1 took 2400.5 s", "2025-03-01 1{n}:00:00,000 INFO epoch {n} loss 2.1"]
    for place, row in enumerate([*rows, "step {n} loss 2.1, time: {n}400 s"]):
        text = "".join(row.format(n=n) + "\n" for n in range(1, 6)) + waits
        assert first(tmp_path / str(place), {"job.log": text}).hypothesis.cause != "fw.timeout_too_short"


def test_a_port_that_is_shut_says_nothing_of_a_job_that_trains(tmp_path: Path) -> None:
    scan = (
        "Nmap scan report for gpu-2 (10.0.0.2)\nHost is up.\nPORT STATE SERVICE\n22/tcp open ssh\n9100/tcp filtered x\n"
    )
    steps = "".join(f"step {n} loss 2.1\n" for n in range(9))
    assert first(tmp_path, {"nmap.txt": scan, "job.log": steps}).hypothesis.cause in NOTHING
    assert first(tmp_path / "b", {"nmap.txt": scan}).hypothesis.cause == "net.bootstrap_blocked"
