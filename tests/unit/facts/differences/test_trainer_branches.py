"""Ranks that parted in a trainer's own loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.trainer_branches import parted
from hangwatch.judge import diagnose
from hangwatch.model import Collective, Frame, RankEvidence, Snapshot, Switch
from hangwatch.rules.step.rank_zero_only_collective.at_a_new_place import mispaired_at_a_new_place
from tests.unit.rules.step.worlds import Program, world
from tests.unit.simulator import SCRIPT, TORCH, TRAINER, Call, Draw

C10D = Frame(f"{TORCH}/distributed/distributed_c10d.py", 3151, "broadcast")
FIT = (Frame(TRAINER, 217, "Loop.run"), Frame(TRAINER, 584, "Trainer.fit"), Frame(SCRIPT, 12, "main"))
ADVANCE = (C10D, Frame(TRAINER, 265, "Loop.advance"), Frame(TRAINER, 153, "Loop.epoch"), *FIT)
VALIDATE = (C10D, Frame(TRAINER, 406, "Loop.on_advance_end"), Frame(TRAINER, 154, "Loop.epoch"), *FIT)
HOOK = Frame(SCRIPT, 7, "Plot.on_advance_end")


def test_the_function_in_which_two_ways_part() -> None:
    assert parted(ADVANCE, VALIDATE) == (ADVANCE[2], VALIDATE[2])


@pytest.mark.parametrize(
    "other",
    [
        ADVANCE,
        (C10D, HOOK, *VALIDATE[1:]),
        (C10D, Frame(TRAINER, 154, "Loop.epoch"), *FIT),
        (*VALIDATE[:-1], Frame(SCRIPT, 14, "main")),
        (C10D, Frame(SCRIPT, 14, "main")),
    ],
    ids=["one way", "a user's hook", "two calls of one function", "the user's lines differ", "the user's own call"],
)
def test_ways_that_do_not_part_in_a_package(other: tuple[Frame, ...]) -> None:
    assert parted(ADVANCE, other) is None


def test_a_packages_model_that_decides_by_its_data_is_no_trainer() -> None:
    """GIVEN a layer that leaves out an expert without tokens WHEN it runs in the forward of a module."""
    module, comm = Frame(f"{TORCH}/nn/modules/module.py", 1884, "_call_impl"), Frame(TRAINER, 600, "all_to_all")
    expert, router = ((C10D, comm, Frame(TRAINER, line, "Experts.forward"), module, *FIT) for line in (406, 410))
    assert parted(expert, router) is None
    assert parted(*((*path[:3], *path[4:]) for path in (expert, router))) == (expert[2], router[2])


def _below(entry: RankEvidence, *further: Frame) -> RankEvidence:
    """The trainer makes all calls: barriers come from its validation, by way of `further`."""

    def placed(call: Collective) -> Collective:
        own = (VALIDATE[0], *further, *VALIDATE[1:]) if call.op == "barrier" else ADVANCE
        return replace(call, frames=own)

    found = entry.collectives
    calls = replace(found, recent=tuple(map(placed, found.recent)), open_calls=tuple(map(placed, found.open_calls)))
    stacks = tuple(replace(stack, frames=calls.recent[-1].frames, in_loop=True) for stack in entry.stacks)
    return replace(entry, collectives=calls, stacks=stacks, earlier_stacks=stacks)


def _job(odd_one: int, ranks: int, *further: Frame) -> Snapshot:
    """After five steps one rank goes to validate, and the others to the next batch, before its step begins."""
    usual: Program = [Call("broadcast", line=12), Draw()]
    odd: Program = [*usual * 5, Call("barrier", line=12), *usual]
    snapshot = world(*(odd if rank == odd_one else [*usual * 7] for rank in range(ranks)))
    return replace(snapshot, ranks=tuple(_below(entry, *further) for entry in snapshot.ranks))


@pytest.mark.parametrize("odd", [0, 2])
def test_what_a_trainer_decides_by_differs_by_rank(odd: int) -> None:
    verdict = diagnose(_job(odd, 3)).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("rank-local-decision", [odd])
    assert "another way" in verdict.summary
    assert "strategy.py:154" in verdict.summary
    said = f"rank {odd} went on at strategy.py:154 to barrier, and"
    assert any(sentence.startswith(said) for sentence in verdict.evidence), verdict.evidence


@pytest.mark.parametrize(("leaves", "named"), [(True, True), (False, False)])
def test_the_line_that_ends_the_trainers_loop_is_named(leaves: bool, named: bool) -> None:
    where, asked = Frame(SCRIPT, 43, "training_step"), Frame(TRAINER, 135, "done")
    stop = Switch("should_stop", where, "if running < good", "value", asked, 144, leaves)
    verdict = diagnose(replace(_job(2, 3), switches=(stop,))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("rank-local-decision", [2])
    assert "another way" in verdict.summary
    assert ("`should_stop` (train.py:43, `if running < good`) ends that loop" in verdict.summary) is named
    assert (verdict.culprits[0].where == where) is named


def test_a_value_that_is_logged_under_a_condition_is_named_where_some_ranks_reduce_what_was_logged() -> None:
    result = Frame(TRAINER.replace("strategy.py", "result.py"), 439, "metrics")
    line = Frame(SCRIPT, 63, "validation_step")
    logged = Switch("log", line, "if (y == 1).any()", "check", Frame(result.file, 414, "log"), 0)
    elsewhere = replace(logged, asked=Frame(TRAINER, 30, "log"))  # all ranks come through that file
    verdict = diagnose(replace(_job(2, 3, result), switches=(logged, elsewhere))).verdict
    assert (verdict.cause, [(who.rank, who.where) for who in verdict.culprits]) == ("rank-local-decision", [(2, line)])
    assert verdict.summary.startswith(
        "Rank 2 reduces a logged value that ranks 0-1 do not: it is logged at train.py:63 behind"
        " `if (y == 1).any()`, which"
    )
    assert "log it on every rank" in verdict.fix
    guarded = replace(logged, condition="@rank_zero_only", asks="rank")
    alone = diagnose(replace(_job(2, 3, result), switches=(guarded, elsewhere))).verdict
    assert alone.cause == "rank-zero-only-collective"
    assert "behind `@rank_zero_only`, which lets only some ranks come there" in alone.summary
    unlike = diagnose(replace(_job(2, 3, result), switches=(elsewhere,))).verdict
    assert "another way" in unlike.summary


def test_of_two_ranks_neither_took_the_other_way() -> None:
    assert "another way" not in diagnose(_job(1, 2)).verdict.summary


def test_of_two_ranks_the_one_whose_step_is_unlike_its_earlier_ones_took_the_other_way() -> None:
    """GIVEN a rank that a trainer leads to validate within its step, as it never did WHEN the other one trains on."""
    usual: Program = [Draw(), Call("broadcast", line=12)]
    snapshot = world([*usual * 7], [*usual * 5, Call("barrier", line=12), *usual])
    verdict = diagnose(replace(snapshot, ranks=tuple(map(_below, snapshot.ranks)))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("rank-local-decision", [1])
    assert verdict.summary.startswith("Rank 1 took another way than rank 0 in Loop.epoch (strategy.py:154)")
    assert any(said.startswith("rank 1 issued 1 in every earlier step that is recorded") for said in verdict.evidence)


def test_a_call_of_the_users_own_hook_is_no_decision_of_the_trainer() -> None:
    assert "another way" not in diagnose(_job(1, 3, HOOK)).verdict.summary


@pytest.mark.parametrize("guard", ["rank", "other"])
def test_behind_a_rank_check_a_new_line_is_told_though_a_package_makes_the_call(guard: str) -> None:
    """The package's helper has called before, on all ranks; the user's hook leads one rank to it again."""
    helper = Frame(TRAINER, 213, "sync")
    paths = {
        "all_gather": (C10D, helper, *VALIDATE[1:]),
        "barrier": (C10D, helper, HOOK, *VALIDATE[1:]),
        "broadcast": ADVANCE,
    }

    def placed(entry: RankEvidence) -> RankEvidence:
        found = entry.collectives
        calls = [replace(call, frames=paths[call.op]) for call in found.recent]
        open_calls = tuple(replace(call, frames=paths[call.op]) for call in found.open_calls)
        mine = guard if calls[-1].op == "barrier" else "none"
        stacks = tuple(replace(s, frames=calls[-1].frames, in_loop=True, guard=mine) for s in entry.stacks)
        found = replace(found, recent=tuple(calls), open_calls=open_calls)
        return replace(entry, collectives=found, stacks=stacks, earlier_stacks=stacks)

    usual: Program = [Call("all_gather"), Call("broadcast", size=4), Draw()]
    odd: Program = [*usual * 5, Call("barrier"), *usual]
    snapshot = world(odd, *[[*usual * 5, Call("broadcast", size=4), *usual]] * 2)
    case = Case(replace(snapshot, ranks=tuple(map(placed, snapshot.ranks))))
    found = mispaired_at_a_new_place(case)
    assert (found is not None) is (guard == "rank")
    assert found is None or [who.rank for who in found.culprits] == [0]
    assert found is None or "no other rank has ever called a collective at train.py:7" in [
        w.says for w in found.witnesses
    ]
