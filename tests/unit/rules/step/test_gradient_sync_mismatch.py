"""`gradient-sync-mismatch`: gradients are synchronised at different intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.parting import Left, parting
from hangwatch.judge import diagnose
from hangwatch.model import Collectives, Frame, Phase, ProcessFacts, RankEvidence, Snapshot
from hangwatch.rules.step.gradient_sync_mismatch import gradient_sync_mismatch, synchronised_out_of_turn
from tests.unit.rules.step.loops import END, GRADIENTS, Program, judged
from tests.unit.rules.step.worlds import with_ring
from tests.unit.simulator import TORCH, Action, Call, Draw, LoopEnd, Stall, World, blamed_ranks


def accumulating(every: int) -> Program:
    steps = ([Draw(0, batch), *(GRADIENTS if (batch + 1) % every == 0 else ())] for batch in range(48))
    return [*(action for step in steps for action in step), LoopEnd(), *END]


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_accumulation_over_other_numbers_of_batches_is_told_by_the_rhythm(ranks: int) -> None:
    judgement = judged(accumulating(4), accumulating(2), ranks, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed_ranks(judgement) == [1]


def test_of_two_ranks_that_accumulate_differently_neither_is_blamed() -> None:
    judgement = judged(accumulating(4), accumulating(2), 2, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed_ranks(judgement) == []
    assert "rank 1 every 2 batches and rank 0 every 4 batches" in judgement.verdict.summary


def by_tokens(*long: int) -> Program:
    """Gradients are synchronised every 4 batches, and since the batches of `long` every 2: their texts are longer."""
    found, seen = list[Action](), 0
    for batch in range(64):
        seen += 2 if batch in long else 1
        found += [Draw(0, batch), *(GRADIENTS if seen >= 4 else ())]
        seen %= 4
    return [*found, LoopEnd(), *END]


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_took_up_another_rhythm_is_named_and_not_the_one_that_kept_its_own(ranks: int) -> None:
    judgement = judged(by_tokens(), by_tokens(*range(24, 64)), ranks, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert judgement.verdict.certainty == ("likely" if ranks == 2 else "proven"), "most ranks say so, too"
    assert blamed_ranks(judgement) == [1]
    assert "rank 1 every 2 batches" in judgement.verdict.summary
    assert any("and rank 1 another one since step 2" in sentence for sentence in judgement.verdict.evidence)
    assert any(
        "rank 1 issued collectives in every 2nd step since step 2" in each for each in judgement.verdict.evidence
    )


def by_own_tokens(*gaps: int, batches: int = 60) -> Program:
    """Gradients are synchronised after numbers of batches that take turns: each rank's texts differ in length."""
    due, at = set[int](), -1
    while at < batches:
        at += gaps[len(due) % len(gaps)]
        due.add(at)
    steps = ([Draw(0, batch), *(GRADIENTS if batch in due else ())] for batch in range(batches))
    return [*(action for step in steps for action in step), LoopEnd(), *END]


