"""`concurrent-collectives`: two threads use one process group."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Collective, Collectives, Frame, GroupHead, Phase, RankEvidence, Snapshot, ThreadStack
from hangwatch.ranks.issuers import MAIN
from hangwatch.stacks.frames import stacks_of_trace
from tests.unit.job import SCRIPT, blamed, gone, judge, rank, told
from tests.unit.rules.step.endings import USER
from tests.unit.rules.step.worlds import STEP, Program, changed, world
from tests.unit.simulator import TORCH, Call, Draw, blamed_ranks


def test_paired_calls_of_two_threads_are_no_mismatch_of_the_program() -> None:
    def using(number: int, here: str, there: str, size: int) -> RankEvidence:
        past = Collective("0", 1, "all_reduce", ((size,),), ("float",), thread_name=there, frames=USER)
        now = Collective("0", 2, "all_reduce", ((1001 - size,),), ("float",), thread_name=here, frames=USER)
        entry = gone(number, -6, Phase.STEP, issued=2, completed=1)
        return replace(entry, collectives=replace(entry.collectives, recent=(past, now)))

    judgement = judge(using(0, "MainThread", "beat", 1000), using(1, "beat", "MainThread", 1))
    assert told(judgement) == ("concurrent-collectives", "likely", "failed")
    assert "Threads 'MainThread' and 'beat' of each rank" in judgement.verdict.summary


BEAT = (Frame("/home/ann/train.py", 19, "beat"), Frame("/usr/lib/python3.12/threading.py", 1002, "_bootstrap"))


@pytest.mark.parametrize("function", ["beat", "log"])
def test_a_thread_that_has_not_called_yet_on_the_other_ranks_is_no_call_of_one_rank_alone(function: str) -> None:
    """GIVEN a thread whose first call came on rank 0 first WHEN the others have one that runs the same function."""

    def using(number: int, now: Collective) -> RankEvidence:
        past = Collective("0", 1, "broadcast", ((72,),), ("float",), thread_name="MainThread", frames=USER)
        entry = gone(number, -6, Phase.STEP, issued=2, completed=1, world_size=3)
        waits = (Frame("/home/ann/train.py", 17, function), BEAT[1])
        stacks = (ThreadStack(7, "", waits if number else BEAT),)
        return replace(entry, stacks=stacks, collectives=replace(entry.collectives, recent=(past, now)))

    beat = Collective("0", 2, "all_reduce", ((1,),), ("float",), thread_name="throughput", frames=BEAT)
    usual = Collective("0", 2, "broadcast", ((72,),), ("float",), thread_name="MainThread", frames=USER)
    judgement = judge(using(0, beat), using(1, usual), using(2, usual))
    assert (judgement.verdict.cause == "concurrent-collectives") is (function == "beat"), judgement.verdict.summary
    if function == "beat":
        assert [rank for rank, _, _ in blamed(judgement)] == [0, 1, 2]
        said = "on rank 0, threads 'MainThread' and 'throughput' have issued calls in it"
        assert said in judgement.verdict.evidence


TWO_THREADS = f"""Fatal Python error: Aborted
Thread 0x2 (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/ann/train.py", line 17 in save

Current thread 0x1 (most recent call first):
  File "{TORCH}/autograd/graph.py", line 979 in _engine_run_backward
  File "{TORCH}/_tensor.py", line 600 in backward
  File "/home/ann/train.py", line 30 in main
"""


def test_a_rank_that_was_aborted_in_two_threads_of_one_group() -> None:
    """The background's all_reduce met another rank's gradients; what is left of the rank is its crash trace."""
    ring = (Collective("0", 9, "all_reduce", thread_name="ckpt", frames=USER),)
    entry = gone(0, -6, Phase.BACKWARD, issued=9, completed=8)
    assert entry.reading is not None
    entry = replace(entry, stacks=stacks_of_trace(TWO_THREADS), reading=replace(entry.reading, calls=ring))
    judgement = judge(entry, gone(1, -15, Phase.FINALIZING, issued=8, completed=8))
    assert told(judgement) == ("concurrent-collectives", "likely", "failed")
    assert blamed(judgement) == [(0, 100, "rank")]
    assert "thread 'ckpt' in all_reduce (train.py:17)" in judgement.verdict.summary
    assert "thread 'MainThread' in" in judgement.verdict.summary


def test_threads_of_a_crash_trace_that_had_groups_of_their_own_are_not_in_one() -> None:
    """The same, but the recorded call of the background is one of another group."""
    own = Collective("saves", 2, "all_reduce", thread_name="ckpt", frames=USER)
    entry = gone(0, -6, Phase.BACKWARD, issued=9, completed=8)
    collectives = replace(entry.collectives, open_calls=(own,))
    entry = replace(entry, stacks=stacks_of_trace(TWO_THREADS), collectives=collectives)
    judgement = judge(entry, gone(1, -15, Phase.FINALIZING, issued=8, completed=8))
    assert judgement.verdict.cause != "concurrent-collectives", judgement.verdict.summary


def test_two_threads_in_one_group_are_named() -> None:
    snapshot = world(STEP * 3, STEP * 4)

    def with_thread(entry: RankEvidence) -> RankEvidence:
        frames = (
            Frame(f"{TORCH}/distributed/distributed_c10d.py", 9, "barrier"),
            Frame("/home/ann/log.py", 8, "report"),
        )
        thread = ThreadStack(7, "reporter", frames)
        stacks = (*entry.stacks, thread)
        open_calls = (*entry.collectives.open_calls, Collective("0", 9, "barrier", thread_name="reporter"))
        collectives = replace(entry.collectives, open_calls=open_calls)
        return replace(entry, stacks=stacks, earlier_stacks=stacks, collectives=collectives)

    verdict = diagnose(changed(snapshot, 1, with_thread)).verdict
    assert verdict.cause == "concurrent-collectives"
    assert [(culprit.rank, culprit.where and culprit.where.function) for culprit in verdict.culprits] == [(1, "report")]
    assert "'reporter'" in verdict.summary


GRADIENTS, SAVE = Call(via="gradients", line=12), Call(line=20, size=1)


def saving_in_background(*programs: Program) -> Snapshot:
    """The calls of line 20 are those of a thread `ckpt`, and DDP's own are not recorded one by one."""

    def change(entry: RankEvidence) -> RankEvidence:
        calls = entry.collectives.recent
        ring = tuple(replace(call, thread_name="ckpt") for call in calls if call.frames[0].line == 20)
        assert entry.reading is not None
        collectives = replace(entry.collectives, recent=(), open_calls=(), source="board")
        return replace(entry, reading=replace(entry.reading, calls=ring), collectives=collectives)

    snapshot = world(*programs)
    return replace(snapshot, ranks=tuple(map(change, snapshot.ranks)))


@pytest.mark.parametrize("late", [0, 2])
def test_a_background_thread_that_comes_late_on_one_rank_crosses_with_the_training(late: int) -> None:
    usual: Program = [Draw(), GRADIENTS, SAVE, Draw(), GRADIENTS] * 4
    other: Program = [*usual[:15], Draw(), GRADIENTS, Draw(), GRADIENTS, SAVE]
    judgement = diagnose(saving_in_background(*(other if rank == late else usual for rank in range(3))))
    assert judgement.verdict.cause == "concurrent-collectives"
    assert sorted(blamed_ranks(judgement), key=str) == [0, 1, 2]
    assert "in thread 'ckpt'" in judgement.verdict.evidence[0]
    assert f"and not on rank {late}" in judgement.verdict.evidence[0]


def test_a_program_that_trains_in_a_thread_has_no_background() -> None:
    """What its thread skips is skipped by the training."""
    usual: Program = [Draw(), GRADIENTS, SAVE, Draw(), GRADIENTS] * 4
    snapshot = saving_in_background(usual, [*usual[:12], *usual[13:]], usual)
    assert diagnose(snapshot).verdict.cause == "concurrent-collectives"
    for number in range(3):
        snapshot = changed(
            snapshot, number, lambda entry: replace(entry, stacks=tuple(replace(s, name="ckpt") for s in entry.stacks))
        )
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("skipped-collective", [1])


def test_a_background_thread_of_one_mind_is_not_blamed_for_what_the_training_skipped() -> None:
    usual: Program = [Draw(), GRADIENTS, SAVE, Draw(), GRADIENTS] * 4
    short: Program = [*usual[:8], Draw(), *usual[10:]]
    judgement = diagnose(saving_in_background(usual, short, usual))
    assert judgement.verdict.cause == "skipped-collective"
    assert blamed_ranks(judgement) == [1]


def test_two_threads_that_take_turns_by_a_lock_of_their_own_on_each_rank() -> None:
    """GIVEN a rank whose background thread is in a call WHEN its main thread waits for the lock, and another rank's
    main thread is in the other call THEN both are to blame, and no rank is said to be stuck alone."""
    call = (Frame(f"{TORCH}/distributed/distributed_c10d.py", 9, "all_reduce"), Frame(SCRIPT, 32, "run"))
    one = _holding("ema", ThreadStack(7, "ema", call), (Frame(SCRIPT, 48, "step"),), ema=1, main=4)
    main = (call[0], Frame(SCRIPT, 50, "step"))
    other = _holding(MAIN, ThreadStack(7, "ema", (Frame(SCRIPT, 29, "run"),)), main, ema=0, main=5)
    verdict = judge(one, other).verdict
    assert (verdict.cause, verdict.certainty, [each.rank for each in verdict.culprits]) == (
        "concurrent-collectives",
        "likely",
        [0, 1],
    )
    assert "thread 'ema' waits in all_reduce 1 of group ema (train.py:32)" in verdict.summary
    assert "its main thread for a lock (train.py:48)" in verdict.summary
    assert "hold no lock across a collective" in verdict.fix


def _holding(caller: str, thread: ThreadStack, stack: tuple[Frame, ...], *, ema: int, main: int) -> RankEvidence:
    """A rank of two whose thread `caller` is in a call of a group of its own; four calls of the main group are over."""
    group, seq = ("0", main) if caller == MAIN else ("ema", ema)
    heads = (GroupHead("0", (0, 1), "", "gloo", main, 4), GroupHead("ema", (0, 1), "", "gloo", ema, 0))
    made = Collectives(heads, open_calls=(Collective(group, seq, "all_reduce", thread_name=caller),))
    waits = {"private_wait": True, "system_call": "futex", "cpu_delta_s": 0.0}
    number = 0 if caller != MAIN else 1
    entry = rank(number, stack, threads=(thread,), facts=waits, still_s=300.0)
    return replace(entry, collectives=made)
