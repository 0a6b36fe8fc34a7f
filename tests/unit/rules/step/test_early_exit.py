"""`early-exit`: one rank left the training loop early."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import (
    ExceptionFacts,
    Frame,
    Judgement,
    LoaderFacts,
    LoopFacts,
    Phase,
    Progress,
    RankEvidence,
    Snapshot,
    ThreadStack,
)
from hangwatch.ranks.view import RankView
from hangwatch.rules.step.early_exit import early_exit
from tests.unit.job import IN_BACKWARD, IN_CODE, NOW, blamed, gone, judge, leaving, rank, told
from tests.unit.rules.step.aborts import CLOSED, EXTRA, calls, dead, drew, lost
from tests.unit.rules.step.endings import DDP, ended, failed
from tests.unit.rules.step.loops import END, epoch, everywhere, judged
from tests.unit.simulator import SCRIPT, TRAINER, Leave, LoopEnd, World, blamed_ranks


def test_a_loop_that_an_error_has_left_is_not_left() -> None:
    def fed(*, left: bool, exhausted: bool = False) -> LoaderFacts:
        return LoaderFacts(0, 60, epoch=0, drawn=30, left=left, exhausted=exhausted)

    error = failed(0, (DDP, 1, "forward"))
    assert error.reading is not None
    down = replace(error, reading=replace(error.reading, loaders=(fed(left=True),)))
    other = gone(1, -15, Phase.STEP, loaders=(replace(fed(left=False), drawn=31),))
    assert judge(down, other).verdict.cause != "early-exit"


@everywhere
def test_a_rank_that_breaks_out_of_the_loop_exited_early(ranks: int, culprit: int) -> None:
    judgement = judged([*epoch(0, 8), *END], [*epoch(0, 4)[:-1], LoopEnd(exhausted=False), *END], ranks, culprit)
    assert judgement.verdict.cause == "early-exit"
    assert blamed_ranks(judgement) == [culprit]


def test_a_batch_that_a_trainer_had_drawn_ahead_is_not_counted() -> None:
    usual, odd = [*epoch(0, 8), *END], [*epoch(0, 4)[:-1], LoopEnd(exhausted=False), *END]
    snapshot = World([odd if rank == 1 else usual for rank in range(3)]).run().snapshot()

    def one_more(loader: LoaderFacts) -> LoaderFacts:
        epochs = tuple(count + 1 for count in loader.drawn_per_epoch)
        return replace(loader, length=20, drawn=loader.drawn + 1, drawn_per_epoch=epochs)

    def ahead(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loaders = tuple(map(one_more, entry.reading.loaders))
        return replace(entry, reading=replace(entry.reading, loaders=loaders))

    plain, drawn = (
        diagnose(each).verdict for each in (snapshot, replace(snapshot, ranks=tuple(map(ahead, snapshot.ranks))))
    )
    assert (drawn.cause, [who.rank for who in drawn.culprits]) == ("early-exit", [1])
    assert "left the training loop after 4 batches of epoch 0" in drawn.summary
    assert drawn.step == plain.step
    assert any(sentence.startswith("rank 1 drew 5 batches in epoch 0") for sentence in drawn.evidence)


@everywhere
def test_a_rank_that_ends_its_program_while_the_others_train_exited_early(ranks: int, culprit: int) -> None:
    judgement = judged([*epoch(0, 8), *epoch(1, 8), *END], [*epoch(0, 8), Leave(Phase.MAIN_DONE)], ranks, culprit)
    assert judgement.verdict.cause == "early-exit"
    assert blamed_ranks(judgement) == [culprit]


# ------------------------------------------------------------------------------------------ or an error took it out

LOOP, CATCH, BREAK = Frame(SCRIPT, 9, "main"), Frame(SCRIPT, 95, "main"), Frame(SCRIPT, 13, "main")


def left_with_data(loop: LoopFacts | None, *below: Frame) -> Snapshot:
    """Rank 1 left after 4 of 8 batches; the others stand in backward, in this loop, with these frames around it."""
    usual, odd = [*epoch(0, 8), *END], [*epoch(0, 4)[:-1], LoopEnd(exhausted=False), *END]
    snapshot = World([usual, odd, usual]).run().snapshot()

    def inside(stack: ThreadStack) -> ThreadStack:
        return replace(stack, loop=loop, frames=(*stack.frames, *below)) if stack.main else stack

    def known(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loaders = tuple(replace(each, length=8) for each in entry.reading.loaders)
        stacks = entry.stacks if entry.rank == 1 else tuple(map(inside, entry.stacks))
        return replace(entry, reading=replace(entry.reading, loaders=loaders), stacks=stacks, earlier_stacks=stacks)

    return replace(snapshot, ranks=tuple(map(known, snapshot.ranks)))


def test_a_loop_with_data_left_and_no_error_to_be_caught_is_proven() -> None:
    judgement = diagnose(left_with_data(LoopFacts(LOOP, leaves=(BREAK,))))
    assert told(judgement)[:2] == ("early-exit", "proven")


@pytest.mark.parametrize(("line", "told"), [(9, True), (7, False)], ids=["the data's loop", "a loop within it"])
def test_the_ways_out_of_the_loop_over_the_data_are_told(line: int, told: bool) -> None:
    snapshot = left_with_data(LoopFacts(LOOP, leaves=(BREAK,)))
    iterates = Frame(SCRIPT, line, "main")

    def known(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loaders = tuple(replace(each, where=iterates) for each in entry.reading.loaders)
        return replace(entry, reading=replace(entry.reading, loaders=loaders))

    verdict = diagnose(replace(snapshot, ranks=tuple(map(known, snapshot.ranks)))).verdict
    assert ("the loop at train.py:9 can be left at train.py:13" in verdict.evidence) is told


def test_where_an_error_would_be_caught_outside_the_loop_an_exit_is_only_likely() -> None:
    judgement = diagnose(left_with_data(LoopFacts(LOOP, leaves=(BREAK,), swallows=CATCH)))
    assert told(judgement)[:2] == ("early-exit", "likely")
    assert blamed_ranks(judgement) == [1]
    assert any("caught at train.py:95" in sentence for sentence in judgement.verdict.details)


def test_where_only_an_error_leads_out_of_the_loop_it_was_an_error() -> None:
    judgement = diagnose(left_with_data(LoopFacts(LOOP, swallows=CATCH)))
    assert told(judgement)[:2] == ("exception-on-one-rank", "likely")
    assert blamed_ranks(judgement) == [1]
    assert "an error, caught at train.py:95, is the only other way out of it" in judgement.verdict.summary


def test_the_loop_of_a_trainer_may_have_been_left_by_an_error() -> None:
    judgement = diagnose(left_with_data(None, Frame(TRAINER, 40, "fit")))
    assert told(judgement)[:2] == ("early-exit", "likely")
    assert blamed_ranks(judgement) == [1]


def test_the_one_rank_that_ended_its_program_while_most_still_called_collectives() -> None:
    judgement = judge(failed(0), failed(1), ended(2), world_size=3)
    assert told(judgement) == ("early-exit", "likely", "failed")
    assert blamed(judgement) == [(2, 102, "rank")]


def test_a_rank_on_its_way_out_of_a_program_without_an_error_has_ended_it_too() -> None:
    """The interpreter takes a second to be taken down, in which the others fail."""
    judgement = judge(failed(0), failed(1), leaving(2, (), Phase.FINALIZING, still_s=1.0), world_size=3)
    assert told(judgement) == ("early-exit", "likely", "failed")
    assert blamed(judgement) == [(2, 102, "rank")]
    assert "exit code" not in judgement.verdict.summary
    assert "rank 2 is past the end of its main program, and raised no error" in judgement.verdict.evidence


def test_of_two_halves_nobody_is_said_to_have_ended_too_early() -> None:
    assert told(judge(failed(0), ended(1), world_size=2)) == ("undetermined", "undetermined", "failed")


def test_where_ranks_are_not_seen_no_majority_is_known() -> None:
    assert blamed(judge(failed(0), failed(1), ended(2), world_size=8)) == []


def test_ranks_that_another_ranks_loader_feeds_are_not_said_to_have_drawn_nothing() -> None:
    """Accelerate's dispatcher draws on rank 0 alone: what the others did is told by their forwards."""
    usual, odd = [*epoch(0, 8), *END], [*epoch(0, 4)[:-1], LoopEnd(exhausted=False), *END]
    snapshot = World([odd if rank == 1 else usual for rank in range(3)]).run().snapshot()

    def fed(evidence: RankEvidence) -> RankEvidence:
        assert evidence.reading is not None
        loaders = tuple(replace(each, drawn=0, drawn_per_epoch=()) for each in evidence.reading.loaders)
        progress = replace(evidence.reading.progress, forwards=4)
        return replace(evidence, reading=replace(evidence.reading, loaders=loaders, progress=progress))

    finding = early_exit(Case(replace(snapshot, ranks=(snapshot.ranks[0], *map(fed, snapshot.ranks[1:])))))
    assert finding is not None
    assert [who.rank for who in finding.culprits] == [1]
    assert finding.summary.startswith("Rank 1 left the training loop after 4 forwards, and is now at")
    said = [witness.says for witness in finding.witnesses]
    assert "rank 1 made 4 forwards, with no batch of its own loader" in said
    assert not any("0 batches" in each for each in said)


