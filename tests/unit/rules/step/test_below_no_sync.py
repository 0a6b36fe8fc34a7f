"""Ranks that accumulate gradients, by what each says of its backwards, in a job whose calls are mispaired since."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.backwards import Backwards, backwards_apart
from hangwatch.judge import diagnose
from hangwatch.model import RankEvidence, Snapshot
from hangwatch.rules.step.gradient_sync_mismatch.below_no_sync import accumulated_alone
from hangwatch.rules.step.skipped_collective.while_accumulating import left_a_backward_out
from tests.unit.rules.step.loops import END, GRADIENTS
from tests.unit.simulator import Action, Call, Draw, LoopEnd, Stall, World, blamed_ranks

BATCHES, EVERY, LOG = 40, 4, 12
SYNC, KEEP, NONE = Backwards(True, False), Backwards(True, True), Backwards(False, False)


def turns(*without: int, more: tuple[int, ...] = ()) -> list[Backwards]:
    """Each batch's backward: every fourth one synchronises; it is left out of the batches `without`, and not counted.

    The batches `more` count for none: the next synchronisation comes later.
    """
    found, seen = list[Backwards](), 0
    for batch in range(BATCHES):
        seen += batch not in without and batch not in more
        sync = seen == EVERY
        found.append(NONE if batch in without else SYNC if sync else KEEP)
        seen = 0 if sync else seen
    return found


def program(made: list[Backwards]) -> list[Action]:
    actions = list[Action]()
    for batch, each in enumerate(made):
        actions += [Draw(0, batch), *(GRADIENTS if each.synchronises else ())]
        actions += [Call("all_gather", line=14, size=1)] if (batch + 1) % LOG == 0 else []
    return [*actions, LoopEnd(), *END]


def recorded(rank: RankEvidence, made: list[Backwards]) -> RankEvidence:
    """The rank's board, with what it would say of these backwards."""
    assert rank.reading is not None
    begun = [max((n for n in range(step) if made[n].begun), default=None) for step in range(BATCHES + 1)]
    kept = [max((n for n in range(step) if made[n].accumulated), default=None) for step in range(BATCHES + 1)]
    steps = tuple(
        replace(entry, backward_step=begun[entry.step], accumulated_step=kept[entry.step])
        for entry in rank.reading.steps
    )
    last = rank.reading.progress.step + 1
    progress = replace(rank.reading.progress, backward_step=begun[last], accumulated_step=kept[last])
    return replace(rank, reading=replace(rank.reading, steps=steps, progress=progress))


def job(*ranks: list[Backwards], first: list[Action] | None = None) -> Snapshot:
    """`first` is what rank 0 does instead of its program."""
    programs = [program(made) for made in ranks]
    snapshot = World([first or programs[0], *programs[1:]]).run().snapshot()
    found = tuple(recorded(rank, made) for rank, made in zip(snapshot.ranks, ranks, strict=True))
    return replace(snapshot, ranks=found)


@pytest.mark.parametrize("odd", range(3))
def test_a_rank_that_accumulates_in_a_step_in_which_the_others_synchronise(odd: int) -> None:
    judgement = diagnose(job(*(turns(more=(17, 18) if rank == odd else ()) for rank in range(3))))
    verdict = judgement.verdict
    assert (verdict.cause, blamed_ranks(judgement)) == ("gradient-sync-mismatch", [odd])
    assert verdict.certainty == "proven"
    others = ("1-2", "0 and 2", "0-1")[odd]
    told = f"Rank {odd} accumulated gradients in epoch 0, batch 19 (step 19), where ranks {others} synchronised theirs"
    assert verdict.summary.startswith(told)
    assert any(f"its forward ran below no_sync() on rank {odd} alone" in sentence for sentence in verdict.evidence)
    assert f"most ranks agree in that step: ranks {others}" in verdict.evidence
    assert "all ranks had synchronised together once in 4 steps, and were to in this one" in verdict.evidence


def test_of_two_halves_the_one_is_blamed_that_left_the_rhythm_of_all() -> None:
    judgement = diagnose(job(turns(), turns(more=(17, 18))))
    verdict = judgement.verdict
    assert (verdict.cause, verdict.certainty, blamed_ranks(judgement)) == ("gradient-sync-mismatch", "likely", [1])
    assert "all ranks had synchronised together once in 4 steps, and were to in this one" in verdict.evidence


def test_a_half_that_synchronises_before_its_time_is_the_odd_one() -> None:
    early = [SYNC if batch == 17 else each for batch, each in enumerate(turns())]
    judgement = diagnose(job(turns(), early))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("gradient-sync-mismatch", [1])
    assert any(sentence.endswith("and were not to yet in this one") for sentence in judgement.verdict.evidence)


