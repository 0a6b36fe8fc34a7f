"""`data-dependent-graph`: on one rank the graph differs by data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import (
    Bypass,
    CallSite,
    Certainty,
    Collective,
    ExceptionFacts,
    Frame,
    RankEvidence,
    Snapshot,
)
from tests.unit.rules.step.decisions import END, GRADIENTS, MODULE, SAVE, Program, blamed, changed, job, way
from tests.unit.simulator import SCRIPT, TORCH, Call, Draw, World

CAUSE = "data-dependent-graph"


HOOK = Frame(f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 276, "foreach_all_gather")
OWN = Frame(f"{TORCH}/distributed/nn/functional.py", 291, "all_reduce")


def within_a_module(snapshot: Snapshot, function: str = "forward", caller: Frame = HOOK) -> Snapshot:
    """The calls at line 30 were made by a hook below a module's forward, in `function` of the user's file."""

    def frames(call: Collective) -> Collective:
        if call.frames[0].line != SAVE:
            return call
        forward, loop = Frame(SCRIPT, SAVE, function), Frame(SCRIPT, 10, "main")
        return replace(call, frames=(caller, forward, MODULE, loop))

    def change(rank: RankEvidence) -> RankEvidence:
        return replace(rank, collectives=replace(rank.collectives, recent=tuple(map(frames, rank.collectives.recent))))

    sites = tuple(
        replace(site, frames=(Frame(SCRIPT, SAVE, function), Frame(SCRIPT, 10, "main"))) for site in snapshot.call_sites
    )
    return replace(changed(snapshot, change), call_sites=sites)


def test_a_call_of_the_program_itself_within_a_module_was_skipped() -> None:
    """The parts of the model differ there as well; what is missing is a call that the user wrote."""
    ways = (way("check", function="forward"),)
    judgement = diagnose(within_a_module(job(3, (0, 2), ways, every_step=True), caller=OWN))
    assert (judgement.verdict.cause, blamed(judgement)) == ("skipped-collective", [(1, 28)])


@pytest.mark.parametrize("asks", ["value", "check"])
def test_a_module_that_one_rank_did_not_run_is_a_graph_that_differs(asks: str) -> None:
    ways = (way(asks, function="forward"),)
    judgement = diagnose(within_a_module(job(3, (0, 2), ways, every_step=True)))
    verdict = judgement.verdict
    assert (verdict.cause, blamed(judgement)) == ("data-dependent-graph", [(1, 28)]), verdict.summary
    assert "did not run the same parts of the model in epoch 0, batch 8" in verdict.summary
    assert any("within the model's forward" in sentence for sentence in verdict.evidence)
    assert "set_z3_leaf_modules" in verdict.fix


@pytest.mark.parametrize(("usual", "named"), [(True, [(1, 28)]), (False, [(0, 28), (1, 28)])])
def test_of_two_ranks_the_one_without_a_module_of_every_step_is_named(
    usual: bool, named: list[tuple[int, int]]
) -> None:
    """In batch 8 rank 0 gathers the module's parameters, and rank 1 is in the next module's call of that number."""

    def program(rank: int) -> Program:
        made: Program = []
        for batch in range(9):
            runs = rank == 0 if batch == 8 else usual or batch == 2
            made += [Draw(0, batch), *[Call("all_gather", line=SAVE)] * runs, Call("broadcast", line=40), GRADIENTS]
        return made

    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way("check", function="forward"),))
    snapshot = replace(World([program(0), program(1)]).run().snapshot(), call_sites=(site,))
    verdict = diagnose(within_a_module(snapshot)).verdict
    assert verdict.cause == "data-dependent-graph", verdict.summary
    assert [(who.rank, who.where.line if who.where else 0) for who in verdict.culprits] == named


def test_a_condition_outside_of_the_module_is_none_of_the_graph() -> None:
    judgement = diagnose(within_a_module(job(3, (0, 2), (way("check", line=9),), every_step=True)))
    assert judgement.verdict.cause == "skipped-collective"


def test_a_trainers_step_is_no_module_though_a_wrappers_forward_leads_to_it() -> None:
    ways = (way("value", function="training_step"),)
    judgement = diagnose(within_a_module(job(3, (0, 2), ways, every_step=True), "training_step"))
    assert (judgement.verdict.cause, blamed(judgement)) == ("skipped-collective", [(1, 28)])


ATTACK = Call(via="gradients", line=8)


def unreduced(
    *, optimized: bool, ways: tuple[Bypass, ...] = (), log: str = "all_reduce", attacks: Sequence[list[Call]] = ([], [])
) -> Snapshot:
    """Rank 1 issues no gradients in batch 5; it makes that step of its optimizer, or does not.

    Its next call pairs with the others' gradients, so that all go on, unless `log` is another operation. `attacks`:
    from the fourth step on these are made in backwards by another line before that one, and in that step of rank 1
    those, with its gradients behind them.
    """

    def program(rank: int) -> Program:
        made: Program = []
        for batch in range(10):
            odd = (rank, batch) == (1, 5)
            attack = attacks[odd] if batch > 2 else []
            made += [Draw(0, batch), *attack, *([] if odd and not any(attacks) else [GRADIENTS]), Call(log, line=14)]
        return [*made, *END]

    def change(rank: RankEvidence) -> RankEvidence:
        assert rank.reading is not None
        lost = 0 if optimized or rank.rank != 1 else 1
        steps = tuple(
            replace(step, optimizer_steps=step.step - (lost if step.step > 5 else 0)) for step in rank.reading.steps
        )
        backward = Frame(f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward")
        recent = tuple(
            replace(call, frames=(backward, *call.frames)) if call.frames[0].line in (8, 12) else call
            for call in rank.collectives.recent
        )
        made = (steps[-1].optimizer_steps or 0) + (optimized and rank.rank == 1)
        progress = replace(rank.reading.progress, optimizer_steps=made)
        collectives = replace(rank.collectives, recent=recent)
        return replace(rank, reading=replace(rank.reading, steps=steps, progress=progress), collectives=collectives)

    snapshot = World([program(rank) for rank in range(3)]).run().snapshot()
    return replace(changed(snapshot, change), call_sites=(CallSite((Frame(SCRIPT, 12, "main"),), ways),))


def test_a_rank_that_went_on_to_its_optimizer_has_not_skipped_backward() -> None:
    judgement = diagnose(unreduced(optimized=True))
    verdict = judgement.verdict
    assert (verdict.cause, blamed(judgement)) == ("data-dependent-graph", [(1, 12)]), verdict.summary
    assert verdict.certainty is Certainty.PROVEN
    assert (verdict.step.epoch, verdict.step.batch) == (0, 5)
    assert "ended without all of its gradients" in verdict.summary
    assert "rank 1 went on in that very step, so that backward was not left out as a whole" in verdict.evidence
    assert "find_unused_parameters" in verdict.fix


def test_in_the_very_step_the_others_still_stand_in_backward() -> None:
    judgement = diagnose(unreduced(optimized=True, log="all_gather"))
    verdict = judgement.verdict
    assert (verdict.cause, blamed(judgement)) == ("data-dependent-graph", [(1, 12)]), verdict.summary
    assert verdict.certainty is Certainty.LIKELY
    assert (verdict.step.epoch, verdict.step.batch) == (0, 5)
    assert "rank 1 is past optimizer.step() and had reduced gradients in the steps before" in verdict.evidence
    assert "ranks 0 and 2 stand in the backward of that step" in verdict.evidence


@pytest.mark.parametrize("made", [0, 2])
def test_a_loop_of_backwards_within_a_step_that_one_rank_left_early(made: int) -> None:
    """Five backwards by one line and one by another: the rank has made `made` and one of them, each with its call."""
    judgement = diagnose(unreduced(optimized=True, attacks=[[ATTACK] * 5, [ATTACK] * made]))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert [rank for rank, _ in blamed(judgement)] == [1]


def test_where_another_model_was_reduced_alone_nothing_is_sure() -> None:
    buckets = [replace(ATTACK, size=size) for size in (100, 400, 250, 300)]
    judgement = diagnose(unreduced(optimized=True, attacks=[buckets, []]))
    assert judgement.verdict.certainty is Certainty.LIKELY
    assert [rank for rank, _ in blamed(judgement)] == [1]


def test_a_turn_that_ended_without_its_optimizer_has_skipped_backward() -> None:
    judgement = diagnose(unreduced(optimized=False))
    assert (judgement.verdict.cause, [rank for rank, _ in blamed(judgement)]) == ("skipped-collective", [1])


def test_a_condition_around_backward_alone_has_skipped_it() -> None:
    judgement = diagnose(unreduced(optimized=True, ways=(way("check", line=11),)))
    assert (judgement.verdict.cause, [rank for rank, _ in blamed(judgement)]) == ("skipped-collective", [1])


SAID = (
    "Expected to have finished reduction in the prior iteration before starting a new one. ...\n"
    "Parameter indices which did not receive grad for rank 1: 4 5\n In addition, you can set ..."
)


@pytest.mark.parametrize("everywhere", [False, True])
def test_torchs_own_error_settles_it_unless_every_rank_has_it(everywhere: bool) -> None:
    error = ExceptionFacts("RuntimeError", SAID, (Frame(SCRIPT, 11, "main"),), at=1000.0, fatal=False)

    def change(rank: RankEvidence) -> RankEvidence:
        raises = rank.reading is not None and (everywhere or rank.rank == 1)
        return replace(rank, reading=replace(rank.reading, exception=error)) if raises and rank.reading else rank

    judgement = diagnose(changed(unreduced(optimized=False), change))
    verdict = judgement.verdict
    if everywhere:
        assert verdict.cause == "skipped-collective"
        return
    assert (verdict.cause, blamed(judgement)) == ("data-dependent-graph", [(1, 12)])
    assert verdict.certainty is Certainty.PROVEN
    assert (verdict.step.epoch, verdict.step.batch) == (0, 5)
    assert "(indices 4 5 of its parameters)" in verdict.summary
    refused = "torch refused the next forward of rank 1 (train.py:11): its last reduction was not finished"
    assert refused in verdict.evidence


def test_older_records_without_the_frames_of_torch_do_not_hide_the_module() -> None:
    """A ring keeps the whole path of the newest calls alone."""
    snapshot = within_a_module(job(3, (0, 2), (way("check", function="forward"),), every_step=True))

    def older(call: Collective) -> Collective:
        kept = tuple(frame for frame in call.frames if frame != MODULE) if (call.step or 0) < 6 else call.frames
        return replace(call, frames=kept)

    def change(rank: RankEvidence) -> RankEvidence:
        return replace(rank, collectives=replace(rank.collectives, recent=tuple(map(older, rank.collectives.recent))))

    judgement = diagnose(changed(snapshot, change))
    assert (judgement.verdict.cause, blamed(judgement)) == ("data-dependent-graph", [(1, 28)])


ENGINE = (Frame(SCRIPT, 40, "backward"), Frame(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward"))


@pytest.mark.parametrize(
    ("frames", "step", "expected"),
    [
        pytest.param(ENGINE, 5, "exception-on-one-rank", id="an error ended that backward"),
        pytest.param(ENGINE, 4, "data-dependent-graph", id="it was another step's"),
        pytest.param(ENGINE[:1], 5, "data-dependent-graph", id="it was no error of a backward"),
    ],
)
def test_an_error_that_ended_the_backward_is_no_parameter_that_was_left_out(
    frames: tuple[Frame, ...], step: int, expected: str
) -> None:
    """torch takes both for parameters without a part in the loss."""
    refused = ExceptionFacts("RuntimeError", SAID, (Frame(SCRIPT, 11, "main"),), at=1000.0, fatal=False)
    caught = ExceptionFacts("FloatingPointError", "refused", (*frames, Frame(SCRIPT, 12, "main")), step=step)

    def change(rank: RankEvidence) -> RankEvidence:
        if rank.reading is None or rank.rank != 1:
            return rank
        return replace(rank, reading=replace(rank.reading, exception=refused, caught=(caught,)))

    judgement = diagnose(changed(unreduced(optimized=False), change))
    verdict = judgement.verdict
    assert verdict.cause == expected, verdict.summary
    if expected == "exception-on-one-rank":
        assert (blamed(judgement), verdict.certainty) == ([(1, 40)], Certainty.PROVEN)
        assert "FloatingPointError: refused" in verdict.summary
        assert "within the backward of epoch 0, batch 5" in verdict.summary


def below_a_trainer(snapshot: Snapshot, backward_step: int | None) -> Snapshot:
    """A package's loop calls backward, below one line of the user's: its source is not read."""
    package = Frame("/venv/lib/python3.12/site-packages/trainer/loop.py", 190, "advance")

    def change(rank: RankEvidence) -> RankEvidence:
        def of(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
            inside = any(frame.function == "_engine_run_backward" for frame in frames)
            own = tuple(frame for frame in frames if frame.file != SCRIPT)
            return (*own, package, Frame(SCRIPT, 60, "main")) if inside else frames

        assert rank.reading is not None
        recent = tuple(replace(call, frames=of(call.frames)) for call in rank.collectives.recent)
        stacks = tuple(replace(stack, frames=of(stack.frames)) for stack in rank.stacks)
        progress = replace(rank.reading.progress, backward_step=backward_step if rank.rank == 1 else 5)
        return replace(
            rank, collectives=replace(rank.collectives, recent=recent), stacks=stacks, earlier_stacks=stacks,
            reading=replace(rank.reading, progress=progress),
        )  # fmt: skip

    return changed(snapshot, change)


@pytest.mark.parametrize(("backward_step", "cause"), [(5, CAUSE), (4, None), (None, None)])
def test_below_a_trainer_the_board_says_whether_backward_was_called(backward_step: int | None, cause: str) -> None:
    judgement = diagnose(below_a_trainer(unreduced(optimized=True, log="all_gather"), backward_step))
    assert (judgement.verdict.cause == CAUSE) is (cause == CAUSE), judgement.verdict.summary
    if cause:
        assert [rank for rank, _ in blamed(judgement)] == [1]


def test_a_backward_that_the_board_knows_to_be_missing_was_skipped() -> None:
    snapshot = unreduced(optimized=True)

    def change(rank: RankEvidence) -> RankEvidence:
        assert rank.reading is not None
        return replace(rank, reading=replace(rank.reading, progress=replace(rank.reading.progress, backward_step=4)))

    judgement = diagnose(changed(snapshot, change))
    assert (judgement.verdict.cause, [rank for rank, _ in blamed(judgement)]) == ("skipped-collective", [1])


@pytest.mark.parametrize(("backward_step", "cause"), [(5, CAUSE), (4, "skipped-collective")])
def test_before_its_optimizer_the_board_says_that_it_called_backward(backward_step: int, cause: str) -> None:
    """GIVEN gradients that are averaged after a backward which communicates WHEN it lacks its calls on rank 1."""

    def change(rank: RankEvidence) -> RankEvidence:
        assert rank.reading is not None
        mine = backward_step if rank.rank == 1 else 5
        return replace(rank, reading=replace(rank.reading, progress=replace(rank.reading.progress, backward_step=mine)))

    judgement = diagnose(changed(unreduced(optimized=False, log="all_gather"), change))
    assert (judgement.verdict.cause, [rank for rank, _ in blamed(judgement)]) == (cause, [1])
    assert ("rank 1 called backward in epoch 0, batch 5 (step 5)" in judgement.verdict.evidence) is (cause == CAUSE)
