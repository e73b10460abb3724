"""A machine is named as its people call it, wherever the evidence tells that a pod or an address is the same one.

Right values: what kubectl's own columns and hosts(5) say, never what the reader answers.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hardware import judged

MET = "[rank17]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"


@pytest.mark.parametrize(
    "told",
    [
        "trn-0 -> rack-f\ntrn-1 -> rack-g\n",
        "pod trn-0 on node rack-f\npod trn-1 on node rack-g\n",
        "trn-0    rack-f\ntrn-1    rack-g\n",
        "NAME    NODE\ntrn-0   rack-f\ntrn-1   rack-g\n",
        "trn-0   1/1   Running   0            3h   10.1.0.4   rack-f   <none>   <none>\n"
        "trn-1   0/1   Error     2 (5m ago)   3h   10.1.0.5   rack-g   <none>   <none>\n",
    ],
)
def test_a_list_of_where_pods_run_names_the_machine(tmp_path: Path, told: str) -> None:
    verdict = judged(tmp_path, {"trn-1.log": MET, "where.txt": told}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject["node"]) == ("gpu.memory_error", "rack-g")


def test_pairs_of_nodes_are_no_list_of_pods(tmp_path: Path) -> None:
    verdict = judged(tmp_path, {"trn-1.log": MET, "ring.txt": "trn-0 -> trn-1\ntrn-1 -> trn-2\n"}).verdict
    assert verdict.hypothesis.subject.get("node") in (None, "trn-1")


HOSTS = "127.0.0.1 localhost\n10.9.0.1 birch-1\n10.9.0.2 birch-2\n"


@pytest.mark.parametrize("name", ["10.9.0.2.log", "10.9.0.2/rank.log", "rank17-10.9.0.2.txt"])
def test_an_address_is_the_node_that_hosts_names(tmp_path: Path, name: str) -> None:
    verdict = judged(tmp_path / "ev", {name: MET, "hosts": HOSTS}).verdict
    assert verdict.hypothesis.subject["node"] == "birch-2"


def test_an_address_with_two_names_stays_an_address(tmp_path: Path) -> None:
    verdict = judged(tmp_path / "ev", {"10.9.0.2.log": MET, "hosts": f"{HOSTS}10.9.0.2 llm-1\n"}).verdict
    assert verdict.hypothesis.subject["node"] == "10.9.0.2"


def test_the_node_is_whom_hostname_prints_before_the_log(tmp_path: Path) -> None:
    pasted = (
        "$ ssh 10.9.0.2 'hostname; dmesg | tail -1'\nbirch-2\n"
        "[ 8812.1] NVRM: Xid (PCI:0000:4e:00): 95, pid=81, name=python, Uncontained: HBM\n"
    )
    assert judged(tmp_path, {"p.txt": pasted}).verdict.hypothesis.subject["node"] == "birch-2"


ASKED = "ops$ srun -N2 -l bash -c 'echo $(hostname) $(nvidia-smi --query-gpu={} --format=csv,noheader | paste -sd,)'\n"


def test_one_field_of_each_gpu_put_into_a_line_tells_which_gpu_of_which_node(tmp_path: Path) -> None:
    rows = ASKED.format("ecc.errors.uncorrected.volatile.total") + "0: birch-1 0,0,0,0\n1: birch-2 0,14,0,0\n"
    verdict = judged(tmp_path, {"p.txt": rows}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject["node"]) == ("gpu.memory_error", "birch-2")
    assert verdict.hypothesis.subject["gpu"] == 1


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("r.json", '[{"host":"birch-1","gpus":8},{"host":"birch-2","gpus":7},'
         '{"host":"birch-3","gpus":8}]', "gpu.fell_off_bus"),
        (
            "r.txt",
            "host=birch-1 gpu=0 sm_clk=1755 temp=60 util=100\nhost=birch-2 gpu=0 sm_clk=660 temp=92 util=100\n"
            "host=birch-3 gpu=0 sm_clk=1755 temp=61 util=100\nhost=birch-4 gpu=0 sm_clk=1740 temp=60 util=100\n",
            "gpu.throttled",
        ),
        ("r.txt", "birch-1: nvidia-smi ok (0.9s)\nbirch-2: nvidia-smi TIMEOUT (30s)\n", "gpu.driver_hang"),
    ],
)  # fmt: skip
def test_rows_of_a_small_script_name_their_node(tmp_path: Path, name: str, text: str, cause: str) -> None:
    verdict = judged(tmp_path, {name: text}).verdict
    assert (verdict.hypothesis.cause, verdict.hypothesis.subject["node"]) == (cause, "birch-2")


EKS = """\
NAME           READY   STATUS             RESTARTS     AGE   IP          NODE                        NOMINATED NODE
moe-worker-0   1/1     Running            0            3h    10.1.0.4    ip-10-9-0-17.{0}   <none>
moe-worker-1   0/1     CrashLoopBackOff   4 (1m ago)   3h    10.1.0.5    ip-10-9-0-44.{0}   <none>
"""


@pytest.mark.parametrize("domain", ["ec2.internal", "eu-west-1.compute.internal", "gpu.example.org"])
def test_a_machine_that_calls_itself_by_its_first_label_is_named_as_the_cluster_knows_it(
    tmp_path: Path, domain: str
) -> None:
    kernel = "May  7 09:01:12 ip-10-9-0-44 kernel: NVRM: Xid (PCI:0000:4d:00): 79, GPU has fallen off the bus.\n"
    found = judged(tmp_path, {"pods.txt": EKS.format(domain), "kern.log": kernel}).verdict.hypothesis
    assert found.subject["node"] == f"ip-10-9-0-44.{domain}"
    assert found.says.count(domain) == 1


def test_without_such_a_list_a_machine_keeps_the_name_that_it_calls_itself_by(tmp_path: Path) -> None:
    kernel = "May  7 09:01:12 ip-10-9-0-44 kernel: NVRM: Xid (PCI:0000:4d:00): 79, GPU has fallen off the bus.\n"
    assert judged(tmp_path, {"kern.log": kernel}).verdict.hypothesis.subject["node"] == "ip-10-9-0-44"


POD = {
    "block": "kind: Pod\nmetadata:\n  name: trn-1\nspec:\n  hostNetwork: false\n  nodeName: worker-g\n"
    "status:\n  phase: Failed\n",
    "one line": "kind: Pod\nmetadata: {name: trn-1, namespace: ml}\nspec: {hostNetwork: false, nodeName: worker-g}\n"
    "status: {phase: Failed}\n",
}


@pytest.mark.parametrize("form", POD)
@pytest.mark.parametrize("ending", ["yaml", "yml", "txt"])
def test_a_pod_that_somebody_saved_as_yaml_tells_its_machine(tmp_path: Path, form: str, ending: str) -> None:
    files = {"trn-1.log": MET, f"pods/trn-1.{ending}": "apiVersion: v1\n" + POD[form]}
    assert judged(tmp_path, files).verdict.hypothesis.subject["node"] == "worker-g"


def test_a_manifest_that_somebody_applies_is_no_evidence(tmp_path: Path) -> None:
    manifest = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: trn-1\nspec:\n  nodeName: worker-g\n"
    files = {"trn-1.log": MET, "trn-1.yaml": manifest}
    assert "worker-g" not in judged(tmp_path, files).verdict.hypothesis.subject.values()


@pytest.mark.parametrize("above", ["nodes", "must-gather/nodes", "hosts"])
@pytest.mark.parametrize("name", ["worker-b6", "run12", "k8s-w-3.lab.example"])
def test_what_lies_in_a_folder_of_nodes_is_called_as_the_node(tmp_path: Path, above: str, name: str) -> None:
    kernel = "[Wed Apr 22 07:58:19 2026] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
    files = {f"{above}/{name}/dmesg.txt": kernel, f"{above}/README": "taken at 8\n"}
    assert judged(tmp_path, files).verdict.hypothesis.subject["node"] == name


ROWS = "".join(f"zz3-k{node}, {gpu}, 0, 0, No, No\n" for node in (41, 42) for gpu in range(2))
REMAPS = (
    "node, index, "
    + ", ".join(f"remapped_rows.{one}" for one in ("correctable", "uncorrectable", "pending", "failure"))
    + "\n"
)


def test_a_log_that_calls_its_node_shorter_is_of_the_node_that_a_table_names(tmp_path: Path) -> None:
    files = {"k42-rank5.log": MET.replace("rank17", "rank5"), "remaps.csv": REMAPS + ROWS}
    assert judged(tmp_path / "incident", files).verdict.hypothesis.subject["node"] == "zz3-k42"


def test_a_short_name_that_two_nodes_may_have_is_neither(tmp_path: Path) -> None:
    files = {"k42-rank5.log": MET.replace("rank17", "rank5"), "remaps.csv": REMAPS + ROWS + ROWS.replace("zz3", "zz4")}
    assert judged(tmp_path / "incident", files).verdict.hypothesis.subject.get("node") not in ("zz3-k42", "zz4-k42")


@pytest.mark.parametrize(("first", "node"), [(0, "lille-c2"), (1, None)])
def test_a_file_called_by_its_place_is_of_that_node_where_nodes_count_from_zero(
    tmp_path: Path, first: int, node: str | None
) -> None:
    mounts = "".join(f"lille-c{first + at} /dev/sda2 /data ext4 rw,noatime 0 0\n" for at in range(4))
    found = judged(tmp_path / "incident", {"run-node2.log": MET, "mounts.txt": mounts}).verdict.hypothesis
    assert found.subject["node"] == (node or "run-node2")


def test_a_folder_of_a_collector_is_called_as_its_node(tmp_path: Path) -> None:
    xid = "[81.2] NVRM: Xid (PCI:0000:c1:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    files = {"ef07-collect/dmesg.txt": xid, "ef08-collect/dmesg.txt": "[80.1] usb 1-1: new device\n"}
    assert judged(tmp_path / "incident", files).verdict.hypothesis.subject["node"] == "ef07"


def test_a_log_called_after_its_launcher_gives_no_longer_name_to_its_node(tmp_path: Path) -> None:
    xid = "[81.2] NVRM: Xid (PCI:0000:c1:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    logs = {f"torchrun-oak-{at}.log": "I1003 12:12:02 rendezvous complete\n" for at in (1, 2)}
    files = logs | {"oak-1/dmesg.txt": xid, "oak-2/dmesg.txt": "[80.1] usb 1-1: new device\n"}
    assert judged(tmp_path / "incident", files).verdict.hypothesis.subject["node"] == "oak-1"