def test_a_rank_that_began_no_further_epoch_is_told_where_the_others_failed_for_want_of_it() -> None:
    def at(entry: RankEvidence, epoch: int, drawn: int) -> RankEvidence:
        assert entry.reading is not None
        where, past = Frame(SCRIPT, 23, "main"), (20,) * epoch + (drawn,)
        loader = LoaderFacts(0, 20, epoch, drawn, left=True, where=where, drawn_per_epoch=past)
        return replace(entry, reading=replace(entry.reading, loaders=(loader,)))

    lost = [at(failed(number, (DDP, 1, "forward")), 3, 1) for number in range(2)]
    slow = at(rank(2, IN_CODE), 2, 20)
    assert judge(*lost, slow, world_size=3).verdict.cause != "early-exit"  # it lives, and may go on
    judgement = judge(*lost, at(ended(2), 2, 20), world_size=3)
    assert told(judgement) == ("early-exit", "likely", "failed")
    assert judgement.verdict.summary.startswith("Rank 2 stopped training after epoch 2 and exited; ranks 0-1 went on")
    assert [(who.rank, who.where and who.where.line) for who in judgement.verdict.culprits] == [(2, 23)]


STOP = Frame(SCRIPT, 31, "main")


def without_another_epoch(leaves: tuple[Frame, ...], *left: int) -> Judgement:
    """Of three ranks the last ones were aborted behind the loop over epochs, when the others had begun the second."""

    def fed(entry: RankEvidence, epoch: int, drawn: int, *past: int) -> RankEvidence:
        assert entry.reading is not None
        where = Frame(SCRIPT, 23, "main")
        loader = LoaderFacts(0, 5, epoch, drawn, exhausted=drawn == 5, where=where, drawn_per_epoch=past)
        heads = tuple(replace(head, members=(0, 1, 2)) for head in entry.reading.heads)
        progress = replace(entry.reading.progress, step=4 + epoch)
        return replace(entry, reading=replace(entry.reading, loaders=(loader,), heads=heads, progress=progress))

    loop = LoopFacts(Frame(SCRIPT, 23, "main"), outer=(Frame(SCRIPT, 20, "main"),), outer_leaves=(leaves,))
    inside = [number for number in range(3) if number not in left]
    failing = [replace(lost(number, calls(6)), stacks=dead(number, calls(6)).stacks) for number in inside]
    others = [fed(in_loop(each, loop), 1, 1, 5) for each in failing]
    ended = [fed(in_loop(dead(number, calls(5, EXTRA)), None), 0, 5, 5) for number in left]
    return judge(*others, *ended, world_size=3)


