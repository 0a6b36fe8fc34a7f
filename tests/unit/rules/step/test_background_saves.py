"""A checkpoint is saved by a thread of its own, and the main thread waits for that thread's result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Collective, Divergence, Frame, RankEvidence, Snapshot, Status, ThreadStack
from tests.unit.rules.step.decisions import GRADIENTS, Program, blamed, changed
from tests.unit.simulator import SCRIPT, STDLIB, TORCH, Call, Draw, World

SAVE = 30
FUTURE = (
    Frame(f"{STDLIB}/threading.py", 327, "wait"),
    Frame(f"{STDLIB}/concurrent/futures/_base.py", 451, "result"),
    Frame(SCRIPT, 40, "main"),
    Frame(SCRIPT, 99, "<module>"),
)

WRITE_DATA = Frame(f"{TORCH}/distributed/checkpoint/state_dict_saver.py", 500, "write_data")
LIBRARY = (
    Frame(f"{TORCH}/distributed/distributed_c10d.py", 4287, "all_gather"),
    Frame(f"{TORCH}/distributed/checkpoint/utils.py", 135, "gather_object"),
    Frame(f"{STDLIB}/concurrent/futures/thread.py", 58, "run"),
)


def saved(without: int | None, *, timed: bool = False) -> Snapshot:
    """Every 4th of 12 steps a thread gathers in a group of its own; rank `without` starts no second one."""

    def program(rank: int) -> Program:
        made: Program = []
        for step in range(12):
            saves = step % 4 == 3 and not (step > 3 and rank == without)
            made += [Draw(), GRADIENTS, *([Call("all_gather", line=SAVE, group="1")] if saves else [])]
        return made

    def in_thread(call: Collective) -> Collective:
        return replace(call, thread_name="saver", frames=()) if call.group == "1" else call

    def change(rank: RankEvidence) -> RankEvidence:
        found = replace(rank.collectives, recent=tuple(map(in_thread, rank.collectives.recent)))
        open_calls = tuple(map(in_thread, rank.collectives.open_calls))
        rank = replace(rank, collectives=replace(found, open_calls=open_calls))
        if not any(call.group == "1" for call in open_calls):
            return rank
        here = ThreadStack(8, "saver", rank.stacks[0].frames[:2])
        stacks = (ThreadStack(1, "MainThread", FUTURE, main=True), here)
        assert rank.reading is not None
        assert rank.process is not None
        process = replace(rank.process, system_call="futex", private_wait=not timed)
        reading = replace(rank.reading, open_calls=open_calls)
        return replace(rank, reading=reading, stacks=stacks, earlier_stacks=stacks, process=process)

    groups = {"0": ((0, 1, 2),), "1": ((0, 1, 2),)}
    return changed(World([program(rank) for rank in range(3)], groups=groups).run().snapshot(), change)


def test_a_rank_that_began_no_save_is_awaited_by_the_threads_of_the_others() -> None:
    judgement = diagnose(saved(1))
    verdict = judgement.verdict
    assert verdict.hang == "proven", verdict.summary
    assert (verdict.cause, [rank for rank, _ in blamed(judgement)]) == ("skipped-collective", [1])
    assert "the others still wait for it there" in verdict.summary
    assert verdict.step.step == 7


def test_a_wait_with_a_timeout_raises_by_itself() -> None:
    assert diagnose(saved(1, timed=True)).verdict.hang != "proven"


@pytest.mark.parametrize("timed", [False, True])
def test_a_thread_that_may_still_come_leaves_no_rank_behind(timed: bool) -> None:
    snapshot = saved(1, timed=timed)
    late = ThreadStack(9, "saver", (Frame(SCRIPT, 60, "write"),))

    def change(rank: RankEvidence) -> RankEvidence:
        stacks = (*rank.stacks, late) if rank.rank == 1 else rank.stacks
        return replace(rank, stacks=stacks, earlier_stacks=stacks)

    verdict = diagnose(changed(snapshot, change)).verdict
    assert (verdict.hang == "proven", verdict.cause == "skipped-collective") == (False, False)


def test_what_a_thread_on_its_way_has_yet_to_call_was_not_left_out() -> None:
    """GIVEN a save of many steps ago WHEN its calls are on record no more, and the thread of one rank writes still."""
    snapshot = replace(saved(1), divergences=(Divergence("1", (0, 1, 2), 3, None, None, {0: 1, 1: 0, 2: 1}, (1,)),))
    writes = ThreadStack(9, "saver", (Frame(SCRIPT, 60, "write"), WRITE_DATA, *LIBRARY[2:]))

    def change(rank: RankEvidence) -> RankEvidence:
        kept = tuple(call for call in rank.collectives.recent if call.group == "0")
        found = replace(rank.collectives, recent=kept)
        if rank.rank != 1:
            return replace(rank, collectives=found)
        stacks = (ThreadStack(1, "MainThread", FUTURE, main=True), writes)
        assert rank.process is not None
        process = replace(rank.process, system_call="futex", private_wait=True)
        return replace(rank, collectives=found, stacks=stacks, earlier_stacks=stacks, process=process)

    judgement = diagnose(changed(snapshot, change))
    assert (judgement.verdict.cause, judgement.status) == ("slow-checkpoint", Status.WAITING), judgement.verdict.summary
    assert blamed(judgement) == [(1, 60)]


def saved_alone(guard: str) -> Snapshot:
    """Rank 0 alone starts a save, whose thread gathers in a group that no rank has used; `guard` leads to its wait."""
    steps: Program = [action for _ in range(6) for action in (Draw(), GRADIENTS)]
    alone: Program = [*steps, Call("all_gather", line=SAVE, group="1")]
    snapshot = World([alone, [*steps, Draw(), GRADIENTS]], groups={"0": ((0, 1),), "1": ((0, 1),)}).run().snapshot()

    def change(rank: RankEvidence) -> RankEvidence:
        main = replace(rank.stacks[0], in_loop=True, guard="none")
        if rank.rank == 1:
            return replace(rank, stacks=(main,), earlier_stacks=(main,))
        here = ThreadStack(8, "saver", LIBRARY)
        stacks = (ThreadStack(1, "MainThread", FUTURE, main=True, in_loop=True, guard=guard), here)
        calls = tuple(replace(call, thread_name="saver", frames=LIBRARY) for call in rank.collectives.open_calls)
        kept = tuple(call for call in rank.collectives.recent if call.group == "0")
        found = replace(rank.collectives, open_calls=calls, recent=(*kept, *calls))
        assert rank.reading is not None
        assert rank.process is not None
        process = replace(rank.process, system_call="futex", private_wait=True)
        reading = replace(rank.reading, open_calls=calls)
        rank = replace(rank, reading=reading, process=process, collectives=found)
        return replace(rank, stacks=stacks, earlier_stacks=stacks)

    return changed(snapshot, change)


def test_a_save_that_only_one_rank_may_await_is_told_at_the_line_where_it_is_awaited() -> None:
    judgement = diagnose(saved_alone("rank"))
    verdict = judgement.verdict
    assert (verdict.hang, verdict.cause, verdict.certainty) == ("proven", "rank-zero-only-collective", "likely")
    assert [(each.rank, each.where.line if each.where else None) for each in verdict.culprits] == [(0, 40)]
    assert not any("has ever called" in sentence for sentence in verdict.evidence)


def test_a_save_that_every_rank_awaits_is_not_told_as_one_ranks_own() -> None:
    assert diagnose(saved_alone("none")).verdict.cause != "rank-zero-only-collective"
