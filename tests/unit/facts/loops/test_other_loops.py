"""A loop over another loader that one rank ended before the others, where a turn of it makes several calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.loops.other_loops import other_loop_ended, skipped_in_other_loop
from hangwatch.judge import diagnose
from hangwatch.model import Collective, Frame, LoaderFacts, ProcessFacts, RankEvidence, Snapshot
from tests.unit.rules.step.worlds import Program, world
from tests.unit.simulator import SCRIPT, TRAINER, Call, blamed_ranks

TURN: Program = [Call("barrier", line=20), Call("all_reduce", line=21)]
END: Program = [Call("barrier", line=50), Call("all_reduce", line=51), Call("broadcast", line=52)]


def _validated(*turns: int, exhausted: bool = True, drawn: int = 0) -> Snapshot:
    """Each rank makes the calls of so many batches, and draws as many, or `drawn`, to the end of its loader."""
    snapshot = world(*([*[call for _ in range(count) for call in TURN], *END] for count in turns))

    def drawing(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        count = drawn or turns[entry.rank]
        loader = LoaderFacts(1, None, epoch=0, drawn=count, exhausted=exhausted, training=False)
        return replace(entry, reading=replace(entry.reading, loaders=(loader,)))

    return replace(snapshot, ranks=tuple(map(drawing, snapshot.ranks)))


@pytest.mark.parametrize("short", [0, 1])
def test_the_rank_with_fewer_batches_is_told_though_calls_of_one_kind_were_paired_in_silence(short: int) -> None:
    """At its end the short rank makes a barrier and an all_reduce too: only the third call differs in kind."""
    snapshot = _validated(*(4 if rank == short else 5 for rank in range(2)))
    found = other_loop_ended(Case(snapshot))
    assert found is not None
    assert (found.run.ranks, found.run.seq) == ((short,), 9)
    judgement = diagnose(snapshot)
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("uneven-steps", "likely")
    assert blamed_ranks(judgement) == [short]
    assert any("up to number 8 all made the same calls; from 9 on" in each for each in judgement.verdict.evidence)


def _below_fit(entry: RankEvidence) -> RankEvidence:
    """A trainer makes the calls, of which the user's one line runs all."""

    def below(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        line = next(frame.line for frame in frames if frame.file == SCRIPT)
        return (Frame(TRAINER, line + 500, f"op_{line}"), Frame(TRAINER, line, "fit"), Frame(SCRIPT, 5, "main"))

    def of_call(call: Collective) -> Collective:
        return replace(call, frames=below(call.frames))

    held = entry.collectives
    held = replace(held, recent=tuple(map(of_call, held.recent)), open_calls=tuple(map(of_call, held.open_calls)))
    stacks = tuple(
        replace(stack, frames=(*stack.frames[:-1], *below(stack.frames)), in_loop=None) for stack in entry.stacks
    )
    return replace(entry, collectives=held, stacks=stacks, earlier_stacks=stacks)


@pytest.mark.parametrize(("drawn", "cause"), [(0, "uneven-steps"), (5, "skipped-collective")])
def test_it_is_told_where_the_backend_has_ended_the_job_for_it(drawn: int, cause: str) -> None:
    """With as many batches as the other rank it has left out calls in them."""
    snapshot = _validated(5, 4, drawn=drawn)
    snapshot = replace(snapshot, ranks=tuple(map(_below_fit, snapshot.ranks)))
    down, other = snapshot.ranks
    ended = replace(down, process=ProcessFacts(down.pid or 1, "X", exit_code=-6), stacks=(), earlier_stacks=())
    for each in (snapshot, replace(snapshot, ranks=(ended, other))):
        judgement = diagnose(each)
        assert judgement.verdict.cause == cause, judgement.verdict.summary
        assert judgement.status == ("failed" if each is not snapshot else "hung")
        assert blamed_ranks(judgement) == [1]


@pytest.mark.parametrize(("turns", "exhausted"), [((5, 5), True), ((5, 4), False)])
def test_equal_batches_or_loops_that_may_go_on_tell_nothing(turns: tuple[int, int], exhausted: bool) -> None:
    assert other_loop_ended(Case(_validated(*turns, exhausted=exhausted))) is None


@pytest.mark.parametrize(
    "turn", [TURN, [Call("all_gather", line=20)]], ids=["a turn of two calls", "a run of equal calls"]
)
@pytest.mark.parametrize(("lengths", "told"), [((3, 5), True), ((5, 5), False)])
def test_a_loop_that_counts_its_batches_ends_with_the_last_one_and_never_asks_for_one_more(
    turn: Program, lengths: tuple[int, int], told: bool
) -> None:
    """GIVEN kept iterators, of which none was exhausted, WHEN a rank has drawn as many batches as its loader has."""
    snapshot = world(*([*turn * count, Call("barrier", line=50), Call("broadcast", line=52)] for count in (3, 4)))

    def drawing(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loader = LoaderFacts(1, lengths[entry.rank], epoch=0, drawn=3 + entry.rank, training=False)
        return replace(_below_fit(entry), reading=replace(entry.reading, loaders=(loader,)))

    judgement = diagnose(replace(snapshot, ranks=tuple(map(drawing, snapshot.ranks))))
    assert ((judgement.verdict.cause, blamed_ranks(judgement)) == ("uneven-steps", [0])) is told


@pytest.mark.parametrize(
    ("past", "batches", "told"), [(True, 4, True), (False, 4, False), (True, 5, False)], ids=["past", "inside", "rare"]
)
def test_a_call_for_each_batch_that_the_rank_past_the_loop_made_less_often_was_left_out_by_it(
    past: bool, batches: int, told: bool
) -> None:
    """Both have drawn all batches. A call that no rank makes for each of them may as well be one too many."""
    turns = (4, 3)
    snapshot = world(*([*TURN * count, Call("broadcast", line=10), Call("barrier", line=11)] for count in turns))

    def drawing(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        trains = LoaderFacts(0, 10, epoch=0, drawn=10, training=True, left=past and entry.rank == 1)
        checks = LoaderFacts(1, batches, epoch=0, drawn=batches, training=False)
        return replace(_below_fit(entry), reading=replace(entry.reading, loaders=(trains, checks)))

    snapshot = replace(snapshot, ranks=tuple(map(drawing, snapshot.ranks)))
    assert (skipped_in_other_loop(Case(snapshot)) is not None) is told
    judgement = diagnose(snapshot)
    assert ((judgement.verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [1])) is told


@pytest.mark.parametrize("turn", [TURN, [Call("all_gather", line=20)]], ids=["two calls", "a run"])
def test_ranks_that_are_still_in_the_loop_are_not_past_it_for_standing_behind_the_next_epochs_first_line(
    turn: Program,
) -> None:
    """Rank 2 left out a call and is at line 10 of the next epoch, above the loop in which the others still are."""
    begin: Program = [Call("broadcast", line=10)]

    def program(rank: int) -> Program:
        return [*begin, *turn * 5, *begin, *(turn * 5)[: 10 if rank != 2 else -1], *begin, *turn * 5]

    snapshot = world(*(program(rank) for rank in range(3)))

    def drawing(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loader = LoaderFacts(1, None, epoch=1, drawn=5, exhausted=True, training=False)
        return replace(entry, reading=replace(entry.reading, loaders=(loader,)))

    judgement = diagnose(replace(snapshot, ranks=tuple(map(drawing, snapshot.ranks))))
    assert blamed_ranks(judgement) == [2], judgement.verdict.summary


@pytest.mark.parametrize(("short_left", "told"), [(True, True), (False, False)])
def test_a_trainer_that_keeps_its_iterators_is_past_the_loop_where_it_has_done_with_the_epoch_around_it(
    short_left: bool, told: bool
) -> None:
    """GIVEN batches that are counted, and no loader exhausted, WHEN one rank has left its training loop THEN it."""
    turns = (3, 4)
    check, signal = Call("all_gather", line=20), Call("broadcast", line=50)

    def program(count: int) -> Program:
        return [check, check, signal, *[check] * count, signal]

    snapshot = world(*map(program, turns))

    def drawing(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        count = turns[entry.rank]
        trains = LoaderFacts(0, 10, epoch=0, drawn=10, training=True, left=short_left and count == 3)
        checks = LoaderFacts(1, 4, epoch=1, drawn=count, training=False)
        return replace(entry, reading=replace(entry.reading, loaders=(trains, checks)))

    found = other_loop_ended(Case(replace(snapshot, ranks=tuple(map(drawing, snapshot.ranks)))))
    assert (found is not None and found.run.ranks == (0,)) is told
