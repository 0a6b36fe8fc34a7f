"""`uneven-steps`: ranks ran out of data at different batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import (
    EPOCHS_KEPT,
    Bypass,
    CallSite,
    Frame,
    LoaderFacts,
    LoopFacts,
    Phase,
    RankEvidence,
    Snapshot,
    Status,
)
from tests.unit.job import IN_BACKWARD, IN_BARRIER, SCRIPT, blamed, judge, leaving, rank, told
from tests.unit.rules.step.endings import DDP, ended, failed
from tests.unit.rules.step.loops import END, GRADIENTS, Program, epoch, everywhere, judged
from tests.unit.simulator import TORCH, Call, Die, Draw, LoopEnd, World, blamed_ranks


def test_a_rank_that_ended_steps_before_the_one_that_failed() -> None:
    judgement = judge(failed(0, (DDP, 1, "forward")), ended(1, step=3))
    assert told(judgement) == ("uneven-steps", "likely", "failed")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "after 4 steps" in judgement.verdict.summary


def test_a_short_rank_on_its_way_out_is_told_where_the_others_failed_for_want_of_it() -> None:
    def fed(entry: RankEvidence, drawn: int) -> RankEvidence:
        assert entry.reading is not None
        loader = LoaderFacts(0, None, epoch=1, drawn=drawn, exhausted=drawn == 33, drawn_per_epoch=(drawn, drawn))
        return replace(entry, reading=replace(entry.reading, loaders=(loader,)))

    lost = [fed(failed(number, (DDP, 1, "forward")), 46) for number in range(2)]
    judgement = judge(*lost, fed(leaving(2, (), Phase.FINALIZING, still_s=1.0), 33), world_size=3)
    assert told(judgement)[::2] == ("uneven-steps", "failed")
    assert blamed(judgement) == [(2, 102, "rank")]


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


@pytest.mark.parametrize("drawn", [0, 1])
def test_a_rank_whose_epochs_are_all_empty_has_no_data(drawn: int) -> None:
    where = Frame(SCRIPT, 17, "main")
    dry = LoaderFacts(
        0, None, epoch=8_000, drawn_per_epoch=(drawn, *(0,) * (EPOCHS_KEPT - 1)), where=where, dataset="ShardList"
    )
    spins = rank(0, (where,), loaders=(dry,), issued=4, completed=4, facts={"cpu_delta_s": 0.9, "state": "R"})
    judgement = judge(spins, rank(1, IN_BACKWARD, issued=5, completed=4))
    if drawn:
        assert judgement.verdict.cause != "uneven-steps"
        assert judgement.status is Status.WAITING
        return
    assert told(judgement) == ("uneven-steps", "likely", "hung")
    assert blamed(judgement) == [(0, 100, "rank")]
    assert "Rank 0 has no data: its loader, of ShardList, gives no batch" in judgement.verdict.summary
    assert "rank 0 has begun 8001 epochs with it, and none of the last 64 had a batch" in judgement.verdict.evidence


def plain(steps: int) -> Program:
    """A loop of one's own, without a DataLoader."""
    return [action for _ in range(steps) for action in (Draw(), *GRADIENTS)]


@everywhere
@pytest.mark.parametrize("buffers", [False, True])
def test_a_rank_with_one_batch_less_ran_out_of_data(ranks: int, culprit: int, buffers: bool) -> None:
    judgement = judged([*epoch(0, 6, buffers=buffers), *END], [*epoch(0, 5, buffers=buffers), *END], ranks, culprit)
    assert judgement.verdict.cause == "uneven-steps"
    assert blamed_ranks(judgement) == [culprit]
    assert (judgement.verdict.step.epoch, judgement.verdict.step.batch) == (0, 5)
    assert judgement.status is Status.HUNG


def test_ranks_that_have_all_ended_have_nothing_to_be_told_of_their_data() -> None:
    # GIVEN a job without a collective in its last steps, which one rank makes fewer of
    ended: list[Program] = [
        [*GRADIENTS, *(Draw(0, batch) for batch in range(count)), LoopEnd(), Die(0)] for count in (6, 4, 6)
    ]
    verdict = diagnose(World(ended).run().snapshot()).verdict
    assert verdict.cause == "undetermined"
    assert verdict.summary == "All ranks have ended without an error."


