"""`skipped-collective`: the few went by a call under a condition on the rank."""

from __future__ import annotations

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
    Judgement,
    Phase,
    Progress,
    RankEvidence,
)
from tests.unit.job import C10D, NOW, TORCH, gone, judge, main_thread
from tests.unit.rules.step.aborts import CLOSED
from tests.unit.rules.step.decisions import SAVE, blamed, changed, way
from tests.unit.simulator import SCRIPT, Call, World


def judged(asks: str, *without: int, ranks: int = 3, in_loop: bool = False) -> Judgement:
    """Before the first step: `without` returned ahead of a barrier, and are in a call behind it."""

    def straight(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, in_loop=in_loop) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    made, common = Call("barrier", line=SAVE), Call("all_gather", line=40)
    programs = [[common] if rank in without else [made, common] for rank in range(ranks)]
    snapshot = changed(World(programs).run().snapshot(), straight)
    site = CallSite((Frame(SCRIPT, SAVE, "main"),), (way(asks),))
    return diagnose(replace(snapshot, call_sites=(site,)))


def test_the_rank_that_returned_ahead_of_a_barrier_left_it_out() -> None:
    judgement = judged("rank", 0)
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert blamed(judgement) == [(0, 28)]
    assert "Rank 0 went by barrier (train.py:30), probably at train.py:28" in judgement.verdict.summary
    assert "move it out of the branch on the rank" in judgement.verdict.fix


@pytest.mark.parametrize(
    ("without", "ranks"), [((0, 1), 3), ((0,), 2)], ids=["the one that calls it is odd", "of two halves"]
)
def test_only_the_few_went_by(without: tuple[int, ...], ranks: int) -> None:
    assert "went by" not in judged("rank", *without, ranks=ranks).verdict.summary


def test_in_a_loop_the_order_of_the_lines_says_nothing() -> None:
    assert "went by" not in judged("rank", 0, in_loop=True).verdict.summary


DCP = f"{TORCH}/distributed/checkpoint"
LOAD = (Frame(SCRIPT, 28, "resume"), Frame(SCRIPT, 37, "main"), Frame(SCRIPT, 50, "<module>"))
WRAPPED = (Frame(f"{DCP}/state_dict_loader.py", 171, "load"), Frame(f"{DCP}/logger.py", 90, "wrapper"))
GATHER = (Frame(C10D, 4660, "gather"), Frame(f"{DCP}/utils.py", 130, "gather_object"), *WRAPPED, *LOAD)
BROADCAST = (Frame(C10D, 3145, "broadcast"), Frame(f"{DCP}/utils.py", 180, "scatter_object"), *WRAPPED, *LOAD)
MODELS = "DDP expects same model across all ranks, but Rank 1 has 2 params, while rank 0 has inconsistent 422 params."


def ended(number: int, frames: tuple[Frame, ...], message: str = CLOSED) -> RankEvidence:
    """It failed there before its first step, after a barrier that all made."""
    barrier = (Frame(C10D, 5349, "barrier"), Frame(SCRIPT, 36, "main"), Frame(SCRIPT, 50, "<module>"))
    made = [barrier, *([GATHER] if frames == BROADCAST else []), *([frames] if message == CLOSED else [])]
    ring = tuple(
        Collective("0", seq, path[0].function, frames=path, at=NOW - 20 + seq, thread_name="MainThread")
        for seq, path in enumerate(made, 1)
    )
    found = gone(number, 1, Phase.FINALIZING, calls=ring, issued=len(ring), completed=len(ring) - 1, world_size=3)
    assert found.reading is not None
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 11)
    stack = replace(main_thread(frames), source="error", in_loop=False)
    return replace(found, reading=replace(found.reading, exception=error, progress=Progress()), stacks=(stack,))


@pytest.mark.parametrize("other", [BROADCAST, GATHER], ids=["further in it", "at one place in it"])
def test_a_function_that_makes_several_collectives_is_one_call_that_the_few_went_by(other: tuple[Frame, ...]) -> None:
    """GIVEN a checkpoint that is loaded where there is one WHEN DDP's check of parameters gets what belongs to it."""
    check = (
        Frame(f"{TORCH}/distributed/utils.py", 286, "_verify_param_shape_across_processes"),
        Frame(f"{TORCH}/nn/parallel/distributed.py", 1064, "__init__"),
        Frame(SCRIPT, 39, "main"),
        Frame(SCRIPT, 50, "<module>"),
    )
    site = CallSite(LOAD, (Bypass(Frame(SCRIPT, 27, "resume"), "if os.path.isdir(folder(rank))", True, "rank"),))
    judgement = judge(ended(0, GATHER), ended(1, check, MODELS), ended(2, other), world_size=3, call_sites=(site,))
    verdict = judgement.verdict
    assert (verdict.cause, blamed(judgement)) == ("skipped-collective", [(1, 27)]), verdict.summary
    assert "Rank 1 went by load (train.py:28), probably at train.py:27" in verdict.summary


def test_the_rank_for_which_a_check_did_not_hold_left_out_a_call_that_is_new_to_all() -> None:
    """The first gather of an evaluation stands behind `if not self.predictions: return`; one rank had none."""
    judgement = judged("check", 2)
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert blamed(judgement) == [(2, 28)]
    assert "the branch on the rank" not in judgement.verdict.fix
