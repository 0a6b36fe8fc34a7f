"""Divergence while the job runs: found, remembered once, and never where there is none."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from hangwatch.model import Collective, Divergence, ExceptionFacts, Frame, GroupHead, Identity, Reading, StepEntry
from hangwatch.ranks.divergence import CONFIRM, DivergenceWatch
from hangwatch.ranks.first_divergence import first_divergence

KEPT = 16


def reading(
    rank: int,
    counts: Sequence[int],
    *,
    ranks: int = 3,
    kept: int = KEPT,
    epochs: Sequence[int] | None = None,
    name: str = "0",
    named: bool = True,
) -> Reading:
    """A board after steps with these numbers of collectives; `epochs` are batches per epoch, for names of steps."""
    entries, issued = [], 0
    names = _names(epochs or [10**6])
    for step, count in enumerate([*counts, 0]):
        epoch, batch = next(names) if named else (None, None)
        entries.append(StepEntry(step, epoch, batch, 0 if named else None, float(step), {name: issued}))
        issued += count
    head = GroupHead(name, tuple(range(ranks)), issued=issued, completed=issued)
    return Reading(
        Identity(rank, ranks, rank, "a", 100 + rank, 0.0, "j"), 1.0, heads=(head,), steps=tuple(entries[-kept:])
    )


def _names(epochs: Sequence[int]) -> Iterator[tuple[int, int]]:
    for epoch, batches in enumerate(epochs):
        for batch in range(batches):
            yield epoch, batch
    yield len(epochs), 0


def run(
    ledgers: Sequence[Sequence[int]], *, every: int = 1, lag: int = 0, seed: int = 0, named: bool = True
) -> list[Divergence]:
    """Lets the ranks run along their ledgers, each up to `lag` steps behind, and looks every so many steps."""
    watch, dice, found = DivergenceWatch(), random.Random(seed), list[Divergence]()
    for now in range(1, len(ledgers[0]) + 1, every):
        at = [max(now - dice.randint(0, lag), 0) for _ in ledgers]
        boards = [
            reading(rank, counts[: at[rank]], ranks=len(ledgers), named=named) for rank, counts in enumerate(ledgers)
        ]
        found += watch.update(boards, float(now))
    return found


@pytest.mark.parametrize("named", [True, False])
def test_a_skip_is_found_within_a_few_steps_with_its_rank_and_step(named: bool) -> None:
    # GIVEN a rank that skips one of three collectives in step 7, while all go on with mispaired calls
    usual = [3] * 40
    short = [3] * 7 + [2] + [3] * 32

    # WHEN the boards are looked at after every step
    (found,) = run([usual, short, usual], named=named)

    # THEN it is reported once, soon, and with the right step and rank
    assert (found.step, found.short, found.more) == (7, (1,), ())
    assert found.counts == {0: 3, 1: 2, 2: 3}
    assert found.seen_at <= 7 + 2 + CONFIRM
    assert found.epoch == (0 if named else None)


def test_with_two_ranks_their_own_habit_says_which_one_is_wrong() -> None:
    (found,) = run([[3] * 30, [3] * 7 + [4] + [3] * 22])
    assert (found.short, found.more) == ((), (1,))
    (found,) = run([[3] * 30, [3] * 7 + [2] + [3] * 22])
    assert (found.short, found.more) == ((1,), ())


@pytest.mark.parametrize("seed", range(20))
def test_ranks_that_are_steps_apart_are_no_divergence(seed: int) -> None:
    dice = random.Random(seed)
    program = [dice.choice((0, 3, 4)) for _ in range(60)]  # accumulation, validation: alike on all ranks
    assert run([program] * 4, lag=5, seed=seed) == []


@pytest.mark.parametrize("seed", range(20))
def test_a_background_thread_that_moves_a_call_over_a_step_border_is_no_divergence(seed: int) -> None:
    dice = random.Random(seed)
    early, late = [3] * 60, [3] * 60
    for step in range(5, 55, 10):
        early[step + dice.randint(0, 1)] += 1
        late[step + dice.randint(0, 1)] += 1
    assert run([early, late, early], seed=seed) == []


def test_a_rank_that_looks_rarely_still_finds_it_while_the_rings_hold_it() -> None:
    (found,) = run([[3] * 60, [3] * 33 + [2] + [3] * 26, [3] * 60], every=10)
    assert found.step == 33


def test_between_two_looks_the_rings_may_turn_over_and_only_the_step_is_lost() -> None:
    # GIVEN a skip in step 33, and a look every 25 steps at rings of 16
    (found,) = run([[3] * 100, [3] * 33 + [2] + [3] * 66, [3] * 100], every=25)

    # THEN the rank is known, and that it happened before a step
    assert not found.exact
    assert found.short == (1,)
    assert found.step > 33


def test_groups_of_one_and_names_used_twice_are_never_compared() -> None:
    alone = [replace(reading(rank, [rank] * 20), heads=(GroupHead("0", (rank,), issued=9),)) for rank in range(3)]
    twice = [
        replace(board, heads=(*board.heads, GroupHead("0", (0, 1), issued=3)))
        for board in (reading(rank, [rank + 1] * 20) for rank in range(3))
    ]
    assert DivergenceWatch().update(alone, 1.0) == ()
    assert DivergenceWatch().update(twice, 1.0) == ()


def test_an_epoch_that_is_a_batch_shorter_on_one_rank_is_a_divergence_at_that_batch() -> None:
    # GIVEN ranks that draw 5 and 4 batches an epoch, and go on with mispaired calls
    long = [reading(rank, [2] * 12, ranks=3, epochs=[5, 5, 5]) for rank in (0, 2)]
    short = reading(1, [2] * 12, ranks=3, epochs=[4, 4, 4, 4])

    # THEN the batch that one of them lacks is named
    watch = DivergenceWatch()
    (found,) = watch.update([*long, short], 1.0)
    assert (found.epoch, found.batch, found.short) == (0, 4, (1,))
    assert watch.update([*long, short], 2.0) == ()


@pytest.mark.parametrize("caught", [True, False])
def test_a_loader_that_was_begun_anew_after_an_error_is_doubtful(caught: bool) -> None:
    """Rank 1 reads three batches a second time, without training on them, and names those behind them otherwise."""
    usual = [reading(rank, [2] * 14, epochs=[12, 12], kept=32) for rank in (0, 2)]
    again = reading(1, [2] * 3 + [0] * 3 + [2] * 11, epochs=[3, 12, 12], kept=32)
    loader = Frame("/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", 725, "__next__")
    error = ExceptionFacts("OSError", "stale file handle", (Frame("d.py", 9, "read"), loader), fatal=False, step=2)
    found = DivergenceWatch().update([*usual, replace(again, caught=(error,) if caught else ())], 1.0)
    assert [(each.batch, each.short, each.doubtful) for each in found] == [(3, (1,), caught)]


def test_a_job_that_does_not_move_needs_no_confirmation() -> None:
    boards = [reading(0, [3, 3, 3]), reading(1, [3, 3, 2]), reading(2, [3, 3, 3])]
    (found,) = first_divergence(boards)
    assert (found.step, found.short) == (2, (1,))
    assert first_divergence(boards[:1]) == ()
    assert first_divergence([reading(rank, [3, 3, 3]) for rank in range(3)]) == ()


# ----------------------------------------------------------------------------------- steps that end in optimizer.step()


@pytest.mark.parametrize(("odd", "doubtful"), [(6, True), (9, True), (4, False), (0, False)])
def test_whole_turns_more_may_be_a_count_of_steps_that_fell_behind(odd: int, doubtful: bool) -> None:
    usual = [3] * 20
    (found,) = run([usual, [3] * 8 + [odd] + [3] * 11, usual], named=False)
    assert (found.step, found.counts, found.doubtful) == (8, {0: 3, 1: odd, 2: 3}, doubtful)


def test_after_a_doubtful_difference_a_real_one_is_still_found() -> None:
    usual = [3] * 30
    found = run([usual, [3] * 8 + [6] + [3] * 5 + [6] + [3] * 5 + [2] + [3] * 9, usual], named=False)
    assert [(each.step, each.doubtful) for each in found] == [(8, True), (20, False)]


def test_calls_that_differ_under_one_number_are_no_doubt() -> None:
    usual, odd = [1] * 20, [1] * 8 + [2] + [1] * 11
    boards = [reading(rank, odd if rank == 1 else usual, named=False) for rank in range(3)]
    extra = {rank: ["all_reduce"] * 20 for rank in range(3)}
    extra[1].insert(9, "barrier")
    made = [
        replace(board, calls=tuple(Collective("0", seq, op) for seq, op in enumerate(extra[rank], 1)))
        for rank, board in enumerate(boards)
    ]
    watch = DivergenceWatch()
    watch.update([replace(board, steps=board.steps[:2]) for board in made], 1.0)
    assert [found.doubtful for found in watch.update(made, 2.0)] == [False]
    watch = DivergenceWatch()
    watch.update([replace(board, steps=board.steps[:2]) for board in boards], 1.0)
    assert [found.doubtful for found in watch.update(boards, 2.0)] == [True]


def searching(rank: int, steps: Sequence[int], round_of_calls: Sequence[str], *, without: int | None = None) -> Reading:
    """Rounds of calls behind so many optimizer steps each; the call of that number is left out."""
    calls = [op for _ in steps for op in round_of_calls]
    if without is not None:
        del calls[without - 1]
    counts = [count for length in steps for count in (*[0] * (length - 1), len(round_of_calls))]
    lines = {op: (Frame("search.py", 10 + place, "one_round"),) for place, op in enumerate(round_of_calls)}
    made = tuple(Collective("0", seq, op, frames=lines[op]) for seq, op in enumerate(calls, 1))
    return replace(reading(rank, counts, named=False, kept=len(counts)), calls=made)


ROUND = ("broadcast", "scatter", "gather")


@pytest.mark.parametrize(
    ("calls", "without", "doubtful"),
    [
        pytest.param(ROUND, None, True, id="a search, which trains one model for longer"),
        pytest.param(ROUND, 12, False, id="a call of that round is left out"),
        pytest.param(("all_reduce",), None, False, id="an average of every so many steps"),
    ],
)
def test_steps_between_two_rounds_of_calls_may_be_each_ranks_own(
    calls: Sequence[str], without: int | None, doubtful: bool
) -> None:
    usual, longer = [10] * 7, [10] * 3 + [20] + [10] * 3
    watch = DivergenceWatch()
    ranks = [searching(0, usual, calls), searching(1, usual, calls), searching(2, longer, calls, without=without)]
    watch.update([replace(each, steps=each.steps[:2]) for each in ranks], 1.0)
    assert [(found.step, found.doubtful) for found in watch.update(ranks, 2.0)] == [(39, doubtful)]


@pytest.mark.parametrize(("who", "doubtful"), [((1, 2), True), ((0, 1, 2), False), ((), False)])
def test_steps_of_ranks_that_train_on_in_a_smaller_group_are_their_own(who: Sequence[int], doubtful: bool) -> None:
    """GIVEN ranks of which some made more steps WHEN they had begun to use a group of their own THEN it is a doubt."""
    usual, longer = [10] * 7, [10] * 3 + [20] + [10] * 3
    ranks = [searching(rank, usual if rank == 0 else longer, ("all_reduce",)) for rank in range(3)]
    for rank in who:
        group = GroupHead("1", (0, 1) if rank == 0 else (1, 2), issued=5)
        ranks[rank] = replace(ranks[rank], heads=(*ranks[rank].heads, group))
    watch = DivergenceWatch()
    watch.update([replace(each, steps=each.steps[:2]) for each in ranks], 1.0)
    assert [found.doubtful for found in watch.update(ranks, 2.0)] == [doubtful]


def test_a_rank_that_has_destroyed_its_group_is_compared_by_what_its_steps_tell() -> None:
    # GIVEN a rank that skipped the collectives of one step, went on to the end, and destroyed its group
    done = replace(reading(1, [9] * 8 + [0] + [9] * 6), heads=())
    (found,) = first_divergence([reading(0, [9] * 15), done, reading(2, [9] * 15)])
    assert (found.step, found.short, found.counts) == (8, (1,), {0: 9, 1: 0, 2: 9})


def test_a_destroyed_group_of_which_only_the_name_is_left_may_be_either_of_two() -> None:
    pairs = [(0, 1), (1, 2), (1, 2)]
    boards = [
        replace(reading(rank, [rank + 1] * 20), heads=(GroupHead("0", pair, issued=9),) if rank != 1 else ())
        for rank, pair in enumerate(pairs)
    ]
    assert first_divergence(boards) == ()


def test_batches_of_one_rank_are_not_compared_with_forwards_of_another() -> None:
    """GIVEN rank 0, which draws two batches for each step of both ranks WHEN steps are compared THEN none differs."""
    loads = reading(0, [0, 3] * 10, ranks=2)
    is_given = reading(1, [3] * 10, ranks=2, named=False)
    assert first_divergence([loads, is_given]) == ()
    assert DivergenceWatch().update([loads, is_given], 1.0) == ()


def test_the_updates_of_a_learner_are_no_steps_of_its_workers_though_all_draw_batches_later() -> None:
    """GIVEN rank 0, which made updates of its own before WHEN all ranks go through a loader THEN none differs."""
    learner, worker = reading(0, [1] * 6 + [0] * 6, ranks=2), reading(1, [0] * 6, ranks=2)
    before = [replace(entry, epoch=None, batch=None) for entry in learner.steps[:6]]
    learner = replace(learner, steps=(*before, *learner.steps[6:]))
    assert first_divergence([learner, worker]) == ()
    watch = DivergenceWatch()
    assert [found for now in range(CONFIRM + 2) for found in watch.update([learner, worker], float(now))] == []


def test_counts_that_are_equal_by_now_are_no_divergence_whatever_came_before_the_first_step() -> None:
    """A background call of one rank lay before its first step, those of the others in it."""
    boards = [reading(rank, [2] * 6) for rank in range(3)]
    first = [replace(entry, issued={"0": 0 if entry.step == 0 else entry.issued["0"]}) for entry in boards[1].steps]
    early = [replace(entry, issued={"0": 1 if entry.step == 0 else entry.issued["0"]}) for entry in boards[2].steps]
    boards[1], boards[2] = replace(boards[1], steps=tuple(first)), replace(boards[2], steps=tuple(early))
    assert first_divergence(boards) == ()


def _shifted_by_join(*, frame: str) -> list[Divergence]:
    """Rank 0 has two steps less in each epoch; at their end it makes the calls of those of the others."""
    counts = ([2, 2, 6, 2, 2, 6, 2, 2, 6], [2] * 9, [2] * 9)
    boards = [reading(rank, each, named=False) for rank, each in enumerate(counts)]
    end = Frame("/venv/torch/distributed/algorithms/join.py", 265, frame)
    call = Collective("0", 5, "all_reduce", frames=(end, Frame("/home/me/train.py", 8, "main")), step=2)
    boards[0] = replace(boards[0], calls=(call,))
    return [*first_divergence(boards), *(found for _ in range(4) for found in DivergenceWatch().update(boards, 1.0))]


def test_steps_that_join_made_up_for_shift_the_count_of_steps() -> None:
    assert _shifted_by_join(frame="notify_join_context")
    assert not _shifted_by_join(frame="__exit__")


def test_ranks_that_tell_join_of_their_inputs_are_not_warned_of_as_they_run_out() -> None:
    """GIVEN one Join around several epochs WHEN rank 0 has fewer batches THEN its next epoch is no divergence."""
    boards = [reading(rank, counts) for rank, counts in enumerate(([3, 3, 0, 3, 3, 3], [3] * 6, [3] * 6))]
    tells = Frame("/venv/torch/distributed/algorithms/join.py", 330, "notify_join_context")
    call = Collective("0", 5, "all_reduce", frames=(tells, Frame("/home/me/train.py", 8, "main")), step=2)
    told = [replace(board, calls=(call,)) for board in boards]
    assert [found for _ in range(4) for found in DivergenceWatch().update(boards, 1.0)]
    assert not [found for _ in range(4) for found in DivergenceWatch().update(told, 1.0)]


@pytest.mark.parametrize(
    ("counts", "short", "more"),
    [(([0], [3]), (), ()), (([3, 3, 0], [3, 3, 3]), (0,), ()), (([0, 0, 0], [0, 0, 3]), (), (1,))],
    ids=["the first step", "fewer than before", "more than before"],
)
def test_of_two_ranks_the_steps_before_say_which_differs_and_never_that_step_itself(
    counts: tuple[list[int], list[int]], short: tuple[int, ...], more: tuple[int, ...]
) -> None:
    (found,) = first_divergence([reading(rank, each, ranks=2) for rank, each in enumerate(counts)])
    assert (found.short, found.more) == (short, more)


# ----------------------------------------------------------------------------------- steps that are forwards


def accumulating(rank: int, every: int, forwards: int, *, skips: int = -1) -> Reading:
    """A board after so many forwards; each `every`th one synchronises, and an optimizer step follows, but for one."""
    board = reading(rank, [], named=False)
    made, issued, entries = 0, 0, []
    for step in range(forwards):
        entries.append(StepEntry(step, None, None, None, float(step), {"0": issued}, made))
        if (step + 1) % every == 0 and step != skips:
            made, issued = made + 1, issued + 1
    return replace(board, steps=tuple(entries))


def watched(*every: int, skips: int = -1, forwards: int = 90) -> list[Divergence]:
    """What is told of ranks that come to their optimizer steps together, however many forwards each takes."""
    watch, found = DivergenceWatch(), list[Divergence]()
    for now in range(1, forwards):
        boards = [accumulating(rank, n, now * n // min(every), skips=skips if rank == 1 else -1) for rank, n in
                  enumerate(every)]  # fmt: skip
        found += watch.update(boards, float(now))
    return found


def test_ranks_that_accumulate_over_other_numbers_of_forwards_lack_nothing() -> None:
    assert watched(4, 8, 4) == []


@pytest.mark.parametrize(("every", "skips", "step"), [((1, 1, 1), 40, 40), ((1, 1, 1), 2, 2), ((4, 4, 4), 43, 43)])
def test_a_synchronisation_that_is_left_out_is_still_told(every: tuple[int, ...], skips: int, step: int) -> None:
    (found,) = watched(*every, skips=skips)
    assert (found.step, found.short) == (step, (1,))


@pytest.mark.parametrize("complete", [True, False])
def test_calls_that_the_steps_do_not_wait_for_may_still_come_on_the_other_rank(complete: bool) -> None:
    """GIVEN a checkpoint's thread in its last call on two ranks WHEN that of rank 1 writes still, and all train on."""
    watch, steps = DivergenceWatch(), [0, 2, *[0] * 12]

    def saves(rank: int, last: bool) -> Reading:
        found = reading(rank, [0, 2 if last else 1, *steps[2:]])
        (head,) = found.heads
        return replace(found, heads=(replace(head, completed=head.issued - (last and not complete)),))

    boards = [saves(rank, last=rank != 1) for rank in range(3)]
    assert bool(watch.update(boards, 1.0)) is complete
    assert watch.update([saves(rank, last=True) for rank in range(3)], 2.0) == ()


