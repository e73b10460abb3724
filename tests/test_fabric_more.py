"""Faults of fabrics as other tools tell them: tables of addresses, subnet managers, UFM, switches, EFA."""

from __future__ import annotations

from pathlib import Path

from tests.support.brought import told

SET = "".join(f"ax-{n}:11:12 [0] NCCL INFO NCCL_IB_GID_INDEX set by environment to 3.\n" for n in (1, 2, 3, 4))
REFUSED = "ax-1:11:17 [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with error No route to host errno 113\n"


def gids(node: int) -> str:
    """As `grep -H . .../gids/* .../gid_attrs/types/*` prints them; ax-3 got another address in between."""
    rows = ["fe80:0000:0000:0000:0e42:a1ff:fe00:000%d" % node] * 2
    rows += ["fd00:0000:0000:0000:0000:0000:0000:0001"] * 2 if node == 3 else []
    rows += ["0000:0000:0000:0000:0000:ffff:0a00:000%d" % node] * 2
    top = "/sys/class/infiniband/mlx5_0/ports/1"
    return "".join(
        f"{top}/gids/{n}:{gid}\n{top}/gid_attrs/types/{n}:{'RoCE v2' if n % 2 else 'IB/RoCE v1'}\n"
        for n, gid in enumerate(rows)
    )


def test_who_has_another_kind_of_address_at_the_index_is_named(tmp_path: Path) -> None:
    files = {f"ax-{n}.gids.txt": gids(n) for n in (1, 2, 3, 4)}
    found = told(tmp_path, files | {"job.log": SET + REFUSED})
    assert (found.cause, found.subject) == ("ib.gid_or_route", {"node": "ax-3"})


def test_without_an_index_that_was_set_nccl_looks_for_the_row_itself(tmp_path: Path) -> None:
    files = {f"ax-{n}.gids.txt": gids(n) for n in (1, 2, 3, 4)}
    assert told(tmp_path, files).cause in ("unknown", "none")


def test_the_table_alone_names_it_less_surely(tmp_path: Path) -> None:
    found = told(tmp_path, {f"ax-{n}.gids.txt": gids(n) for n in (1, 2, 3, 4)} | {"job.log": SET})
    assert (found.cause, found.subject) == ("ib.gid_or_route", {"node": "ax-3"})
    assert found.probability < 0.95
