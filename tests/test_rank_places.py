"""On which node a rank runs, where the launcher or Kubernetes tells it and the rank's own lines do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes import explain

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
PODS = "NAME     READY   STATUS    RESTARTS   AGE   IP         NODE   NOMINATED NODE   READINESS GATES\n"


def first(folder: Path) -> dict[str, str | int]:
    said = explain.explained_as_json(explain.explain([folder]))["hypotheses"][0]
    assert said["cause"] == "gpu.memory_error"
    subject: dict[str, str | int] = said["subject"]
    return subject


@pytest.mark.parametrize(
    "told",
    [
        " Data for node: wk3\tNum slots: 1\n \tProcess OMPI jobid: [7,1] App: 0 Process rank: 0 Bound: N/A\n"
        " Data for node: wk4\tNum slots: 1\n \tProcess OMPI jobid: [7,1] App: 0 Process rank: 1 Bound: N/A\n",
        "[wk3:1201] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]\n[wk4:1190] MCW rank 1 is not bound\n",
        "[wk3:1201] Rank 0 bound to package[0][core:0]\n[wk4:1190] Rank 1 bound to package[0][core:0]\n",
    ],
)
def test_mpirun_tells_where_it_put_a_rank(tmp_path: Path, told: str) -> None:
    lines = "".join(f"[1,{rank}]<stdout>:step {step} loss 1.9\n" for step in range(9) for rank in (0, 1))
    (tmp_path / "mpi.out").write_text(f"{told}{lines}[1,1]<stderr>:{ECC}")
    assert first(tmp_path) == {"node": "wk4", "rank": 1}


def test_a_pods_log_is_of_the_node_on_which_it_runs(tmp_path: Path) -> None:
    row = "t-worker-%d 0/1     Error     0          3h    10.1.0.%d   wk%d    <none>           <none>\n"
    rows = "".join(row % (i, i, i) for i in (3, 4))
    (tmp_path / "pods.txt").write_text(f"$ kubectl get pods -o wide\n{PODS}{rows}")
    (tmp_path / "t-worker-4.log").write_text(f"2026-03-02 11:00:00 INFO step 3 loss 1.9\n{ECC}")
    assert first(tmp_path)["node"] == "wk4"