def test_a_rank_that_begins_after_the_others_is_compared_from_its_first_step_on() -> None:
    """GIVEN ranks that the watch has seen in their fourth step before the last one was in any

    WHEN that one synchronises twice as often THEN the first step with a difference is told, and not the next one.
    """
    few, many, watch = [0, 0, 0, 3] * 3, [0, 3] * 6, DivergenceWatch()
    late = replace(reading(2, []), steps=())
    assert watch.update([*(reading(rank, few[:3]) for rank in (0, 1)), late], 1.0) == ()
    (found,) = watch.update([reading(0, few), reading(1, few), reading(2, many)], 2.0)
    assert (found.step, found.counts) == (1, {0: 0, 1: 0, 2: 3})


@pytest.mark.parametrize(("thread", "found"), [("saver", 0), ("MainThread", 1)])
def test_calls_of_a_thread_with_a_group_of_its_own_are_divided_by_no_steps(thread: str, found: int) -> None:
    """GIVEN a saver whose thread calls in group 1, on one rank sooner WHEN the main thread trains in group 0."""
    counts = ([3, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0])
    boards = [reading(rank, each, ranks=2, name="1") for rank, each in enumerate(counts)]
    calls = (
        Collective("0", 1, "all_reduce", thread_name="MainThread"), Collective("1", 1, "gather", thread_name=thread)
    )  # fmt: skip
    assert len(DivergenceWatch().update([replace(each, calls=calls) for each in boards], 1.0)) == found