@everywhere
def test_the_first_epoch_that_differed_is_named_when_the_hang_comes_epochs_later(ranks: int, culprit: int) -> None:
    long = [*epoch(0, 4), *epoch(1, 5), *epoch(2, 5), *END]
    short = [*epoch(0, 4), *epoch(1, 4), *epoch(2, 4), *END]
    judgement = judged(long, short, ranks, culprit)
    assert judgement.verdict.cause == "uneven-steps"
    assert blamed_ranks(judgement) == [culprit]
    assert (judgement.verdict.step.epoch, judgement.verdict.step.batch) == (1, 4)


@everywhere
def test_a_rank_that_leaves_a_plain_loop_early_is_found_without_a_loader(ranks: int, culprit: int) -> None:
    judgement = judged([*plain(9), *END], [*plain(7), *END], ranks, culprit)
    assert blamed_ranks(judgement) == [culprit]
    if culprit != 0:  # on rank 0 a barrier behind the loop looks like one behind a rank check
        assert judgement.verdict.cause == "uneven-steps"


@pytest.mark.parametrize(("joins", "forwards"), [(False, 9), (True, 9), (False, 0)])
def test_join_is_recommended_for_the_loop_of_a_wrapped_model_that_does_not_use_it(joins: bool, forwards: int) -> None:
    """GIVEN a job that DDP counts no forwards of, such as a pipeline THEN Join could stand in for none of its calls."""
    programs = [[*epoch(0, 8 if rank == 1 else 9), *END] for rank in range(3)]
    snapshot = World(programs).run().snapshot()
    join = Frame(f"{TORCH}/distributed/algorithms/join.py", 283, "__exit__")

    def changed(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        counted = replace(entry.reading, progress=replace(entry.reading.progress, forwards=forwards))
        stacks = tuple(replace(s, frames=(*s.frames[:-1], join, s.frames[-1])) for s in entry.stacks)
        return replace(entry, reading=counted, stacks=stacks if joins and entry.rank == 1 else entry.stacks)

    verdict = diagnose(replace(snapshot, ranks=tuple(map(changed, snapshot.ranks)))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("uneven-steps", [1])
    assert ("with Join([model])" in verdict.fix) == (not joins and forwards > 0)
    assert ("Join stands in for" in verdict.fix) == joins


def test_short_ranks_that_differ_among_themselves_are_told_with_both_counts() -> None:
    """Their calls were mispaired until the next epoch."""
    programs = ([*epoch(0, batches), *epoch(1, batches)] for batches in (8, 5, 6))
    snapshot = World(list(programs)).run().snapshot()
    judgement = diagnose(snapshot)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("uneven-steps", [1, 2])
    assert "they drew 5 to 6 of 8 batches in epoch 0" in judgement.verdict.summary


@pytest.mark.parametrize("length", [None, 12])
def test_batches_that_others_may_yet_draw_are_no_total(length: int | None) -> None:
    """GIVEN loaders without a length WHEN no rank but the short one has come to the end of the epoch."""
    programs = ([*epoch(0, 5), *END] if number == 1 else [*epoch(0, 9)][:-1] for number in range(3))
    snapshot = World(list(programs)).run().snapshot()

    def sized(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loaders = tuple(replace(each, length=length) for each in entry.reading.loaders)
        return replace(entry, reading=replace(entry.reading, loaders=loaders))

    summary = diagnose(replace(snapshot, ranks=tuple(map(sized, snapshot.ranks)))).verdict.summary
    assert ("of 12 batches" if length else "of at least 6 batches") in summary


def _in_the_loop(found: Snapshot, rank: int) -> Snapshot:
    """The source shows that rank alone within a loop."""
    ranks = tuple(
        replace(each, stacks=tuple(replace(stack, in_loop=each.rank == rank) for stack in each.stacks))
        for each in found.ranks
    )
    return replace(found, ranks=ranks)


@pytest.mark.parametrize(("culprit", "ranks"), [(0, 4), (3, 4), (1, 3)])
def test_the_one_rank_that_makes_a_turn_more_than_most_is_named(culprit: int, ranks: int) -> None:
    """Nothing says how many turns there should be: what most ranks did is the program's."""
    usual: Program = [action for _ in range(6) for action in (Draw(), Call(line=12))]
    more: Program = [action for _ in range(7) for action in (Draw(), Call(line=12))]
    end = Call("all_gather", line=88)
    world = World([[*(more if each == culprit else usual), end] for each in range(ranks)])
    judgement = diagnose(_in_the_loop(world.run().snapshot(), culprit))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("uneven-steps", [culprit])
    assert "makes more turns than most ranks" in judgement.verdict.summary
    assert judgement.verdict.fix.startswith("let all ranks make as many turns")


@pytest.mark.parametrize(("ranks", "again"), [(4, 2), (3, 0), (2, 1)])
def test_one_turn_more_of_a_loop_that_tries_again_comes_from_an_error(ranks: int, again: int) -> None:
    """GIVEN `for attempt in range(3): try: return load() except OSError: ...` around a call of all ranks."""
    clause = Frame(SCRIPT, 13, "main")
    facts = LoopFacts(Frame(SCRIPT, 10, "main"), counted=True, skips=(clause,), leaves=(Frame(SCRIPT, 12, "main"),))
    usual: Program = [action for _ in range(6) for action in (Draw(), Call(line=12))]
    end = Call("all_gather", line=88)
    world = World([[*usual, *(usual[:2] if each == again else ()), end] for each in range(ranks)])
    found = _in_the_loop(world.run().snapshot(), again)
    evidence = tuple(
        replace(each, stacks=tuple(replace(stack, loop=facts) for stack in each.stacks)) if each.rank == again else each
        for each in found.ranks
    )
    way = tuple(frame for frame in evidence[again].stacks[0].frames if frame.file == SCRIPT)
    sites = (CallSite(way, (Bypass(clause, "except OSError"),)),)
    judgement = diagnose(replace(found, ranks=evidence, call_sites=sites))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("exception-on-one-rank", [again])
    assert f"Rank {again} has called all_reduce (train.py:12) more often than rank" in judgement.verdict.summary
    assert "probably once more after an error" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ((3, 4), ("uneven-steps", [0, 1])),
        ((4, 4), ("early-exit", [1])),
        ((4, 3), ("early-exit", [1])),  # it ended another epoch than the other one's last
        ((None, 4), ("early-exit", [1])),
    ],
)
def test_a_rank_that_began_with_a_later_epoch_and_is_at_the_same_end_has_not_left_early(
    first: tuple[int | None, int | None], told: tuple[str, list[int]]
) -> None:
    """GIVEN ranks that each resume from a checkpoint of their own WHEN one that began later has done its epochs."""
    usual = [each for number in range(3) for each in epoch(number, 4)]
    snapshot = World([[*usual, *epoch(3, 4), *END], [*usual, *END]]).run().snapshot()

    def resumed(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        loaders = tuple(replace(each, first_epoch=first[entry.rank]) for each in entry.reading.loaders)
        stacks = tuple(replace(each, in_loop=entry.rank == 0, guard="none") for each in entry.stacks)
        reading = replace(entry.reading, loaders=loaders)
        return replace(entry, reading=reading, stacks=stacks, earlier_stacks=stacks)

    judgement = diagnose(replace(snapshot, ranks=tuple(map(resumed, snapshot.ranks))))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == told, judgement.verdict.summary
    if told[0] == "uneven-steps":
        assert (
            "by the epochs of their samplers, rank 0 with epoch 3 and rank 1 with epoch 4" in judgement.verdict.evidence
        )


@pytest.mark.parametrize(("sizes", "differ"), [((8, 8, 4), True), ((8, 8, 8), False), ((8, 4, 4), False)])
def test_larger_batches_of_the_ranks_that_ran_short_are_told(sizes: tuple[int, ...], *, differ: bool) -> None:
    """GIVEN two ranks that drew half as many batches as the third."""

    def fed(number: int) -> RankEvidence:
        short = number < 2
        loader = LoaderFacts(0, 120 // (1 + short), epoch=0, drawn=60 if short else 64, exhausted=short)
        loader = replace(loader, batch_size=sizes[number])
        return rank(
            number, IN_BARRIER if short else IN_BACKWARD, loaders=(loader,), issued=21, completed=20, world_size=3
        )

    verdict = judge(*(fed(number) for number in range(3))).verdict
    assert verdict.cause == "uneven-steps"
    told_so = "the batch sizes of the loaders differ: 8 on ranks 0-1 and 4 on rank 2" in verdict.evidence
    assert (told_so, "use one batch size on every rank" in verdict.fix) == (differ, differ)