@pytest.mark.parametrize(("ranks", "blamed"), [(2, []), (3, [1])])
def test_intervals_that_change_on_each_rank_are_told_as_such(ranks: int, blamed: list[int]) -> None:
    judgement = judged(by_own_tokens(5, 6, 5), by_own_tokens(3, 2, 2), ranks, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed_ranks(judgement) == blamed
    assert "rank 1 after 2 to 3 batches" in judgement.verdict.summary
    assert "rank 0 after 5 to 6 batches" in judgement.verdict.summary
    assert "reduce what decides it (a number of tokens" in judgement.verdict.fix


def test_a_rank_with_longer_intervals_than_the_others_has_skipped_none() -> None:
    """It comes to its gradients in steps of its own, and not in some of those in which the others do."""
    judgement = judged(by_own_tokens(4), by_own_tokens(14, 15, 14), 4, 1)
    assert judgement.verdict.cause == "gradient-sync-mismatch"
    assert blamed_ranks(judgement) == [1]
    assert "rank 1 after 14 to 15 batches" in judgement.verdict.summary


@pytest.mark.parametrize(("guard", "cause"), [("none", "gradient-sync-mismatch"), ("other", "collective-mismatch")])
def test_a_call_within_the_loop_to_which_all_come_ends_the_gradients_of_a_rank(guard: str, cause: str) -> None:
    """An evaluation is due on all ranks; that one of them calls alone, on a condition, is another thing."""

    def evaluating(*gaps: int) -> Program:
        found: list[Action] = []
        for action in by_own_tokens(*gaps)[:-2]:
            found.append(action)
            if isinstance(action, Draw) and action.batch == 30:
                found.append(Call("all_gather", line=84))
        return found

    def guarded(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, guard=guard) for stack in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    snapshot = World([evaluating(*((7, 6, 7) if rank == 1 else (4,))) for rank in range(4)]).run().snapshot()
    judgement = diagnose(replace(snapshot, ranks=tuple(map(guarded, snapshot.ranks))))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == (cause, [1])
    assert ("and rank 1 waits in another call" in judgement.verdict.summary) == (guard == "none")


def test_intervals_that_change_alike_on_all_ranks_explain_nothing() -> None:
    """One rank leaves out one of its backwards, as all accumulate alike."""
    usual = by_own_tokens(5, 6, 5)
    first = usual.index(GRADIENTS[0])
    odd = [*usual[:first], *usual[first + len(GRADIENTS) :]]
    assert "numbers of batches of their own" not in judged(usual, odd, 3, 1).verdict.summary


def test_counts_of_a_rank_that_has_ended_are_not_compared_with_recorded_calls_of_others() -> None:
    """It has left no record of backward's calls; what it called from Python every other step is another rhythm."""

    def logging(batches: int) -> Program:
        log: Program = [Call("all_gather", line=60)]
        steps: list[Program] = [[Draw(0, batch), GRADIENTS[0], *(log if batch % 2 else [])] for batch in range(batches)]
        return [*[action for step in steps for action in step], LoopEnd()]

    snapshot = World([logging(15), logging(16), logging(16)]).run().snapshot()
    ended = replace(snapshot.ranks[0], collectives=Collectives(snapshot.ranks[0].collectives.heads))
    assert gradient_sync_mismatch(Case(replace(snapshot, ranks=(ended, *snapshot.ranks[1:])))) is None


def _synchronising(every: int, *gradients: Call, turns: int = 24) -> Program:
    found: Program = []
    for batch in range(turns):
        found += [Draw(0, batch), *(gradients if (batch + 1) % every == 0 else ())]
    return found


@pytest.mark.parametrize("via", ["gradients", "python"])
def test_a_rhythm_is_told_in_a_failed_job_and_by_its_line_where_python_calls(via: str) -> None:
    usual, odd = (_synchronising(every, *[Call(line=14, via=via)] * 3) for every in (4, 6))
    snapshot = World([odd if rank == 2 else usual for rank in range(3)]).run().snapshot()
    ended = replace(snapshot.ranks[0], process=ProcessFacts(4000, "X", exit_code=-6), stacks=())
    ranks = (ended, *snapshot.ranks[1:])
    if via == "python":  # the board has what Python code issued
        ranks = tuple(map(with_ring, ranks))
    finding = gradient_sync_mismatch(Case(replace(snapshot, ranks=ranks)))
    assert finding is not None
    assert [who.rank for who in finding.culprits] == [2]
    what = "their gradients (train.py:14)" if via == "gradients" else "(train.py:14)"
    sides = "ranks 0-1 every 4 batches and rank 2 every 6 batches"
    assert finding.summary == f"The ranks synchronise {what} at different intervals: {sides}."


def test_one_step_that_a_rank_left_out_makes_no_rhythm() -> None:
    """Two models in turn issue one and two calls; a rank without any in one step keeps the rhythm of the others."""

    def alternating(skipped: int | None) -> Program:
        one: Program = [Call(line=12, via="gradients")]
        turn = [[Draw(0, batch), *one * (0 if batch == skipped else 1 + batch % 2)] for batch in range(20)]
        return [action for step in turn for action in step]

    snapshot = World([alternating(None), alternating(14)]).run().snapshot()
    ranks = tuple(replace(each, collectives=Collectives(each.collectives.heads)) for each in snapshot.ranks)
    case = Case(replace(snapshot, ranks=ranks))
    assert case.divergences
    assert gradient_sync_mismatch(case) is None
    found = parting(case)
    assert found is not None
    assert (found.how, found.who) == (Left.SKIPPED, (1,))
    assert "rank 1 issued 1 or 2 in every earlier step that is recorded" in [each.says for each in found.witnesses]


def _accumulating(every: int, batches: int, number: int) -> Program:
    """Each step ends with a gather; gradients are synchronised in every few of them."""
    found: Program = []
    for batch in range(batches):
        found += [
            Draw(number, batch),
            *(GRADIENTS[:1] if (batch + 1) % every == 0 else ()),
            Call("all_gather", line=20),
        ]
    return [*found, LoopEnd()]


def _at_a_new_rhythm(*every: int) -> Snapshot:
    """All ranks are in backward or have ended it: so their boards say."""
    programs = [[*_accumulating(2, 8, 0), *_accumulating(each, 8, 1)] for each in every]
    snapshot = World(programs).run().snapshot()
    return replace(snapshot, ranks=tuple(map(_in_backward, snapshot.ranks)))


def _in_backward(rank: RankEvidence) -> RankEvidence:
    """Its record shows which calls the engine made, as torch's does."""
    assert rank.reading is not None
    assert rank.collectives is not None
    engine = Frame(f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward")
    recent = tuple(
        replace(call, frames=(engine, *call.frames)) if call.frames[0].line == GRADIENTS[0].line else call
        for call in rank.collectives.recent
    )
    reading = replace(rank.reading, phase=Phase.BACKWARD)
    return replace(rank, reading=reading, collectives=replace(rank.collectives, recent=recent))


def test_a_rhythm_that_changes_on_one_rank_in_another_way_is_told_by_its_first_turn() -> None:
    judgement = diagnose(_at_a_new_rhythm(4, 3, 4))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("gradient-sync-mismatch", [1])
    passed = "which ranks 0 and 2 passed without synchronising any."
    assert judgement.verdict.summary == f"Rank 1 waits for the gradients of epoch 1, batch 2 (step 10), {passed}"


@pytest.mark.parametrize("every", [(4, 3), (3, 3, 4)])
def test_ranks_that_are_no_more_than_those_that_wait_may_as_well_have_left_a_synchronisation_out(
    every: tuple[int, ...],
) -> None:
    assert synchronised_out_of_turn(Case(_at_a_new_rhythm(*every))) is None


def _at_the_first(*every: int, optimized: int = 0) -> Snapshot:
    """Training has just begun: the boards count that many steps of an optimizer, all in the first step."""

    def counted(rank: RankEvidence) -> RankEvidence:
        assert rank.reading is not None
        progress = replace(rank.reading.progress, optimizer_steps=optimized)
        steps = tuple(replace(each, optimizer_steps=optimized if each.step else 0) for each in rank.reading.steps)
        return replace(rank, reading=replace(rank.reading, progress=progress, steps=steps))

    snapshot = World([_accumulating(each, 8, 0) for each in every]).run().snapshot()
    return replace(snapshot, ranks=tuple(counted(_in_backward(rank)) for rank in snapshot.ranks))


@pytest.mark.parametrize("culprit", range(3))
def test_a_rank_that_goes_on_accumulating_where_the_others_synchronise_for_the_first_time(culprit: int) -> None:
    judgement = diagnose(_at_the_first(*(4 if rank == culprit else 2 for rank in range(3))))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("gradient-sync-mismatch", [culprit])
    passed = f"of epoch 0, batch 1 (step 1), which rank {culprit} passed without synchronising any."
    assert judgement.verdict.summary.endswith(passed)


def test_where_optimizers_have_made_steps_without_a_synchronisation_none_was_due() -> None:
    assert synchronised_out_of_turn(Case(_at_the_first(4, 2, 2, optimized=1))) is None
    assert synchronised_out_of_turn(Case(_at_the_first(1, 2, 1))) is None  # some synchronise from the first step on


def test_a_rank_without_data_passes_the_first_synchronisation_for_want_of_it() -> None:
    snapshot = _at_the_first(4, 2, 2)
    first = snapshot.ranks[0]
    assert first.reading is not None
    loaders = tuple(replace(each, exhausted=True) for each in first.reading.loaders)
    ended = replace(first, reading=replace(first.reading, loaders=loaders))
    assert synchronised_out_of_turn(Case(snapshot)) is not None
    assert synchronised_out_of_turn(Case(replace(snapshot, ranks=(ended, *snapshot.ranks[1:])))) is None


def test_ranks_that_have_not_ended_their_backward_may_synchronise_yet() -> None:
    snapshot = _at_a_new_rhythm(4, 3, 4)
    first = snapshot.ranks[0]
    assert first.reading is not None
    forward = replace(first, reading=replace(first.reading, phase=Phase.FORWARD))
    case = Case(replace(snapshot, ranks=(forward, *snapshot.ranks[1:])))
    assert synchronised_out_of_turn(case) is None


def test_without_accumulation_a_lone_synchronisation_is_no_rhythm() -> None:
    usual, odd = (
        [*_accumulating(1, 4, 0), Draw(1, 0), *gradients, Call("all_gather", line=20)]
        for gradients in ((), GRADIENTS[:1])
    )
    snapshot = World([usual, odd, usual]).run().snapshot()
    assert synchronised_out_of_turn(Case(replace(snapshot, ranks=tuple(map(_in_backward, snapshot.ranks))))) is None


def test_the_line_of_backward_is_told_where_ranks_wait_in_it() -> None:
    """The odd rank has ended its loop, and stands elsewhere."""
    usual, odd = (_synchronising(every, GRADIENTS[0]) for every in (4, 6))
    snapshot = World([[*(odd if rank == 2 else usual), LoopEnd(), *END] for rank in range(3)]).run().snapshot()
    verdict = diagnose(snapshot).verdict
    line = GRADIENTS[0].line
    assert verdict.summary.startswith(f"The ranks synchronise their gradients (train.py:{line}) at different intervals")
    assert [who.where.line for who in verdict.culprits if who.where is not None] == [line]


def _gathering_in_forward(every: int, batches: int, *, alone_at: int | None = None) -> Program:
    """A gather in the forward of each step, gradients in every few; the gather is left out of step `alone_at`."""
    found: Program = []
    for batch in range(batches):
        gather = [] if batch == alone_at else [Call("all_gather", line=20)]
        found += [Draw(0, batch), *gather, *(GRADIENTS[:1] if (batch + 1) % every == 0 else ())]
    return [*found, LoopEnd()]


@pytest.mark.parametrize(("every", "recorded"), [(2, 128), (1, 12)])
def test_a_call_of_the_forward_is_not_behind_backward(every: int, recorded: int) -> None:
    """GIVEN a rank that leaves out the gather of one forward, and comes to its gradients, WHEN judged, THEN that is no
    rhythm: the others are in that gather, which in all steps comes before backward; and steps that are not on record
    any more are none without gradients."""
    programs = [_gathering_in_forward(every, 14, alone_at=9 if rank == 2 else None) for rank in range(3)]
    snapshot = World(programs).run().snapshot()
    ranks = tuple(map(_in_backward, snapshot.ranks))
    shortened = tuple(
        replace(rank, collectives=replace(rank.collectives, recent=rank.collectives.recent[-recorded:]))
        for rank in ranks
    )
    case = Case(replace(snapshot, ranks=shortened))
    assert synchronised_out_of_turn(case) is None


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_rank_that_stands_in_its_own_code_may_come_to_its_next_gradients(ranks: int) -> None:
    """All keep intervals of their own, which fit until now."""
    usual, odd = by_own_tokens(5, 6, 5), by_own_tokens(3, 2, 2)
    calls = [n for n, action in enumerate(odd) if action is GRADIENTS[-1]]
    stuck = [*odd[: calls[6] + 1], Stall(line=40)]
    assert judged(usual, stuck, ranks, 1).verdict.cause != "gradient-sync-mismatch"