def test_of_two_halves_without_a_rhythm_none_is_blamed() -> None:
    uneven = [SYNC if batch in (3, 8, 10, 15, 22, 30) else KEEP for batch in range(BATCHES)]
    judgement = diagnose(job(uneven, [SYNC if batch == 25 else each for batch, each in enumerate(uneven)]))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("gradient-sync-mismatch", [])


def test_a_rhythm_that_speaks_against_the_majority_makes_it_less_certain() -> None:
    early = [SYNC if batch == 17 else each for batch, each in enumerate(turns())]
    judgement = diagnose(job(turns(), early, early))
    verdict = judgement.verdict
    assert (verdict.cause, verdict.certainty, blamed_ranks(judgement)) == ("gradient-sync-mismatch", "likely", [0])
    assert any(sentence.startswith("against it: all ranks had synchronised") for sentence in verdict.evidence)


@pytest.mark.parametrize("odd", range(3))
def test_a_rank_that_left_a_backward_out_of_what_it_accumulates_counts_otherwise_since(odd: int) -> None:
    """WHEN no call shows the step in which it happened THEN that step is named, and not the first that shows."""
    judgement = diagnose(job(*(turns(*((17,) if rank == odd else ())) for rank in range(3))))
    verdict = judgement.verdict
    assert (verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [odd])
    assert verdict.summary.startswith(f"Rank {odd} made no backward in epoch 0, batch 17 (step 17), where ranks")
    assert any(f"rank {odd} began to compute no gradients" in sentence for sentence in verdict.evidence)


@pytest.mark.parametrize("odd", range(2))
def test_of_two_halves_the_one_without_a_backward_left_its_own_habit(odd: int) -> None:
    judgement = diagnose(job(*(turns(*((17,) if rank == odd else ())) for rank in range(2))))
    verdict = judgement.verdict
    assert (verdict.cause, blamed_ranks(judgement)) == ("skipped-collective", [odd])
    assert "all ranks made a backward in each of the 17 recorded steps before it" in verdict.evidence


def test_of_two_halves_that_left_a_backward_out_before_none_is_blamed() -> None:
    """WHEN all ranks made none in an earlier step THEN no habit says which of the two halves is the odd one."""
    apart = backwards_apart(Case(job(turns(9, 18), turns(9))))
    assert apart is not None
    assert (apart.without, apart.accumulating, apart.always) == ((0,), (1,), 0)
    assert left_a_backward_out(Case(job(turns(9, 18), turns(9)))) is None
    assert left_a_backward_out(Case(job(turns(18), turns()))) is not None


def test_a_backward_that_was_due_to_synchronise_is_left_to_the_calls_that_are_missing() -> None:
    snapshot = job(turns(19), turns(), turns())
    assert left_a_backward_out(Case(snapshot)) is None
    assert accumulated_alone(Case(snapshot)) is None


def test_ranks_that_accumulate_otherwise_from_the_beginning_may_fit_each_other() -> None:
    """WHEN they never synchronised in one step together THEN what they accumulate is no cause by itself."""
    slow = [SYNC if batch % 8 == 7 else KEEP for batch in range(BATCHES)]
    fast = [SYNC if batch % 2 == 1 else KEEP for batch in range(BATCHES)]
    snapshot = job(fast, slow, slow)
    apart = backwards_apart(Case(snapshot))
    assert apart is not None
    assert apart.together == ()
    assert accumulated_alone(Case(snapshot)) is None


def test_while_a_rank_is_in_its_own_code_nothing_is_said_of_gradients() -> None:
    stands = [*program(turns(more=(17, 18)))[:34], Stall()]
    snapshot = job(turns(), turns(), turns(more=(17, 18)), first=stands)
    assert accumulated_alone(Case(snapshot)) is None


@pytest.mark.parametrize("made", [NONE, KEEP])
def test_a_rank_in_its_present_step_may_come_to_that_backward_yet(made: Backwards) -> None:
    """GIVEN a rank that waits in a call of the step, ahead of its backward WHEN the others are past theirs."""
    waits = [*program(turns())[:26], Call("all_gather", line=9, size=1), *program(turns())[26:]]
    snapshot = job(turns(), turns(), turns(), first=waits)
    case = Case(snapshot)
    present = case.ranks[0].step.step
    assert present is not None
    mine = [each if step < present else made for step, each in enumerate(turns())]
    later = [each if step != present else SYNC for step, each in enumerate(turns())]
    ranks = [recorded(rank, mine if rank.rank == 0 else later) for rank in snapshot.ranks]
    assert backwards_apart(Case(replace(snapshot, ranks=tuple(ranks)))) is None


def test_boards_that_do_not_count_them_say_nothing() -> None:
    snapshot = job(turns(), turns(), turns(more=(17, 18)))
    plain = World([program(turns()), program(turns()), program(turns(more=(17, 18)))]).run().snapshot()
    assert backwards_apart(Case(snapshot)) is not None
    assert backwards_apart(Case(plain)) is None
