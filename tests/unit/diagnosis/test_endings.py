"""Jobs that came down without a hang: who ended first, and what the others failed for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import (
    Collective,
    ExceptionFacts,
    Frame,
    LoaderFacts,
    LoopFacts,
    Phase,
    Progress,
    RankEvidence,
    StepEntry,
)
from hangwatch.stacks.frames import stacks_of_trace
from tests.unit.diagnosis.job import (
    C10D,
    IN_BACKWARD,
    IN_BARRIER,
    IN_CODE,
    LIB,
    NOW,
    SCRIPT,
    TORCH,
    blamed,
    frames,
    gone,
    judge,
    rank,
    told,
)

DDP = f"{TORCH}/nn/parallel/distributed.py"
CLOSED = "Connection closed by peer [127.0.0.1]:59549"
USER = (Frame(SCRIPT, 13, "evaluate"), Frame(SCRIPT, 30, "main"))


def failed(number: int, *inner: tuple[str, int, str], forwards: int = 0, message: str = CLOSED) -> RankEvidence:
    frames = (*(Frame(*frame) for frame in inner), *USER)
    error = ExceptionFacts("RuntimeError", message, frames, at=NOW - 12)
    progress = Progress(step=5, epoch=0, batch=5, forwards=forwards)
    return gone(number, 1, Phase.FAILED, exception=error, progress=progress)


def ended(number: int, phase: Phase = Phase.FINALIZING, *, step: int = 5, forwards: int = 6) -> RankEvidence:
    return gone(number, 0, phase, progress=Progress(step=step, epoch=0, batch=5, forwards=forwards))


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_leaves_with_code_0_in_the_middle_has_died(culprit: int) -> None:
    judgement = judge(ended(culprit, Phase.STEP), failed(1 - culprit, (DDP, 1, "forward")))
    assert told(judgement) == ("rank-died", "proven", "failed")
    assert blamed(judgement) == [(culprit, 100 + culprit, "rank")]
    assert "left with exit code 0 in the middle of its training" in judgement.verdict.summary


def test_ranks_that_were_all_asked_to_end_are_not_at_fault() -> None:
    judgement = judge(gone(0, -15, Phase.STEP), gone(1, -15, Phase.BACKWARD))
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []
    assert "All ranks were ended by SIGTERM" in judgement.verdict.summary


def test_one_that_was_killed_so_while_the_other_failed_for_it_has_died() -> None:
    judgement = judge(gone(0, -15, Phase.STEP, ticker_at=NOW - 13), failed(1, (DDP, 1, "forward")))
    assert told(judgement)[0] == "rank-died"
    assert blamed(judgement) == [(0, 100, "rank")]


def test_one_that_the_launcher_ended_after_another_had_failed_is_not_the_first_to_die() -> None:
    """GIVEN a rank that has left, and one that failed for it, WHEN torchrun ends the rest THEN who left is named."""
    left = gone(3, 0, Phase.FINALIZING, progress=Progress(step=5, calls=9))
    rest = [gone(rank, -15, Phase.EVAL) for rank in (0, 1)]
    judgement = judge(*rest, failed(2, (C10D, 3000, "all_reduce")), left, world_size=4)
    assert told(judgement) == ("exit-destroy-asymmetric", "likely", "failed")
    assert blamed(judgement) == [(3, 103, "rank")]
    # AND without anybody who has left, nobody who was ended so is blamed for the one that failed
    assert (0, 100, "rank") not in blamed(judge(*rest, failed(2, (C10D, 3000, "all_reduce")), world_size=3))


def test_all_leave_in_the_middle_and_nobody_suffers() -> None:
    assert told(judge(ended(0, Phase.STEP), ended(1, Phase.STEP)))[2] == "waiting"


BUFFERS = ((DDP, 2425, "_sync_buffers"), (DDP, 1782, "_pre_forward"))


def test_a_rank_that_evaluated_alone_and_failed_when_the_others_were_done() -> None:
    judgement = judge(failed(0, *BUFFERS, forwards=14), ended(1), ended(2), world_size=3)
    assert told(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert blamed(judgement) == [(0, 100, "rank")]
    assert "rank 0 made 8 forwards more than any other rank, in as many steps" in judgement.verdict.evidence


@pytest.mark.parametrize("forwards", [6, 5])
def test_without_more_forwards_nobody_is_blamed(forwards: int) -> None:
    judgement = judge(failed(0, *BUFFERS, forwards=forwards), ended(1))
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []


def test_a_rank_that_ended_steps_before_the_one_that_failed() -> None:
    judgement = judge(failed(0, (DDP, 1, "forward")), ended(1, step=3))
    assert told(judgement) == ("uneven-steps", "likely", "failed")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "after 4 steps" in judgement.verdict.summary


# ------------------------------------------------------------------------------------------ ledgers of the dead


def stepped(number: int, counts: list[int], *, head: int, code: int = -6, **parts: Any) -> RankEvidence:
    """A rank that died after these numbers of collectives in its steps; its last word says `head`."""
    issued = [sum(counts[:step]) for step in range(len(counts) + 1)]
    steps = tuple(StepEntry(step, 0, step, 0, NOW - 20, {"0": before}) for step, before in enumerate(issued))
    progress = Progress(step=len(counts), epoch=0, batch=len(counts))
    return gone(number, code, Phase.STEP, issued=head, completed=head, steps=steps, progress=progress, **parts)


@pytest.mark.parametrize("culprit", [0, 1])
def test_one_that_left_out_a_call_before_the_job_came_down(culprit: int) -> None:
    odd, usual = stepped(culprit, [2] * 12 + [1], head=20), stepped(1 - culprit, [2] * 12, head=18, code=-15)
    judgement = judge(odd, usual)
    assert told(judgement) == ("skipped-collective", "likely", "failed")
    assert blamed(judgement) == [(culprit, 100 + culprit, "rank")]
    assert judgement.verdict.step.batch == 12
    assert f"rank {culprit} issued 1 instead of 2 collectives" in judgement.verdict.evidence[0]


def test_a_habit_that_ranks_do_not_share_blames_nobody_for_it() -> None:
    judgement = judge(stepped(0, [2] * 12 + [1], head=20), stepped(1, [3] * 12, head=18, code=-15))
    assert judgement.verdict.cause != "skipped-collective"


@pytest.mark.parametrize("culprit", [0, 2])
def test_one_that_issued_more_in_its_last_step_than_others_in_theirs(culprit: int) -> None:
    more, usual = ([1] * 12, 14, -6), ([1] * 13, 8, -15)
    told_by = [(n, *(more if n == culprit else usual)) for n in range(4)]
    ranks = [stepped(n, counts, head=head, code=code, world_size=4) for n, counts, head, code in told_by]
    judgement = judge(*ranks, world_size=4)
    assert told(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert blamed(judgement) == [(culprit, 100 + culprit, "rank")]


def test_a_loop_that_an_error_has_left_is_not_left() -> None:
    def fed(*, left: bool, exhausted: bool = False) -> LoaderFacts:
        return LoaderFacts(0, 60, epoch=0, drawn=30, left=left, exhausted=exhausted)

    error = failed(0, (DDP, 1, "forward"))
    assert error.reading is not None
    down = replace(error, reading=replace(error.reading, loaders=(fed(left=True),)))
    other = gone(1, -15, Phase.STEP, loaders=(replace(fed(left=False), drawn=31),))
    assert judge(down, other).verdict.cause != "early-exit"


def test_a_rank_that_the_launcher_ends_at_its_end_had_ended() -> None:
    judgement = judge(failed(0, (DDP, 1, "forward")), gone(1, -15, Phase.FINALIZING))
    assert told(judgement) == ("undetermined", "undetermined", "failed")


# ------------------------------------------------------------------------------------------ destroyed too early


def destroyed(number: int, **parts: Any) -> RankEvidence:
    """It had made calls and has no group any more."""
    return gone(number, 0, progress=Progress(step=5, calls=60), **parts)


@pytest.mark.parametrize(("early", "late", "culprits"), [([1], [0, 2], [1]), ([0, 1], [2], [2]), ([1], [0], [])])
def test_those_who_failed_after_others_had_destroyed_the_group(
    early: list[int], late: list[int], culprits: list[int]
) -> None:
    size = len(early) + len(late)
    ranks = [destroyed(n) if n in early else failed(n, (DDP, 1, "barrier")) for n in range(size)]
    judgement = judge(*ranks, world_size=size)
    assert told(judgement) == ("exit-destroy-asymmetric", "likely", "failed")
    assert [who.rank for who in judgement.verdict.culprits] == culprits


@pytest.mark.parametrize(
    ("step", "way_out", "cause"),
    [(5, True, "exit-destroy-asymmetric"), (3, False, "exit-destroy-asymmetric"), (3, True, "early-exit")],
)
def test_a_group_ended_by_one_who_may_have_left_the_loop(step: int, way_out: bool, cause: str) -> None:
    place = Frame(SCRIPT, 40, "main")
    loop = LoopFacts(place, leaves=(place,) if way_out else ())
    early = rank(1, IN_CODE, phase=Phase.DESTROYED, progress=Progress(step=step))
    waiting = rank(0, IN_BARRIER, phase=Phase.STEP, progress=Progress(step=5), issued=4, completed=3)
    waiting = replace(waiting, stacks=tuple(replace(each, in_loop=True, loop=loop) for each in waiting.stacks))
    judgement = judge(waiting, early)
    assert judgement.verdict.cause == cause
    assert blamed(judgement) == [(1, 101, "rank")]


def test_a_rank_that_waits_for_a_child_in_its_loop_has_not_left_it() -> None:
    stack = frames((f"{LIB}/subprocess.py", 2004, "_try_wait"), (f"{LIB}/subprocess.py", 1264, "wait"))
    stuck = rank(1, stack, progress=Progress(step=4), issued=3, completed=3)
    stuck = replace(stuck, stacks=tuple(replace(each, in_loop=True) for each in stuck.stacks))
    waiting = rank(0, IN_BACKWARD, progress=Progress(step=5), issued=4, completed=3)
    judgement = judge(waiting, stuck)
    assert judgement.verdict.cause == "user-code-blocked"
    assert blamed(judgement) == [(1, 101, "rank")]


# ------------------------------------------------------------------------------------------ two threads


def test_calls_of_two_threads_that_met_are_no_mismatch_of_the_program() -> None:
    def using(number: int, here: str, there: str, size: int) -> RankEvidence:
        past = Collective("0", 1, "all_reduce", ((size,),), ("float",), thread_name=there, frames=USER)
        now = Collective("0", 2, "all_reduce", ((1001 - size,),), ("float",), thread_name=here, frames=USER)
        entry = gone(number, -6, Phase.STEP, issued=2, completed=1)
        return replace(entry, collectives=replace(entry.collectives, recent=(past, now)))

    judgement = judge(using(0, "MainThread", "beat", 1000), using(1, "beat", "MainThread", 1))
    assert told(judgement) == ("concurrent-collectives", "likely", "failed")
    assert "Threads 'MainThread' and 'beat' of each rank" in judgement.verdict.summary


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


# ------------------------------------------------------------------------------------------ loops without an end


@pytest.mark.parametrize(("still_s", "status"), [(31.0, "waiting"), (149.0, "waiting"), (151.0, "hung")])
def test_who_computes_in_its_own_code_is_given_far_more_patience(still_s: float, status: str) -> None:
    busy = rank(
        1, IN_CODE, progress=Progress(step=5), issued=3, completed=3, facts={"cpu_delta_s": 1.0}, still_s=still_s
    )
    waiting = rank(0, IN_BACKWARD, progress=Progress(step=5), issued=4, completed=3, still_s=still_s)
    judgement = judge(waiting, busy)
    assert told(judgement) == ("user-code-blocked", "likely", status)
    assert blamed(judgement) == [(1, 101, "rank")]


# ------------------------------------------------------------------------------------------ validation


def validating(number: int, drawn: int, stack: tuple[Frame, ...], *, exhausted: bool) -> RankEvidence:
    training = LoaderFacts(0, 40, epoch=0, drawn=40, exhausted=True)
    where = Frame(SCRIPT, 17, "main")
    held = LoaderFacts(1, 10, epoch=0, drawn=drawn, exhausted=exhausted, training=False, where=where)
    return rank(number, stack, loaders=(training, held), issued=60 - exhausted, completed=59 - exhausted)


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_with_less_data_to_validate(culprit: int) -> None:
    ranks = [validating(n, 8 if n == culprit else 9, IN_BARRIER, exhausted=n == culprit) for n in range(2)]
    judgement = judge(*ranks)
    assert judgement.verdict.cause == "uneven-steps"
    assert [who.rank for who in judgement.verdict.culprits] == [culprit]
    assert "in the loop at train.py:17: it drew 8 batches there, and the others 9 so far" in judgement.verdict.summary


def test_a_rank_that_validates_alone_ran_out_of_nothing() -> None:
    alone = validating(0, 8, IN_BARRIER, exhausted=True)
    assert judge(alone, rank(1, IN_BACKWARD, issued=60, completed=59)).verdict.cause != "uneven-steps"
