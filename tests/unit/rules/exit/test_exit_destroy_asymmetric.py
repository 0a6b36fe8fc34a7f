"""`exit-destroy-asymmetric`: some ranks left while others still communicate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import ExceptionFacts, Frame, LoaderFacts, LoopFacts, Phase, Progress, RankEvidence
from tests.unit.job import IN_BACKWARD, IN_BARRIER, IN_CODE, IN_STORE, NOW, SCRIPT, blamed, gone, judge, rank, told
from tests.unit.rules.step.endings import CLOSED, DDP, failed


def test_one_destroyed_the_group_that_the_others_still_use() -> None:
    left = rank(1, IN_CODE, phase=Phase.DESTROYED, issued=10, completed=10)
    judgement = judge(rank(0, IN_BARRIER, issued=11, completed=10), left)
    assert told(judgement)[0] == "exit-destroy-asymmetric"
    assert blamed(judgement) == [(1, 101, "rank")]


def test_one_left_an_epoch_before_the_others() -> None:
    def fed(epoch: int, drawn: int, *finished: int, over: bool) -> LoaderFacts:
        return LoaderFacts(0, 60, epoch=epoch, drawn=drawn, exhausted=over, drawn_per_epoch=finished)

    left = rank(1, IN_CODE, phase=Phase.DESTROYED, loaders=(fed(1, 60, 60, 60, over=True),), issued=10, completed=10)
    stayed = rank(0, IN_BACKWARD, loaders=(fed(2, 1, 60, 60, over=False),), issued=11, completed=10)
    assert judge(stayed, left).verdict.cause == "exit-destroy-asymmetric"
    short = rank(1, IN_CODE, phase=Phase.DESTROYED, loaders=(fed(1, 50, 60, 50, over=True),), issued=10, completed=10)
    assert judge(stayed, short).verdict.cause != "exit-destroy-asymmetric"


def test_a_rank_that_the_launcher_ends_at_its_end_had_ended() -> None:
    judgement = judge(failed(0, (DDP, 1, "forward")), gone(1, -15, Phase.FINALIZING))
    assert told(judgement) == ("undetermined", "undetermined", "failed")


def destroyed(number: int, **parts: Any) -> RankEvidence:
    """It had made calls and has no group any more."""
    return gone(number, 0, progress=Progress(step=5, calls=60), **parts)


@pytest.mark.parametrize(("early", "late", "culprits"), [([1], [0, 2], [1]), ([0, 1], [2], [2]), ([1], [0], [])])
def test_ranks_that_failed_after_others_had_destroyed_the_group(
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
def test_a_group_ended_by_a_rank_that_may_have_left_the_loop(step: int, way_out: bool, cause: str) -> None:
    place = Frame(SCRIPT, 40, "main")
    loop = LoopFacts(place, leaves=(place,) if way_out else ())
    early = rank(1, IN_CODE, phase=Phase.DESTROYED, progress=Progress(step=step))
    waiting = rank(0, IN_BARRIER, phase=Phase.STEP, progress=Progress(step=5), issued=4, completed=3)
    waiting = replace(waiting, stacks=tuple(replace(each, in_loop=True, loop=loop) for each in waiting.stacks))
    judgement = judge(waiting, early)
    assert judgement.verdict.cause == cause
    assert blamed(judgement) == [(1, 101, "rank")]


@pytest.mark.parametrize(("destroyed_none", "cause"), [(True, "early-exit"), (False, "uneven-steps")])
def test_a_rank_that_ended_its_process_in_the_loop_of_the_others_has_left_that(
    cause: str, *, destroyed_none: bool
) -> None:
    """With NCCL the others wait for it, and do not fail. One that has destroyed its groups came to its end."""
    place = Frame(SCRIPT, 40, "main")
    waiting = rank(0, IN_BARRIER, phase=Phase.STEP, progress=Progress(step=5), issued=4, completed=3)
    ended = gone(1, 0, Phase.MAIN_DONE, progress=Progress(step=3))
    assert ended.reading is not None
    groups = waiting.collectives.heads if destroyed_none else ()
    ended = replace(ended, reading=replace(ended.reading, heads=groups))
    loop = LoopFacts(Frame(SCRIPT, 30, "main"), exits=(place,))
    waiting = replace(waiting, stacks=tuple(replace(each, in_loop=True, loop=loop) for each in waiting.stacks))
    judgement = judge(waiting, ended)
    assert (judgement.verdict.cause, blamed(judgement)) == (cause, [(1, 101, "rank")])
    assert [who.where == place for who in judgement.verdict.culprits] == [destroyed_none]


@pytest.mark.parametrize("code", [-15, None], ids=["ended by its launcher", "still there"])
def test_a_rank_that_is_in_its_next_init_process_group_had_destroyed_the_one_before(code: int | None) -> None:
    """A search makes a group for each trial, and one rank alone has ended its trial early."""
    left = destroyed(1)
    assert left.reading is not None
    assert left.process is not None
    anew = replace(left, reading=replace(left.reading, phase=Phase.INIT), process=replace(left.process, exit_code=code))
    judgement = judge(failed(0, (DDP, 1, "backward")), anew, failed(2, (DDP, 1, "backward")), world_size=3)
    assert told(judgement) == ("exit-destroy-asymmetric", "likely", "failed")
    assert [who.rank for who in judgement.verdict.culprits] == [1]
    assert "went on to the next init_process_group, while ranks 0 and 2 still used it" in judgement.verdict.summary


def test_ranks_that_wait_in_a_collective_of_a_group_that_another_has_left_for_its_next_one() -> None:
    waiting = [
        rank(n, IN_BARRIER, phase=Phase.STEP, progress=Progress(step=5), issued=4, completed=3, world_size=3)
        for n in (0, 2)
    ]
    anew = rank(1, IN_STORE, phase=Phase.INIT, progress=Progress(step=5, calls=60), world_size=3)
    judgement = judge(waiting[0], anew, waiting[1], world_size=3)
    assert told(judgement)[0] == "exit-destroy-asymmetric"
    assert blamed(judgement) == [(1, 101, "rank")]


def test_ranks_that_lost_the_one_that_ended_are_its_victims_too() -> None:
    """GIVEN a rank that has returned from its program, and others of which some have noticed that."""
    error = ExceptionFacts("RuntimeError", CLOSED, IN_BACKWARD, at=NOW - 1)
    lost = [rank(number, IN_BACKWARD, phase=Phase.ATEXIT, exception=error, world_size=4) for number in (0, 2)]
    waits = rank(1, IN_BACKWARD, issued=4, completed=3, world_size=4)
    judgement = judge(lost[0], waits, lost[1], gone(3, 0, Phase.ATEXIT, world_size=4, issued=0, completed=0))
    assert told(judgement)[0] == "exit-destroy-asymmetric"
    assert blamed(judgement) == [(3, 103, "rank")]
    assert "Rank 3 has ended its program, while rank 1 waits in backward" in judgement.verdict.summary
    assert "ranks 0 and 2 lost it, and failed" in judgement.verdict.summary
