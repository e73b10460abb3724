"""The tables of diagnosis, the merge of flight recorders across ranks, and the ranking."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from probes import catalog
from probes.catalog.host.load_facts import Load, Process
from probes.catalog.logs.events import LogEvent
from probes.core import Finding
from probes.diagnosis import Evidence, Hypothesis, Reason, Seen, diagnose, judging
from probes.diagnosis.paths import paths
from probes.diagnosis.ranking import WEAK, causes, explains, likelihoods, rank, strength
from probes.reference import rows
from probes.stored import stored
from tests.support.rank_facts import dump, mapped, processes, recorders, silent, wrote

RULES = Path(judging.__file__).parent / "rules"
WHY = (Reason("it stands there", "gpu-001/x"),)
REDUCE = ("all_reduce", 1024)


# Tables -------------------------------------------------------------------------------------------------------------


def test_every_signal_of_a_rule_is_in_the_table_and_the_table_has_no_other() -> None:
    used: set[str] = set()
    for path in [*RULES.glob("*.py"), *RULES.parent.glob("*suspects.py"), RULES.parent / "well.py"]:
        strings = {n.value for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Constant)}
        used |= strings & set(likelihoods())
    assert used == set(likelihoods())


def test_no_signal_is_told_twice_in_the_table() -> None:
    """The second would silently take the place of the first."""
    names = [row["signal"] for row in rows("likelihoods")]
    assert sorted(names) == sorted(set(names))


def test_every_cause_has_a_path_and_every_path_names_only_causes_and_probes_that_there_are() -> None:
    known = {path["id"] for path in paths()}
    for path in paths():
        for step in path["steps"]:
            assert set(step["causes"]) <= set(causes())
            assert set(step.get("probes", ())) <= set(catalog.load())
            assert step.get("probes") or step.get("lacks") or step.get("settles") or step.get("bring"), (
                f"{path['id']} {step['id']} can never be answered"
            )
    shown = {cause for path in paths() for step in path["steps"] for cause in step["causes"]}
    for cause, row in causes().items():
        assert row["path"] in known | {""}
        named = {cause for rule in judging.all_rules().values() for cause in rule.causes}
        assert cause not in named or cause in shown, f"{cause} is blamed by a rule and no step shows it"


def test_codes_of_paths_are_those_of_findings_that_there_are() -> None:
    sources = "".join(path.read_text() for path in (RULES.parents[1] / "catalog").rglob("*.py"))
    for path in paths():
        for step in path["steps"]:
            for code in step.get("codes", ()):
                area, _, thing = code.partition(".")
                assert re.search(rf'"{area}\.{thing}"|"{thing}"', sources), f"{path['id']}: no probe finds {code}"


def test_nothing_explains_itself_round_a_corner() -> None:
    for cause, effects in explains().items():
        assert cause not in effects
        assert not any(cause in explains().get(effect, ()) for effect in effects)
        assert effects | {cause} <= set(causes())


# Ranking ------------------------------------------------------------------------------------------------------------


def hypothesis(
    cause: str, *signals: str, ranks: Sequence[int] = (), node: str = "gpu-001", **subject: Any
) -> Hypothesis:
    return Hypothesis(
        cause, {"node": node, **subject}, cause, WHY, signals, ranks=frozenset(ranks), nodes=frozenset({node})
    )


def test_shares_sum_to_one_with_none_and_something_else() -> None:
    ranked = rank([hypothesis("ib.link_down", "port_down"), hypothesis("host.clock_offset", "clock_apart")])
    assert sum(one.probability for one in ranked) == pytest.approx(1)
    assert {one.hypothesis.cause for one in ranked} == {"ib.link_down", "host.clock_offset", "none", "unknown"}
    assert ranked[0].hypothesis.cause == "ib.link_down"


def test_without_evidence_nothing_is_blamed_and_advancing_training_is_well() -> None:
    assert rank([])[0].hypothesis.cause == "unknown"
    assert rank([], ["training_advances"])[0].hypothesis.cause == "none"


def test_signals_of_one_group_count_once_the_strongest() -> None:
    assert strength(["rank_behind", "rank_elsewhere_by_stack"]) == strength(["rank_behind"]) == 400
    assert strength(["rank_behind", "in_data_loader"]) == 400 * 60


def test_one_fault_that_is_told_by_its_rank_and_by_its_gpu_is_one() -> None:
    by_rank = hypothesis("gpu.memory_error", "ecc_error_told", ranks=[3], rank=3)
    by_kernel = hypothesis("gpu.memory_error", "gpu_xid", ranks=[3], gpu=1)
    first = rank([by_rank, by_kernel])[0].hypothesis
    assert dict(first.subject) == {"node": "gpu-001", "rank": 3, "gpu": 1}
    assert set(first.signals) == {"ecc_error_told", "gpu_xid"}
    of_another = hypothesis("gpu.memory_error", "gpu_xid", ranks=[4], gpu=2)
    assert len(rank([by_rank, of_another])) == 4
    assert len(rank([by_rank, hypothesis("gpu.memory_error", "gpu_xid", ranks=[3], node="gpu-002", gpu=1)])) == 4


def test_a_rank_that_no_file_places_met_the_fault_of_the_only_gpu_that_has_it() -> None:
    by_rank = replace(hypothesis("gpu.memory_error", "ecc_error_told", ranks=[22]), subject={"rank": 22})
    by_gpu = hypothesis("gpu.memory_error", "gpu_xid", node="dgx-31", gpu=6)
    first = rank([by_rank, by_gpu])[0].hypothesis
    assert dict(first.subject) == {"node": "dgx-31", "gpu": 6, "rank": 22}
    assert "rank 22 met it" in first.says
    assert len(rank([by_rank, by_gpu, hypothesis("gpu.memory_error", "gpu_xid", node="dgx-30", gpu=2)])) == 5


def test_what_may_be_one_of_two_is_taken_for_neither() -> None:
    node = hypothesis("ib.link_down", "named_by_many")
    ports = [hypothesis("ib.link_down", "port_down", hca="mlx5_0", port=port) for port in (1, 2)]
    assert len(rank([node, *ports])) == 5
    assert len(rank([node, ports[0]])) == 3


def test_what_another_cause_explains_is_its_consequence_on_the_same_rank_only() -> None:
    stopped = hypothesis("fw.rank_stopped", "state_stopped", ranks=[1], rank=1)
    missing = hypothesis("fw.rank_missing_collective", "rank_behind", ranks=[1], rank=1)
    first = rank([missing, stopped])[0]
    assert (first.hypothesis, first.consequences) == (stopped, (missing,))
    elsewhere = hypothesis("fw.rank_missing_collective", "rank_behind", ranks=[7], rank=7, node="gpu-009")
    assert {one.hypothesis.cause for one in rank([elsewhere, stopped])} >= {"fw.rank_missing_collective"}


def test_what_is_wrong_with_one_adapter_explains_no_other_one() -> None:
    down = hypothesis("ib.link_down", "port_down", hca="mlx5_5", port=1)
    waits = hypothesis("ib.gid_or_route", "port_without_manager", hca="mlx5_7", port=1)
    assert [one.consequences for one in rank([down, waits])] == [()] * 4
    same = hypothesis("ib.gid_or_route", "port_without_manager", hca="mlx5_5", port=1)
    assert [one.consequences for one in rank([down, same])][0] == (same,)


def test_an_oddity_on_a_node_explains_nothing_but_where_a_rank_is_explains_that_rank() -> None:
    odd = hypothesis("ib.link_down", "port_error_later")
    ended = hypothesis("fw.rank_exited", "own_exception", ranks=[3], rank=3)
    assert strength(odd.signals) < WEAK <= strength(ended.signals)
    assert rank([odd, ended])[0].hypothesis == ended
    saves = hypothesis("fw.checkpoint_stall", "checkpoint_in_log", ranks=[3], rank=3)
    missing = hypothesis("fw.rank_missing_collective", "rank_behind", ranks=[3], rank=3)
    assert rank([saves, missing])[0].consequences == (missing,)


def test_what_speaks_against_a_consequence_does_not_weigh_on_its_root() -> None:
    switch = hypothesis("ib.switch_down", "rail_down", hca="mlx5_2", port=1)
    doubtful = hypothesis("ib.link_down", "port_down_everywhere", hca="mlx5_2", port=1)
    assert rank([switch, doubtful])[0].probability >= rank([switch])[0].probability


def test_a_rule_that_stops_is_said_and_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(evidence: Evidence) -> list[Hypothesis]:
        raise ZeroDivisionError("on this evidence")

    rules = dict(judging.all_rules())
    rules["port_down"] = rules["port_down"]._replace(judge=breaks)
    monkeypatch.setattr(judging, "all_rules", lambda: rules)
    found = diagnose([processes(1, "T")])
    assert found.failed == {"port_down": "ZeroDivisionError: on this evidence"}
    assert found.verdict.hypothesis.cause == "fw.rank_stopped"


def test_dumps_that_cannot_be_merged_are_said_and_cost_only_what_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError("in a merge")

    monkeypatch.setattr("probes.diagnosis.collectives.stalls_of", breaks)
    found = diagnose([processes(1, "T"), recorders(dump(0, {"g": ([0, 1], [REDUCE], True)}))])
    assert found.failed["collectives"] == "ZeroDivisionError: in a merge"
    assert found.paths["collective-order"].state != "ruled out"


def test_facts_come_back_from_the_database_as_what_they_were_and_old_forms_are_not_known() -> None:
    from probes.core import facts_as_json

    fresh = processes(1, "T")
    again = stored("gpu-001", "rank.process", "ok", "", facts_as_json(fresh.facts), [])
    assert again == fresh
    old = stored("gpu-001", "rank.process", "ok", "", {"processes": [{"pid": "nine"}]}, [])
    assert (old.outcome, old.facts) == ("failed", None)
    assert diagnose([old]).paths["collective-order"].state == "not known"


def load_on(node: str, **told: Any) -> Seen:
    """A look at the CPUs that tells nothing but this."""
    nothing = {field.name: None for field in dataclasses.fields(Load) if field.default is dataclasses.MISSING}
    facts = Load(**{**nothing, "processes": (), "quotas": (), "source": "ps", **told})
    return Seen(f"{node}/host.load", node, "host.load", "ok", "", facts, ())


def test_a_list_of_processes_rules_out_no_load_no_quota_and_no_threads() -> None:
    """Of what was brought only what tells it can rule it out; our own look at a node tells all three."""

    def states(seen: Seen) -> dict[str, str]:
        steps = diagnose([seen, Seen("a/rank.process", "a", "rank.process", "absent", "", None, ())]).paths
        return {step.id: step.state for step in steps["process-attribution"].steps}

    who = (Process(7, 1, "python", "S", 3.0, None, True),)
    assert set(states(load_on("a", processes=who)).values()) == {"not known"}
    whole = load_on("a", processes=who, load1=1.0, cpus=64, source="proc")
    assert set(states(whole).values()) == {"ruled out"}


def test_not_known_is_never_ruled_out() -> None:
    def state(*seen: Seen) -> str:
        steps = diagnose(seen).paths["clock-offset"].steps
        return steps[0].state

    ok = Seen("a/host.clock", "a", "host.clock", "ok", "", object(), ())
    dead = Seen("b/host.clock", "b", "host.clock", "unreachable", "no route", None, ())
    other = load_on("c")
    finding = Finding("host.clock_offset", "warn", "the clock is 0.3 s ahead", {})
    off = Seen("b/host.clock", "b", "host.clock", "ok", "", object(), (finding,))
    assert state(ok) == "ruled out"
    assert state(ok, dead) == "not known"
    assert state(ok, other) == "not known", "node c was not asked"
    assert state() == "not known"
    assert state(ok, off) == "suspect"


# What was not seen proves nothing -----------------------------------------------------------------------------------


def causes_of(*seen: Seen, asked: Sequence[str] = ()) -> set[str]:
    return {one.hypothesis.cause for one in diagnose(seen, asked).ranked}


def test_before_any_node_has_answered_nobody_is_asked_to_bring_files() -> None:
    steps = [step for path in diagnose([], asked=["a", "b"]).paths.values() for step in path.steps]
    assert "gpu.state was not asked" in [step.why for step in steps]
    assert "nvidia-smi -q" not in [step.bring for step in steps]


def test_a_rank_is_gone_only_where_every_node_was_looked_at() -> None:
    here = [mapped("a", [0, 1], 4), mapped("b", [2], 4)]
    assert diagnose(here, ["a", "b"]).verdict.hypothesis.subject == {"rank": 3}
    assert "fw.rank_exited" in causes_of(*here, asked=["a", "b"])
    assert "fw.rank_exited" not in causes_of(*here, asked=["a", "b", "c"]), "c has not answered yet"
    assert "fw.rank_exited" not in causes_of(*here, silent("c", "rank.map"), asked=["a", "b", "c"])


def test_a_missing_dump_accuses_nobody_while_a_node_has_not_told_its_dumps() -> None:
    ranks = [0, 1, 2]
    waiting = recorders(*(dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}) for r in (0, 1)), node="a")
    assert diagnose([waiting], ["a"]).verdict.hypothesis.subject["rank"] == 2
    assert "fw.rank_missing_collective" not in causes_of(waiting, asked=["a", "b"])


def test_where_many_dumps_are_missing_nobody_collected_them() -> None:
    ranks = list(range(16))

    def named(*there: int) -> set[int]:
        waiting = recorders(*(dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}) for r in there))
        return {rank for one in diagnose([waiting]).ranked for rank in one.hypothesis.ranks}

    assert named(*range(14)) == {14, 15}
    assert named(*range(13)) == set()


def test_a_dump_from_before_the_wait_does_not_prove_that_its_rank_is_late() -> None:
    ranks = [0, 1, 2]
    waiting = [dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}) for r in (0, 1)]
    behind = dump(2, {"g": (ranks, [REDUCE], False)})
    assert diagnose([recorders(*waiting, behind)]).verdict.hypothesis.subject["rank"] == 2
    old = replace(behind, how="file", at=1000.0, mtime=900.0)  # the others began to wait at 940
    assert "fw.rank_missing_collective" not in causes_of(recorders(*waiting, old))


def test_ranks_of_another_job_on_the_same_nodes_are_left_out() -> None:
    ranks = [0, 1, 2]
    mine = [replace(dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}), run_id="mine") for r in ranks]
    other = replace(dump(2, {"g": (ranks, [REDUCE], False)}), run_id="other")
    seen = [mapped("n", ranks, 3, "mine"), mapped("m", [2], 3, "other", pid=500)]
    found = diagnose([*seen, recorders(other, *mine)], ["n"])
    assert "fw.rank_missing_collective" not in {one.hypothesis.cause for one in found.ranked}


def test_ranks_that_torch_took_down_for_waiting_are_not_blamed_for_it() -> None:
    ended = LogEvent("torchrun_failure", "rank 0 exitcode: -6", about=(0,), code=-6, name="SIGABRT")
    waited = LogEvent("watchdog_timeout", "Watchdog caught collective operation timeout", rank=0)
    own = LogEvent("traceback", "loss.backward()", rank=0, secondary=True)
    assert "fw.rank_exited" not in causes_of(wrote("n", ended, waited))
    assert "fw.rank_exited" in causes_of(wrote("n", ended, own))


def test_what_was_not_found_anywhere_is_not_ruled_out() -> None:
    absent = [Seen(f"a/{probe}", "a", probe, "absent", "", None, ()) for probe in ("gpu.state", "rank.map")]
    found = diagnose(absent, ["a"])
    assert {step.state for step in found.paths["gpu-fault"].steps} == {"not known"}
    assert found.verdict.hypothesis.says == "No training process was found on this node"


def test_nodes_that_gave_no_answer_are_the_headline_where_nothing_else_is_known() -> None:
    def says(*seen: Seen) -> str:
        return diagnose(seen, ["a", "b"]).verdict.hypothesis.says

    load = load_on("a")
    assert says(load, silent("b", "host.load")) == "b did not answer: what is there is not known"
    assert says(silent("a", "host.load"), silent("b", "host.load")) == "No node answered: nothing is known"
    assert says(load) == "The evidence does not decide", "b may still answer"


def test_a_job_that_stands_for_seconds_does_not_rule_out_that_a_rank_is_missing() -> None:
    ranks = [0, 1]

    def state(age: float) -> str:
        dumps = [dump(r, {"g": (ranks, [REDUCE, REDUCE], True)}, age) for r in ranks]
        steps = diagnose([recorders(*dumps)]).paths["collective-order"].steps
        return next(step.state for step in steps if step.id == "missing")

    assert state(3) == "not known"
    assert state(60) == "ruled out"


def test_training_that_goes_on_is_said_with_the_dump_that_shows_it() -> None:
    done = [dump(r, {"g": ([0, 1], [REDUCE], False)}) for r in (0, 1)]
    fresh = [replace(one, at=901.0) for one in done]  # its last work was enqueued at 900
    found = diagnose([recorders(*fresh)]).verdict.hypothesis
    assert (found.cause, found.because[0].reading) == ("none", "n/rank.flight_recorder")


def test_a_job_that_was_dumped_while_it_ran_is_not_hung_if_its_log_tells_of_steps_after_it() -> None:
    waits = recorders(dump(0, {"g": ([0, 1], [REDUCE, REDUCE], True)}, 60), dump(1, {"g": ([0, 1], [REDUCE], False)}))
    asked = LogEvent("dump_signal", "Dump signal received through pipe, triggering FR dump.", rank=0, line=7)
    after = LogEvent("progress", "step 12 of 900", seq=12, name="step", line=8, count=3)
    start = LogEvent("nccl_init_start", "init", rank=0, line=8)

    def cause(*events: LogEvent) -> str:
        return diagnose([waits, wrote("n", *events)]).verdict.hypothesis.cause

    assert cause(asked, after) == "none"
    assert cause(replace(after, line=1), asked) == "fw.rank_missing_collective"
    assert cause(asked, replace(after, count=1)) == "fw.rank_missing_collective"
    assert cause(asked, start, replace(after, line=20)) == "fw.rank_missing_collective"


def test_two_processes_of_one_rank_are_said_beside_the_verdict() -> None:
    def doubts(*seen: Seen) -> list[str]:
        return [reason.says for reason in diagnose(seen).verdict.hypothesis.against]

    assert doubts(mapped("a", [0, 1], 2)) == []
    left_over = mapped("b", [1], 2, pid=500)
    assert doubts(mapped("a", [0, 1], 2), left_over) == [
        "2 processes call themselves rank 1 (101 on a and 501 on b): one may be of another run"
    ]
