"""Lists of nodes as people paste them at 3 am."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.nodeset import NodesetError, expand, fold, is_name, parse_hosts
from probes.transport import Target


def test_a_folded_nodeset_becomes_names_and_back() -> None:
    names = expand("gpu-[001-003,010],login1")
    assert names == ["gpu-001", "gpu-002", "gpu-003", "gpu-010", "login1"]
    assert fold(names) == "gpu-[001-003,010],login1"


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("gpu-001 slots=8", Target("gpu-001")),
        ("gpu-001 max_slots=8 slots=8  # rack 4", Target("gpu-001")),
        ("root@gpu-001:2222", Target("gpu-001", user="root", port=2222)),
        ("gpu-001:2222", Target("gpu-001", port=2222)),
        (
            "w1 ansible_host=10.0.0.1 ansible_port=2200 ansible_user=ops",
            Target("w1", address="10.0.0.1", user="ops", port=2200),
        ),
        ("10.0.0.9 gpu-009 gpu-009.cluster", Target("gpu-009", address="10.0.0.9")),
        ("10.0.0.9", Target("10.0.0.9")),
        ("fe80::1", Target("fe80::1")),
    ],
)
def test_each_form_of_line_is_understood(line: str, target: Target) -> None:
    assert parse_hosts(line) == [target]


def test_a_pasted_inventory_gives_each_node_once_in_order() -> None:
    text = "# fleet\n[workers]\ngpu-[001-002]\n\ngpu-002\n[workers:children]\nlogin1, login2\n"
    assert [target.node for target in parse_hosts(text)] == ["gpu-001", "gpu-002", "login1", "login2"]


@pytest.mark.parametrize(
    "text",
    [
        "-oProxyCommand=id",
        "a;id",
        "$(id)",
        "a|b",
        "`id`",
        "a\x00b",
        "a\u202eb",
        "../../etc",
        "a'b",
        'a"b',
        "gpu-[1-",
        "@all",
        "a&b",
        "node\x1b[2J",
    ],
)
def test_what_could_be_an_option_or_a_command_is_no_node(text: str) -> None:
    with pytest.raises(NodesetError):
        parse_hosts(text)


@pytest.mark.parametrize(
    "text",
    ["x[1-999999999]", "x[1-1000][1-1000]", ",".join(f"r{i}n[1-9999]" for i in range(9)), "x[1-99999999999999999999]"],
)
def test_a_nodeset_of_millions_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(NodesetError, match="more than"):
        expand(text)
    assert time.process_time() - began < 0.5


def test_an_error_names_its_line_and_what_stands_there() -> None:
    with pytest.raises(NodesetError, match=r"line 3: .*bad;name"):
        parse_hosts("gpu-001\ngpu-002\nbad;name\n")
    with pytest.raises(NodesetError, match="not a port"):
        parse_hosts("a ansible_port=99999")
    with pytest.raises(NodesetError, match="no node in it"):
        parse_hosts("# nothing\n")


@given(st.text(max_size=80))
def test_any_text_is_nodes_or_a_clear_error(text: str) -> None:
    try:
        targets = parse_hosts(text)
    except NodesetError as error:
        assert str(error)
        return
    assert all(is_name(target.node) for target in targets)


@pytest.mark.parametrize("text", ['fe80::1%eth0<b>"x', "fe80::1%" + "z" * 300, "x ansible_host=fe80::1%" + "z" * 300])
def test_an_ipv6_scope_is_an_interface_name_and_nothing_else(text: str) -> None:
    with pytest.raises(NodesetError):
        parse_hosts(text)
    assert parse_hosts("fe80::1%eth0") == [Target("fe80::1%eth0")]
