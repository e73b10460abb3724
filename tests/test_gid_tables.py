"""One index of the GID table for all nodes: the node whose table differs is the one that is meant."""

from __future__ import annotations

from pathlib import Path

from tests.support.hardware import judged

HEAD = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
WARN = (
    "{node}:410:417 [0] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_modify_qp failed with error Network is unreachable "
    "errno 101\n"
)


def table(last: int, *, shifted: bool = False) -> str:
    rows = [(f"fe80:0000:0000:0000:5aa2:e1ff:fe10:{last:04x}", "")] * 2
    rows += [(f"fd00:0000:0000:0088:5aa2:e1ff:fe10:{last:04x}", "")] * 2 * shifted
    rows += [(f"0000:0000:0000:0000:0000:ffff:0a00:{last:04x}", f"10.0.0.{last}")] * 2
    lines = [f"mlx5_0\t1\t{at}\t{gid}\t{ip}  \tv{at % 2 + 1}\tens1np0\n" for at, (gid, ip) in enumerate(rows)]
    return HEAD + "".join(lines) + f"n_gids_found={len(rows)}\n"


def subject(folder: Path, shifted: set[str]) -> object:
    nodes = ("ds-1", "ds-2", "ds-3", "ds-4")
    files = {f"{node}/show_gids.txt": table(at, shifted=node in shifted) for at, node in enumerate(nodes, 1)}
    files["job.log"] = WARN.format(node="ds-2") + WARN.format(node="ds-4")
    verdict = judged(folder, files).verdict.hypothesis
    assert verdict.cause == "ib.gid_or_route"
    return verdict.subject.get("node")


def test_the_node_with_an_address_more_is_named_not_those_that_could_not_reach_it(tmp_path: Path) -> None:
    assert subject(tmp_path, {"ds-3"}) == "ds-3"


def test_of_two_and_two_none_is_named(tmp_path: Path) -> None:
    assert subject(tmp_path, {"ds-3", "ds-4"}) is None