def test_a_rank_aborted_behind_the_loop_over_epochs_began_no_further_one() -> None:
    """Its data had run out as that of all others: it does not lack a batch, but an epoch."""
    judgement = without_another_epoch((STOP,), 2)
    assert told(judgement)[::2] == ("early-exit", "failed")
    assert judgement.verdict.summary.startswith("Rank 2 stopped training after epoch 0")
    assert "ranks 0-1 went on to epoch 1. Then rank 2 was aborted by gloo" in judgement.verdict.summary
    assert "the loop at train.py:20 can be left at train.py:31" in judgement.verdict.evidence


@pytest.mark.parametrize(("left", "odd"), [((2,), 2), ((1, 2), 0)])
def test_a_loop_over_epochs_without_a_way_out_ended_at_its_bounds(left: tuple[int, ...], odd: int) -> None:
    """The fewer ranks differ: they began it later or earlier than the others, or end it elsewhere."""
    judgement = without_another_epoch((), *left)
    assert told(judgement) == ("uneven-steps", "likely", "failed")
    assert [(who.rank, who.where and who.where.line) for who in judgement.verdict.culprits] == [(odd, 20)]
    assert "the loop at train.py:20 has no break and no return" in judgement.verdict.evidence


def in_loop(entry: RankEvidence, loop: LoopFacts | None) -> RankEvidence:
    stacks = tuple(replace(stack, in_loop=loop is not None, loop=loop, guard="none") for stack in entry.stacks)
    return replace(entry, stacks=stacks)


def lost_in_backward(number: int, code: int | None, *, step: int = 5) -> RankEvidence:
    """It caught the loss of its peer, and has come to the end of its program since."""
    error = ExceptionFacts("RuntimeError", CLOSED, (IN_BACKWARD[0],), at=NOW - 12, fatal=False, step=step)
    loader = LoaderFacts(0, 24, epoch=0, drawn=6, left=True, drawn_per_epoch=(6,))
    parts: dict[str, Any] = {"exception": error, "progress": Progress(step=5, epoch=0, batch=5), "loaders": (loader,)}
    if code is None:
        return leaving(number, (), Phase.ATEXIT, still_s=1.0, **parts)
    return gone(number, code, Phase.ATEXIT, **parts)


@pytest.mark.parametrize("code", [-15, -6, 3, None])
def test_a_rank_that_caught_the_loss_of_a_peer_and_ended_left_nothing_too_early(code: int | None) -> None:
    """Another rank was aborted first. It neither stopped its training nor destroyed a group that was still used."""
    aborted = drew(dead(0, calls(6)), 6, left=False)
    judgement = judge(aborted, lost_in_backward(1, code), world_size=2)
    assert told(judgement)[2] == "failed"
    assert 1 not in [who.rank for who in judgement.verdict.culprits]


def test_a_loss_that_was_handled_in_an_earlier_step_excuses_nothing() -> None:
    view = RankView(1, lost_in_backward(1, -15, step=3), sampled_twice=True)
    assert (view.lost_a_peer, view.finished) == (False, True)
    assert RankView(1, lost_in_backward(1, -15), sampled_twice=True).lost_a_peer
    assert RankView(1, lost_in_backward(1, 0), sampled_twice=True).finished  # it chose to end so
