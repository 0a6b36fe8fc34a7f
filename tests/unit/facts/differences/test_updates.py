"""Ranks that make more forwards for an optimizer step than the others: `gradient-sync-mismatch`, and no early exit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.updates import are_behind, keep_own_paces, other_pace, updates_apart
from hangwatch.model import Divergence, Frame, LoopFacts, Phase, Progress, RankEvidence, Snapshot, StepEntry
from hangwatch.rules.step.gradient_sync_mismatch import accumulated_otherwise
from tests.unit.job import IN_BACKWARD, IN_BARRIER, SCRIPT, blamed, judge, rank, snapshot, told


def forwards(number: int, updates: list[int], *, batch: int | None = None, ticks: int = 0) -> RankEvidence:
    """A rank whose steps are its forwards: before each it had made so many optimizer steps."""
    entries = tuple(StepEntry(step, None, batch, None, 1.0 * step, {}, made) for step, made in enumerate(updates))
    count = len(updates)
    progress = Progress(None, batch, count - 1, updates[-1] + (number != 1), count, ticks)
    waits, phase = (IN_BACKWARD, Phase.BACKWARD) if number == 1 else (IN_BARRIER, Phase.OPTIMIZER)
    return rank(number, waits, phase=phase, progress=progress, steps=entries, issued=count, world_size=3)


EACH = list(range(10))
SPLIT = [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7]  # two forwards for each optimizer step since step 4
ONCE = [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9]


def job(odd: list[int], others: int = 2, **parts: int) -> Snapshot:
    ranks = [forwards(1, odd, **parts), *(forwards(number, EACH, **parts) for number in (0, 2)[:others])]
    return snapshot(*sorted(ranks, key=lambda each: each.rank), world_size=others + 1)


def test_the_rank_that_split_its_batches_is_behind_by_its_optimizer_steps() -> None:
    found = updates_apart(Case(job(SPLIT)))
    assert found is not None
    assert (found.behind, found.others, found.step, found.last) == ((1,), (0, 2), 4, 9)
    assert found.made == {0: 9, 1: 6, 2: 9}


@pytest.mark.parametrize(
    "given",
    [job(EACH), job(ONCE), job([0, *SPLIT[4:]]), job(SPLIT, batch=3), job(SPLIT, ticks=9)],
    ids=["alike", "once", "from the start", "a loader counts", "the program counts"],
)
def test_otherwise_no_rank_is_behind(given: Snapshot) -> None:
    assert updates_apart(Case(given)) is None


@pytest.mark.parametrize(("theirs", "behind"), [(EACH, (1,)), ([*EACH[:5], *(each + 2 for each in EACH[5:])], None)])
def test_of_two_halves_the_one_that_left_the_even_pace_of_both(
    theirs: list[int], behind: tuple[int, ...] | None
) -> None:
    ranks = (forwards(0, theirs), forwards(1, SPLIT))
    found = updates_apart(Case(snapshot(*ranks, world_size=2)))
    assert (found and found.behind) == behind


def test_the_ranks_that_have_made_more_optimizer_steps_left_no_loop_early() -> None:
    case = Case(job(ONCE))
    assert are_behind(case, [1], [0, 2])
    assert not are_behind(case, [0, 2], [1])
    assert not are_behind(Case(job(EACH, batch=3)), [1], [0, 2])


def test_it_is_told_as_a_mismatch_of_synchronisation() -> None:
    judgement = judge(*job(SPLIT).ranks, world_size=3)
    assert told(judgement)[:2] == ("gradient-sync-mismatch", "likely"), judgement.verdict.summary
    assert [who for who, _, _ in blamed(judgement)] == [1]
    assert "Rank 1 made more forwards for each optimizer step than ranks 0 and 2, first in step 4" in (
        judgement.verdict.summary
    )


def test_of_no_ranks_nothing_is_known() -> None:
    assert updates_apart(Case(snapshot())) is None


def accumulating(number: int, every: float, updates: int = 40) -> RankEvidence:
    """A rank that makes an optimizer step about every so many forwards, as its data asks for it."""
    return forwards(number, [int(step / every) for step in range(int(updates * every) + 1)])


@pytest.mark.parametrize("paces", [(8, 4.5, 8), (4, 8, 4)], ids=["in fewer", "in more"])
def test_as_many_optimizer_steps_in_other_numbers_of_forwards(paces: tuple[float, ...]) -> None:
    ranks = [accumulating(number, every) for number, every in enumerate(paces)]
    found = other_pace(Case(snapshot(*ranks, world_size=3)))
    assert found is not None
    assert (found.odd, found.others, found.updates) == ((1,), (0, 2), 40)
    finding = accumulated_otherwise(Case(snapshot(*ranks, world_size=3)))
    assert finding is not None
    assert [who.rank for who in finding.culprits] == [1]
    made = [1 + int(40 * paces[rank]) for rank in (1, 0)]
    assert "40 optimizer steps in {:,} forwards and in {:,}".format(*made) in finding.summary


def test_another_pace_is_told_where_the_counts_of_each_step_show_nothing() -> None:
    judgement = judge(*(accumulating(number, every, 80) for number, every in enumerate((8, 8, 6))), world_size=3)
    assert told(judgement)[:2] == ("gradient-sync-mismatch", "likely"), judgement.verdict.summary
    assert [who for who, _, _ in blamed(judgement)] == [2]
    assert "80 optimizer steps in 481 forwards and in 641" in judgement.verdict.summary


@pytest.mark.parametrize(
    "ranks",
    [
        [accumulating(number, 8) for number in range(3)],
        [accumulating(0, 8), accumulating(1, 8, 20), accumulating(2, 8)],
        [accumulating(0, 8), accumulating(1, 4)],
        [accumulating(0, 8), accumulating(1, 4), accumulating(2, 5)],
        [accumulating(number, every, 4) for number, every in enumerate((8, 4, 8))],
    ],
    ids=["alike", "fewer optimizer steps", "of two halves", "each its own", "too few to tell"],
)
def test_no_rank_has_another_pace(ranks: list[RankEvidence]) -> None:
    assert other_pace(Case(snapshot(*ranks, world_size=len(ranks)))) is None


def synchronising(number: int, every: int, *, outside: bool = False, issued: int = 1) -> RankEvidence:
    """A rank that synchronises once for each optimizer step, and makes one every so many forwards."""
    made = [step // every for step in range(12 * every)]
    entries = tuple(StepEntry(step, None, None, None, 1.0 * step, {"0": issued * n}, n) for step, n in enumerate(made))
    found = forwards(number, made)
    assert found.reading is not None
    stacks = tuple(replace(each, in_loop=not outside, loop=None if outside else LOOP) for each in found.stacks)
    return replace(found, reading=replace(found.reading, steps=entries), stacks=stacks, earlier_stacks=stacks)


LOOP = LoopFacts(Frame(SCRIPT, 9, "main"))


@pytest.mark.parametrize(
    ("ranks", "kept"),
    [
        ([synchronising(0, 4), synchronising(1, 8), synchronising(2, 4)], True),
        ([synchronising(0, 4), synchronising(1, 8), synchronising(2, 4, outside=True)], True),
        ([synchronising(0, 4), synchronising(1, 8, outside=True), synchronising(2, 4)], False),  # its data has ended
        ([synchronising(0, 4), synchronising(1, 8, issued=2), synchronising(2, 4)], False),
        ([synchronising(0, 4), synchronising(1, 4), synchronising(2, 4)], False),
        ([synchronising(0, 4), accumulating(1, 4.5), synchronising(2, 4)], False),
    ],
    ids=["none has left", "one of two alike", "the one of its pace", "two calls", "alike", "no pace"],
)
def test_hosts_with_other_batch_sizes_may_make_as_many_optimizer_steps(ranks: list[RankEvidence], kept: bool) -> None:
    case = Case(snapshot(*ranks, world_size=3))
    divergence = Divergence("0", (0, 1, 2), 3, None, None, {0: 1, 1: 0, 2: 1}, (1,), (), 1.0)
    assert keep_own_paces(case, divergence) is kept
    assert not keep_own_paces(case, replace(divergence, epoch=0, batch=3))
    assert not kept or told(judge(*ranks, world_size=3))[0] != "gradient-sync-mismatch"
