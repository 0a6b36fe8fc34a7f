"""Loops without a DataLoader: which rank made a turn less, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.skip_paths import reached_by_all
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import first_uneven, has_left_inner_loop
from hangwatch.facts.loops.turns import FewerTurns, _made_as_many, fewer_turns
from hangwatch.judge import diagnose
from hangwatch.model import (
    Bypass,
    CallSite,
    Certainty,
    ExceptionFacts,
    Frame,
    Judgement,
    LoopFacts,
    ProcessFacts,
    Progress,
    RankEvidence,
    Snapshot,
    Status,
)
from hangwatch.rules.step.skipped_collective.by_turns import made_fewer_calls
from hangwatch.rules.turns import still_inside
from hangwatch.source.hints import annotated
from hangwatch.source.loops import loop_around
from hangwatch.source.ways_out import with_ways_out
from tests.unit import job
from tests.unit.facts.loops.turning import SCRIPT, SOURCE, TREE
from tests.unit.facts.processes.test_standstill import call, host
from tests.unit.facts.processes.test_standstill import job as all_ranks
from tests.unit.rules.step.worlds import Groups, Program, with_ring
from tests.unit.rules.step.worlds import world as build
from tests.unit.simulator import TRAINER, Action, Call, Draw, LoopEnd, Peer, World

END: list[Action] = [Call("barrier", line=88)]
HERE = Frame(SCRIPT, 60, "train")
CALL = Frame(SCRIPT, 12, "main")  # of the gradients: `return step(batch)`, after which no call is missing
SKIP, BREAK, AROUND = Frame(SCRIPT, 61, "train"), Frame(SCRIPT, 62, "train"), Frame(SCRIPT, 63, "main")


def turns(count: int) -> list[Action]:
    return [action for _ in range(count) for action in (Draw(), Call(via="gradients", line=12))]


def judged(facts: LoopFacts | None, *, ranks: int = 3, culprit: int = 1, short: int = 8) -> Judgement:
    """A job in which `culprit` makes fewer turns than the 9 of the others, who stand in the loop of `facts`."""
    world = World([[*turns(short if rank == culprit else 9), *END] for rank in range(ranks)])
    snapshot = world.run().snapshot()
    return diagnose(_standing(snapshot, culprit, facts))


def _standing(snapshot: Snapshot, culprit: int, facts: LoopFacts | None, *culprits: int) -> Snapshot:
    told = {True: {"in_loop": False}, False: {"in_loop": True, "loop": facts}}
    ranks = tuple(
        replace(
            entry,
            stacks=tuple(replace(stack, **told[entry.rank in (culprit, *culprits)]) for stack in entry.stacks),  # type: ignore[arg-type]
        )
        for entry in snapshot.ranks
    )
    return replace(snapshot, ranks=ranks)


@pytest.mark.parametrize(
    ("facts", "cause", "words"),
    [
        (LoopFacts(HERE, counted=True, skips=(SKIP,)), "skipped-collective", "may have skipped a step at train.py:61"),
        (
            LoopFacts(HERE, skips=(SKIP,), leaves=(CALL,)),
            "skipped-collective",
            "may have skipped a step at train.py:61",
        ),
        (LoopFacts(HERE, counted=True, leaves=(BREAK,)), "early-exit", "may have left it at train.py:62"),
        (
            LoopFacts(HERE, counted=True, leaves=(BREAK,), drained=(BREAK,)),
            "uneven-steps",
            " ended first, by the source (train.py:62)",
        ),
        (LoopFacts(HERE, leaves=(BREAK, AROUND), drained=(BREAK,)), "early-exit", "left it at train.py:62 or train.py"),
        (LoopFacts(HERE, counted=True, swallows=AROUND), "exception-on-one-rank", "silently at train.py:63"),
        (LoopFacts(HERE, counted=False, swallows=AROUND), "uneven-steps", ""),
        (LoopFacts(HERE, counted=True), "uneven-steps", ""),
        (None, "uneven-steps", ""),
    ],
)
@pytest.mark.parametrize(("ranks", "culprit"), [(2, 0), (2, 1), (4, 3)])
def test_why_a_rank_made_a_turn_less(facts: LoopFacts | None, cause: str, words: str, ranks: int, culprit: int) -> None:
    judgement = judged(facts, ranks=ranks, culprit=culprit)
    verdict = judgement.verdict
    assert (verdict.cause, verdict.certainty) == (cause, Certainty.LIKELY)
    assert [who.rank for who in verdict.culprits] == [culprit]
    assert words in verdict.summary
    assert judgement.status is Status.HUNG
    assert f"rank {culprit} began 8 steps" in verdict.evidence


def test_ranks_whose_hosts_are_past_the_loop_too_are_not_said_to_be_in_it() -> None:
    """GIVEN queued calls: all hosts wait behind the loop for their devices, and one has made a turn less."""

    def waits(number: int, steps: int) -> RankEvidence:
        entry = host(number, call(steps, 1.0))
        found = job.rank(number, world_size=3, progress=Progress(step=steps - 1))
        heads = tuple(replace(head, members=(0, 1, 2)) for head in entry.collectives.heads)
        stacks = tuple(replace(each, in_loop=False) for each in entry.stacks)
        return replace(
            entry,
            reading=found.reading,
            stacks=stacks,
            earlier_stacks=stacks,
            collectives=replace(entry.collectives, heads=heads),
        )

    verdict = diagnose(all_ranks(waits(0, 9), waits(1, 8), waits(2, 9))).verdict
    assert [who.rank for who in verdict.culprits] == [1]
    assert "ranks 0 and 2 made 9 steps" in verdict.summary, verdict.summary
    assert "skipped-collective" in {each.cause for each in verdict.alternatives}


@pytest.mark.parametrize(
    ("steps", "elsewhere", "cause"),
    [
        pytest.param((3,), False, "exception-on-one-rank", id="as many as it lacks turns"),
        pytest.param((3, 5), False, "skipped-collective", id="more than it lacks turns"),
        pytest.param((3,), True, "skipped-collective", id="the others caught some too"),
    ],
)
def test_a_turn_that_was_cut_short_by_an_error_is_told_with_it(
    steps: tuple[int, ...], elsewhere: bool, cause: str
) -> None:
    errors = tuple(
        ExceptionFacts("ValueError", "no number", (Frame(SCRIPT, 33, "parse"),), thread="MainThread", step=step)
        for step in steps
    )
    world = World([[*turns(8 if rank == 1 else 9), *END] for rank in range(3)])
    snapshot = _standing(world.run().snapshot(), 1, LoopFacts(HERE, skips=(SKIP,), counted=True))

    def with_errors(entry: RankEvidence) -> RankEvidence:
        caught = entry.rank == 1 or elsewhere
        return replace(entry, reading=replace(entry.reading, caught=errors)) if caught and entry.reading else entry

    verdict = diagnose(replace(snapshot, ranks=tuple(map(with_errors, snapshot.ranks)))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == (cause, [1])
    assert ("rank 1 raised ValueError: no number (train.py:33) in step 3" in verdict.summary) == (
        cause == "exception-on-one-rank"
    )


def test_of_several_ranks_each_has_to_have_caught_an_error_for_the_turn_that_it_lacks() -> None:
    error = ExceptionFacts("ValueError", "no number", (Frame(SCRIPT, 33, "parse"),), thread="MainThread", step=3)
    world = World([[*turns(8 if rank in (1, 2) else 9), *END] for rank in range(5)])
    snapshot = _standing(world.run().snapshot(), 1, LoopFacts(HERE, skips=(SKIP,), counted=True), 2)
    for ranks, cause in ((1, 2), "exception-on-one-rank"), ((1,), "skipped-collective"):
        told = tuple(
            replace(each, reading=replace(each.reading, caught=(error,)))
            if each.rank in ranks and each.reading
            else each
            for each in snapshot.ranks
        )
        verdict = diagnose(replace(snapshot, ranks=told)).verdict
        assert (verdict.cause, [who.rank for who in verdict.culprits]) == (cause, [1, 2]), verdict.summary


@pytest.mark.parametrize(("skips", "line"), [((SKIP,), 61), ((), 88)])
def test_a_rank_with_as_many_batches_left_calls_out_where_its_loop_skips(skips: tuple[Frame, ...], line: int) -> None:
    """Nothing counts what a pipeline sends in a step: the totals say that calls are missing, and not in which."""

    def program(skip: int) -> list[Action]:
        steps: list[list[Action]] = [[Draw(0, n), *([Call(line=12)] if n != skip else [])] for n in range(8)]
        return [*(each for step in steps for each in step), LoopEnd(), *END]

    snapshot = World([program(5 if rank == 1 else -1) for rank in range(2)]).run().snapshot()
    finding = made_fewer_calls(Case(_standing(snapshot, 1, LoopFacts(HERE, skips=skips))))
    assert finding is not None
    assert [(who.rank, who.where and who.where.line) for who in finding.culprits] == [(1, line)]
    assert ("may have skipped a step at train.py:61" in finding.summary) is bool(skips)


def ended_by_optimizers(snapshot: Snapshot) -> Snapshot:
    """As the boards tell it where each step that the world begins is one that an optimizer step has ended."""

    def told(entry: RankEvidence) -> RankEvidence:
        reading = entry.reading
        assert reading is not None
        steps = tuple(replace(each, step=each.step + 1, optimizer_steps=each.step + 1) for each in reading.steps)
        now = steps[-1].step
        return replace(
            entry,
            reading=replace(reading, steps=steps, progress=replace(reading.progress, step=now, optimizer_steps=now)),
        )

    return replace(snapshot, ranks=tuple(map(told, snapshot.ranks)))


@pytest.mark.parametrize("short", [5, 8])
def test_the_step_in_progress_is_told_where_optimizer_steps_end_the_steps(short: int) -> None:
    def program(made: int) -> list[Action]:
        return [*(each for _ in range(made) for each in (Call(via="gradients", line=12), Draw())), *END]

    facts = LoopFacts(HERE, counted=True, leaves=(BREAK,))
    world = World([program(short if rank == 1 else 9) for rank in range(3)])
    snapshot = ended_by_optimizers(world.run().snapshot())
    verdict = diagnose(_standing(snapshot, 1, facts)).verdict
    assert (verdict.cause, [each.rank for each in verdict.culprits]) == ("early-exit", [1])
    assert f"has left the loop (train.py:60) after {short} steps" in verdict.summary
    assert f"ranks 0 and 2 have begun {short + 1} already" in verdict.summary
    assert {"rank 0 began 9 steps", "rank 1 made 8 steps"} <= {*verdict.evidence} or short != 8
    assert verdict.step.step == short


@pytest.mark.parametrize(
    ("begun", "sentence"),
    [(9, ("ranks 0 and 2 are still in it", "")), (10, ("ranks 0 and 2 have begun 10", " already"))],
)
def test_of_the_others_a_number_of_steps_is_told_where_it_is_greater(begun: int, sentence: tuple[str, str]) -> None:
    """GIVEN a rank that left after 9 steps WHEN the others wait in the last of 9 THEN "in step 8" would mislead."""
    case = Case(World([[*turns(8 if rank == 1 else 9), *END] for rank in range(3)]).run().snapshot())
    short = FewerTurns((1,), (0, 2), {0: begun, 1: 9, 2: begun}, {1: 9}, None)
    assert still_inside(case, short, 9) == sentence


@pytest.mark.parametrize(("guard", "cause"), [("none", "uneven-steps"), ("rank", "rank-zero-only-collective")])
@pytest.mark.parametrize("culprit", [0, 1])
def test_a_call_behind_an_inner_loop_is_told_by_its_guard(guard: str, cause: str, culprit: int) -> None:
    # GIVEN a rank behind the inner loop, in the loop over epochs, where the others have yet to come
    world = World([[*turns(8 if rank == culprit else 9), *END] for rank in range(3)])
    snapshot = world.run().snapshot()
    outer = Frame(SCRIPT, 55, "train")
    inner = LoopFacts(HERE, counted=True, outer=(outer,))

    def standing(entry: RankEvidence) -> RankEvidence:
        loop, own = (LoopFacts(outer, counted=True), guard) if entry.rank == culprit else (inner, "none")
        return replace(entry, stacks=tuple(replace(s, in_loop=True, loop=loop, guard=own) for s in entry.stacks))

    verdict = diagnose(replace(snapshot, ranks=tuple(map(standing, snapshot.ranks)))).verdict
    assert verdict.cause == cause
    assert [who.rank for who in verdict.culprits] == [culprit]


@pytest.mark.parametrize(("asks", "all_come"), [("alike", True), ("value", False)])
def test_a_condition_that_is_the_same_on_every_rank_leads_all_of_them_there(asks: str, all_come: bool) -> None:
    world = World([[*turns(8 if rank == 1 else 9), *END] for rank in range(3)])
    snapshot = world.run().snapshot()
    frames = next(stack.frames for stack in snapshot.ranks[1].stacks if stack.main)
    way = Bypass(Frame(SCRIPT, 54, "train"), "if step % 10 == 9", asks=asks)
    lines = tuple(frame for frame in frames if frame.file == SCRIPT)
    first = snapshot.ranks[1]
    entry = replace(first, stacks=tuple(replace(stack, guard="other") for stack in first.stacks))
    ranks = (snapshot.ranks[0], entry, *snapshot.ranks[2:])
    case = Case(replace(snapshot, ranks=ranks, call_sites=(CallSite(lines, (way,)),)))
    assert reached_by_all(case, case.ranks[1]) is all_come
    assert not reached_by_all(Case(replace(snapshot, ranks=ranks)), case.ranks[1])


def recursion(calls: int) -> list[Action]:
    """Calls of a function that calls itself, and then the end, where all come; nothing counts anything."""
    return [*([Call("all_reduce", line=11)] * calls), *END]


def unguarded(snapshot: Snapshot) -> Snapshot:
    """No condition leads anywhere, and there is no loop."""
    ranks = tuple(
        replace(entry, stacks=tuple(replace(stack, in_loop=False, guard="none") for stack in entry.stacks))
        for entry in snapshot.ranks
    )
    return replace(snapshot, ranks=ranks)


@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize(("made", "cause"), [(7, "skipped-collective"), (9, "collective-mismatch")])
def test_without_loops_and_steps_a_rank_past_or_behind_others_is_named(culprit: int, made: int, cause: str) -> None:
    programs = [recursion(made if rank == culprit else 8) for rank in range(3)]
    verdict = diagnose(unguarded(World(programs).run().snapshot())).verdict
    assert (verdict.cause, verdict.certainty) == (cause, Certainty.LIKELY)
    assert [who.rank for who in verdict.culprits] == [culprit]


@pytest.mark.parametrize(("leaves", "line"), [((), 37), ((BREAK,), 88)], ids=["passed in a turn", "or left"])
def test_the_way_past_the_call_in_which_the_others_wait_is_named(leaves: tuple[Frame, ...], line: int) -> None:
    """GIVEN members of a population that count their own steps WHEN one has nothing to share in its last turns."""
    share: list[Action] = [Draw(), Call("all_gather", line=38)]
    programs: list[list[Action]] = [[*share * 9, *END] for _ in range(3)]
    programs[1] = [*share * 4, *[Draw()] * 900, *END]
    loop = LoopFacts(Frame(SCRIPT, 30, "main"), counted=True, leaves=leaves)
    snapshot = _standing(World(programs).run().snapshot(), 1, loop)
    way = Bypass(Frame(SCRIPT, 37, "main"), "if best < limit: continue", asks="value", of_turn=True)
    stacks = [tuple(replace(stack, guard="none") for stack in entry.stacks) for entry in snapshot.ranks]
    ranks = tuple(replace(entry, stacks=each) for entry, each in zip(snapshot.ranks, stacks, strict=True))
    sites = (CallSite((Frame(SCRIPT, 38, "main"),), (way,)),)
    verdict = diagnose(replace(snapshot, ranks=ranks, call_sites=sites)).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("skipped-collective", [1])
    assert [who.where.line for who in verdict.culprits if who.where is not None] == [line]
    assert ("which rank 1 passed, probably at train.py:37" in verdict.summary) is (line == 37)


def synchronised(*at: int) -> list[Action]:
    """Twenty batches with a synchronisation in some of them, and then the end."""
    program: list[Action] = []
    for batch in range(20):
        program += [Draw(0, batch), *([Call(via="gradients", line=12)] if batch in at else [])]
    return [*program, LoopEnd(), *END]


@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize("cause", ["skipped-collective", "collective-mismatch"])
def test_with_as_many_batches_the_rank_with_fewer_or_more_calls_is_named(culprit: int, cause: str) -> None:
    """One synchronises a batch later from batch 7 on, and so once less: the steps even out again and again.

    Where it makes a call more, only that the last calls of the ranks do not belong together is certain.
    """
    regular, slipped = synchronised(3, 7, 11, 15, 19), synchronised(3, 8, 12, 16)
    usual, odd = (regular, slipped) if cause == "skipped-collective" else (slipped, regular)
    snapshot = World([odd if rank == culprit else usual for rank in range(3)]).run().snapshot()
    past = [rank for rank in range(3) if (rank == culprit) is (cause == "skipped-collective")]
    facts = LoopFacts(HERE, counted=False)
    told = {True: {"in_loop": False}, False: {"in_loop": True, "loop": facts}}
    ranks = tuple(
        replace(entry, stacks=tuple(replace(s, **told[entry.rank in past]) for s in entry.stacks))  # type: ignore[arg-type]
        for entry in snapshot.ranks
    )
    verdict = diagnose(replace(snapshot, ranks=ranks)).verdict
    assert (verdict.cause, verdict.certainty) == (cause, Certainty.LIKELY)
    assert [who.rank for who in verdict.culprits] == [culprit]
    if cause == "skipped-collective":
        assert (verdict.step.epoch, verdict.step.batch) == (0, 7)
        assert "all ranks have drawn 20 batches in epoch 0" in verdict.evidence


@pytest.mark.parametrize("culprit", [0, 1, 2, 3])
def test_a_skipped_call_of_a_subgroup_without_any_steps(culprit: int) -> None:
    # GIVEN two calls a turn, one in a group of two and one of all, and nothing that counts steps
    def program(rank: int) -> list[Action]:
        pair = Call("all_reduce", group="pair", line=14)
        return [
            action
            for turn in range(9)
            for action in ((() if turn == 6 and rank == culprit else (pair,)) + (Call("all_reduce", line=15),))
        ]

    world = World([program(rank) for rank in range(4)], groups={"0": [(0, 1, 2, 3)], "pair": [(0, 1), (2, 3)]})
    verdict = diagnose(world.run().snapshot()).verdict
    assert (verdict.cause, verdict.certainty) == ("skipped-collective", Certainty.LIKELY)
    assert [who.rank for who in verdict.culprits] == [culprit]
    assert "every earlier call at train.py:15 came right after one at train.py:14" in verdict.evidence[0]


def test_a_stack_says_which_loop_it_stands_in() -> None:
    world = World([[*turns(2), *END], [*turns(1), *END]]).run()
    stack = world.snapshot().ranks[0].stacks[0]
    told = annotated(replace(stack, frames=(Frame(SCRIPT, 6, "train"),)), lambda file: SOURCE)
    found = loop_around([(Frame(SCRIPT, 6, "train"), TREE)])
    assert found is not None
    assert told.loop == with_ways_out(found, {SCRIPT: TREE})
    assert told.in_loop


def test_roles_with_lines_of_their_own_are_in_one_loop() -> None:
    """A learner receives from its actors after each broadcast; one actor ends its budget before the others."""
    learner: list[Action] = [Call("broadcast", line=13, root=0), Peer("recv", 1, line=15), Peer("recv", 2, line=15)]
    actor: list[Action] = [Call("broadcast", line=7, root=0), Peer("send", 0, line=8)]
    world = World([[*learner * 6, *END], [*actor * 6, *END], [*actor * 3, *END]])
    verdict = diagnose(_standing(world.run().snapshot(), 2, LoopFacts(HERE, counted=True))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("uneven-steps", [2])
    assert "rank 1 is still in it" in verdict.summary  # the learner's loop is another one, in which no actor ever was
    assert verdict.fix.startswith("let all ranks make as many turns")  # nothing is known of a loader


@pytest.mark.parametrize("turns", [3, 40])
def test_an_actor_that_leaves_its_loop_before_its_message_has_not_made_all_of_its_turn(turns: int) -> None:
    """GIVEN a learner that alone counts steps, which waits for the message, as do the actors for the learner."""
    weights = [Call("broadcast", line=line, root=0) for line in (13, 7)]
    learner: list[Action] = [*weights[:1] * 3, Peer("recv", 1, line=15), Peer("recv", 2, line=15), Draw()]
    actor: list[Action] = [*weights[1:] * 3, Peer("send", 0, line=8)]
    early: list[Action] = [*actor * (turns - 1), *actor[:3], *END]
    snapshot = World([[*learner * (turns + 9), *END], [*actor * (turns + 9), *END], early]).run().snapshot()
    facts = LoopFacts(Frame(SCRIPT, 6, "train"), outer=(HERE,), outer_leaves=((BREAK,),))
    verdict = diagnose(_standing(snapshot, 2, facts)).verdict
    assert (verdict.cause, [(who.rank, who.where) for who in verdict.culprits]) == ("early-exit", [(2, BREAK)])
    assert "the loop at train.py:60 can be left at train.py:62" in verdict.evidence


def test_where_messages_tell_the_sides_apart_no_loop_is_asked() -> None:
    """Rank 1 leaves out its part of an exchange and is in the next turn; rank 0 stands in the loop over its peers."""
    gather = Call("all_gather", line=7)
    first: list[Action] = [gather, Peer("recv", 1, line=15), Peer("send", 1, line=12)]
    second: list[Action] = [gather, Peer("send", 0, line=12), Peer("recv", 0, line=15)]
    snapshot = World([[*first * 6, *END], [*second * 5, gather, *second, *END]]).run().snapshot()
    turn = Frame(SCRIPT, 6, "train")
    peers = LoopFacts(Frame(SCRIPT, 14, "train"), counted=True, outer=(turn,), outer_leaves=((),))
    ranks = tuple(
        replace(entry, stacks=tuple(replace(stack, in_loop=True, loop=loop, guard="none") for stack in entry.stacks))
        for entry, loop in zip(snapshot.ranks, (peers, LoopFacts(turn, counted=True)), strict=True)
    )
    verdict = diagnose(replace(snapshot, ranks=ranks)).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("point-to-point-deadlock", [1])
    assert "left out 1 send to rank 0" in verdict.summary


def test_a_rank_that_never_was_where_the_others_send_lacks_a_round_of_the_common_calls_and_no_send() -> None:
    learner: list[Action] = [Call("broadcast", line=13, root=0), Peer("recv", 1, line=15)]
    actor: list[Action] = [Call("broadcast", line=7, root=0), Peer("send", 0, line=8)]
    bystander: list[Action] = [Call("broadcast", line=40, root=0)]
    world = World([[*learner * 3, learner[0], learner[1], *END], [*actor * 4, *END], [*bystander * 3, *END]])
    verdict = diagnose(_standing(world.run().snapshot(), 2, LoopFacts(HERE, counted=True))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("uneven-steps", [2])
    assert "left out broadcast 4 of the default group" in verdict.summary
    assert "send" not in verdict.summary


PARTS, INNER, OUTER = (Frame(SCRIPT, line, "train") for line in (9, 8, 15))


def _updates(*inner: int) -> list[Action]:
    """Iterations with so many updates, each with its gradients' call, and a call behind them."""
    update: list[Action] = [Call(line=10), Draw()]
    behind: list[Action] = [Call("all_gather", line=17, size=2)]
    return [each for times in inner for each in (*update * times, *behind)]


def _brought_down(snapshot: Snapshot, culprit: int, leaves: tuple[Frame, ...]) -> Snapshot:
    """As `_aborted`, and the ends of optimizer steps are the ends of the steps."""
    return ended_by_optimizers(_aborted(snapshot, culprit, leaves))


def _aborted(snapshot: Snapshot, culprit: int, leaves: tuple[Frame, ...]) -> Snapshot:
    """The backend has aborted `culprit`, in the loop over iterations, and the others stood in that over parameters."""
    inner = LoopFacts(PARTS, outer=(INNER, OUTER), outer_leaves=(leaves, ()))

    def ended(entry: RankEvidence) -> RankEvidence:
        mine = entry.rank == culprit
        loop = LoopFacts(OUTER, counted=True) if mine else inner
        stacks = tuple(replace(each, in_loop=True, loop=loop, guard="none") for each in entry.stacks)
        process = ProcessFacts(entry.pid or 0, "X", exit_code=-6 if mine else -15)
        return with_ring(replace(entry, process=process, stacks=stacks))

    return replace(snapshot, ranks=tuple(map(ended, snapshot.ranks)))


@pytest.mark.parametrize("culprit", [0, 1])
def test_a_rank_that_left_an_inner_loop_is_told_where_the_backend_ends_the_job(culprit: int) -> None:
    programs = [_updates(*[4] * 4, 2 if rank == culprit else 4, 4) for rank in range(3)]
    verdict = diagnose(_brought_down(World(programs).run().snapshot(), culprit, (BREAK,))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("early-exit", [culprit])
    assert "has left the loop (train.py:8) after 18 steps" in verdict.summary
    assert "may have left it at train.py:62" in verdict.summary
    assert "the loop at train.py:8 can be left at train.py:62" in verdict.evidence
    assert f"rank {culprit} made 18 steps" in verdict.evidence


def test_a_rank_in_a_call_that_the_others_have_made_has_yet_to_come() -> None:
    """GIVEN a rank that the backend aborted in a call ahead of the inner loop in which the others stand
    THEN it has not left that loop."""
    snapshot = World([_updates(*[4] * (4 if rank == 1 else 5)) for rank in range(3)]).run().snapshot()
    inside = snapshot.ranks[0].main_stack
    there = {"all_reduce": {"function": "all_gather"}, "main": {"line": 17}}
    gather = tuple(replace(frame, **there.get(frame.function, {})) for frame in inside)  # type: ignore[arg-type]

    def in_its_gather(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, frames=gather) if stack.main else stack for stack in entry.stacks)
        return replace(entry, stacks=stacks) if entry.rank == 1 else entry

    snapshot = replace(snapshot, ranks=tuple(map(in_its_gather, snapshot.ranks)))
    assert fewer_turns(Case(_brought_down(snapshot, 1, ()))) is None


def test_an_inner_loop_without_a_way_out_ran_out_of_turns() -> None:
    programs = [_updates(*[4] * 4, 2 if rank == 1 else 4, 4) for rank in range(3)]
    verdict = diagnose(_brought_down(World(programs).run().snapshot(), 1, ())).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("uneven-steps", [1])
    assert "the loop at train.py:8 has no break and no return" in [each.why_not for each in verdict.alternatives]


def _left_a_turn_earlier(way: Bypass, *, by_optimizers: bool) -> Judgement:
    """Rank 1 made a step less; the others stand in a loop within the turn, such as one over parameters."""
    world = World([[*turns(8 if rank == 1 else 9), *END] for rank in range(3)])
    snapshot = _standing(world.run().snapshot(), 1, LoopFacts(HERE, counted=True))
    around = LoopFacts(Frame(SCRIPT, 11, "sync"), outer=(HERE,), outer_leaves=((),))
    snapshot = _standing(snapshot, 1, around)
    stack = tuple(frame for frame in snapshot.ranks[0].main_stack if frame.file == SCRIPT)
    snapshot = replace(snapshot, call_sites=(CallSite(stack, (way,)),))
    return diagnose(ended_by_optimizers(snapshot) if by_optimizers else snapshot)


@pytest.mark.parametrize(
    ("text", "of_turn"),
    [("if loss > 10: continue", True), ("if loss > 10: return", False), ("except ValueError", False)],
)
def test_a_turn_that_can_be_cut_short_before_the_inner_loop(text: str, of_turn: bool) -> None:
    """GIVEN steps that optimizer steps end, and a way past the inner loop THEN a turn may have lacked its step."""
    asks = "" if "except" in text else "value"
    verdict = _left_a_turn_earlier(Bypass(SKIP, text, False, asks, of_turn), by_optimizers=True).verdict
    assert verdict.cause == "skipped-collective", verdict.summary
    assert "may have skipped a step at train.py:61" in verdict.summary
    assert {who.where for who in verdict.culprits} == {SKIP}


@pytest.mark.parametrize(
    ("way", "by_optimizers"),
    [
        (Bypass(SKIP, "if grad is not None", True, "check"), True),
        (Bypass(SKIP, "if debug: continue", False, "alike", True), True),
        (Bypass(SKIP, "if loss > 10: continue", False, "value", True), False),
    ],
    ids=["past one of the calls", "alike on all ranks", "batches are counted"],
)
def test_what_leaves_the_steps_as_many_says_nothing_of_fewer(way: Bypass, by_optimizers: bool) -> None:
    assert _left_a_turn_earlier(way, by_optimizers=by_optimizers).verdict.cause == "uneven-steps"


def _generating(turns: int) -> list[Action]:
    """Steps that gather once, and in the last one a function called to generate, which gathers in each of its turns."""
    usual: list[Action] = [action for _ in range(6) for action in (Draw(), Call("all_gather", line=12))]
    return [*usual, Draw(), *[Call("all_gather", line=31, function="generate")] * turns, Call("barrier", line=20)]


def test_turns_of_a_loop_in_a_function_that_few_steps_call_are_no_steps() -> None:
    """GIVEN rank 1 through with generating while rank 0 still is at it THEN no number of steps is told of the loop."""
    snapshot = World([_generating(9), _generating(5)]).run().snapshot()
    loop = LoopFacts(Frame(SCRIPT, 30, "generate"), leaves=(Frame(SCRIPT, 33, "generate"),))
    calls = [_called_from(entry, Frame(SCRIPT, 18, "main")) for entry in _standing(snapshot, 1, loop).ranks]
    verdict = diagnose(replace(snapshot, ranks=tuple(calls))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("early-exit", [1])
    assert "rank 1 may have left it at train.py:33" in verdict.summary
    assert "steps" not in " ".join((verdict.summary, *verdict.evidence))


def _called_from(entry: RankEvidence, caller: Frame) -> RankEvidence:
    """The same, with the line that calls `generate` below each of its frames."""

    def below(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
        at = next((n for n, frame in enumerate(frames) if frame.function == "generate"), None)
        return frames if at is None else (*frames[: at + 1], caller)

    stacks = tuple(replace(stack, frames=below(stack.frames)) for stack in entry.stacks)
    recent = tuple(replace(call, frames=below(call.frames)) for call in entry.collectives.recent)
    return replace(entry, stacks=stacks, earlier_stacks=stacks, collectives=replace(entry.collectives, recent=recent))


@pytest.mark.parametrize(("line", "left"), [(70, (1,)), (5, None)])
def test_a_rank_ahead_of_the_loop_has_yet_to_come(line: int, left: tuple[int, ...] | None) -> None:
    """Steps are counted through all loops of a program: fewer of them say nothing of a rank before the next loop."""
    world = World([[*turns(8 if rank == 1 else 9), Call("barrier", line=line)] for rank in range(3)])
    short = fewer_turns(Case(_standing(world.run().snapshot(), 1, LoopFacts(HERE, counted=True))))
    assert (short.left if short is not None else None) == left


@pytest.mark.parametrize(("turns", "as_many"), [(4, True), (3, False)])
def test_a_rank_past_the_loop_with_the_last_call_of_those_inside_lacks_no_turn(turns: int, *, as_many: bool) -> None:
    """Rank 0 waits in the last turn for a rank of another group: rank 1 has made all calls of the loop too."""
    groups: Groups = {"row": [(0, 1), (2, 3)], "column": [(0, 2), (1, 3)]}
    row, column, end = Call(group="row", line=18), Call(group="column", line=25), Call("barrier", line=30)
    ahead: Program = [*[row, column] * turns, end]
    snapshot = build([row, column] * 4, ahead, [row, column] * 3, [*[row, column] * 4, end], groups=groups)
    assert _made_as_many(Case(snapshot), 1, (0,)) is as_many


def _over_its_loader(entry: RankEvidence) -> RankEvidence:
    """The loop around is that over its DataLoader, which has batches left."""
    assert entry.reading is not None
    loaders = tuple(replace(each, where=OUTER, length=9) for each in entry.reading.loaders)
    return replace(entry, reading=replace(entry.reading, loaders=loaders))


@pytest.mark.parametrize("culprit", [0, 1])
def test_an_inner_loop_within_a_batch_was_cut_short_or_left_out(culprit: int) -> None:
    """GIVEN ranks whose DataLoader counts the turns of the loop around, with as many batches and data left
    THEN the rank past the inner loop has not left the loop over the batches."""
    turn: list[Action] = [Call(via="gradients", line=10)]
    behind: list[Action] = [Call(via="gradients", line=17, size=2)]
    before = [[Draw(0, batch), *turn * 4, *behind] for batch in range(4)]
    last = [[Draw(0, 4), *turn * (0 if rank == culprit else 4), *behind] for rank in range(3)]
    programs = [[each for part in (*before, last[rank]) for each in part] for rank in range(3)]
    snapshot = _aborted(World(programs).run().snapshot(), culprit, ())
    found = made_fewer_calls(Case(replace(snapshot, ranks=tuple(map(_over_its_loader, snapshot.ranks)))))
    assert found is not None
    assert [who.rank for who in found.culprits] == [culprit]
    assert f"Rank {culprit} is past the inner loop (train.py:8)" in found.summary
    assert "more batches" not in found.summary
    assert (found.step.epoch, found.step.batch) == (0, 4)


EPOCHS = Frame(SCRIPT, 5, "main")


@pytest.mark.parametrize("culprit", [0, 2])
@pytest.mark.parametrize(
    ("around", "below", "left"),
    [
        pytest.param((), (), True, id="once"),
        pytest.param((EPOCHS,), (), False, id="in each epoch"),
        pytest.param((), (Frame(TRAINER, 90, "fit"),), False, id="called by a trainer"),
    ],
)
def test_a_rank_in_the_loop_behind_that_of_the_others_has_left_theirs(
    around: tuple[Frame, ...], below: tuple[Frame, ...], culprit: int, *, left: bool
) -> None:
    """GIVEN a rank that waits in the first turn of a second loop, to which no condition leads
    THEN it has left the first one, unless a loop may lie around both: then it may be a turn of that behind."""
    inner = LoopFacts(Frame(SCRIPT, 10, "main"), leaves=(BREAK,), outer=around, outer_leaves=((),) * len(around))
    behind = LoopFacts(Frame(SCRIPT, 86, "main"), counted=True, outer=around, outer_leaves=((),) * len(around))
    snapshot = World([[*turns(8 if rank == culprit else 9), *END] for rank in range(3)]).run().snapshot()

    def in_its_loop(entry: RankEvidence) -> RankEvidence:
        loop = behind if entry.rank == culprit else inner
        stands = {"in_loop": True, "loop": loop, "guard": "none"}
        stacks = tuple(replace(each, frames=(*each.frames, *below), **stands) for each in entry.stacks)  # type: ignore[arg-type]
        return replace(entry, stacks=stacks)

    snapshot = replace(snapshot, ranks=tuple(map(in_its_loop, snapshot.ranks)))
    short = fewer_turns(Case(snapshot))
    assert (short.left if short else None) == ((culprit,) if left else None)
    if left:
        verdict = diagnose(snapshot).verdict
        assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("early-exit", [culprit])
        assert "may have left it at train.py:62" in verdict.summary


@pytest.mark.parametrize(("around", "left"), [((1,), [1]), ((0, 1), [])])
def test_several_ranks_around_the_loop_of_the_others_may_be_a_turn_behind(
    around: tuple[int, ...], left: list[int]
) -> None:
    """GIVEN ranks in the loop around the inner one, say in an evaluation behind it
    THEN one alone has left the inner loop; of several, the other one may be in its next turn of both."""
    outer = LoopFacts(OUTER, counted=True)
    inner = LoopFacts(INNER, counted=True, outer=(OUTER,), outer_leaves=((),))
    snapshot = World([[*turns(8 if rank in around else 9), *END] for rank in range(3)]).run().snapshot()

    def in_its_loop(entry: RankEvidence) -> RankEvidence:
        stands = {"in_loop": True, "loop": outer if entry.rank in around else inner, "guard": "none"}
        return replace(entry, stacks=tuple(replace(each, **stands) for each in entry.stacks))  # type: ignore[arg-type]

    case = Case(replace(snapshot, ranks=tuple(map(in_its_loop, snapshot.ranks))))
    assert [view.rank for view in case if has_left_inner_loop(case, view)] == left


@pytest.mark.parametrize("batches", [3, 2])
def test_a_rank_between_epochs_has_made_all_its_turns(batches: int) -> None:
    """GIVEN ranks 0 and 2 in the second epoch, and rank 1 in a call behind the first, with `batches` drawn of 3"""

    def epoch(number: int, count: int) -> list[Action]:
        drawn = [(Draw(number, batch), Call(via="gradients", line=12)) for batch in range(count)]
        return [*(action for pair in drawn for action in pair), LoopEnd()]

    own, others = [*epoch(0, batches), Call("all_gather", line=88)], [*epoch(0, 3), *epoch(1, 3)]
    case = Case(_standing(World([others, own, others]).run().snapshot(), 1, LoopFacts(HERE, counted=False)))
    # THEN it has left the loop early only with fewer than the others drew in that epoch: they are in a later one
    assert fewer_turns(case) is None
    assert (first_uneven(case) is None) is (batches == 3)


def test_a_turn_of_a_comprehension_can_be_passed_only_by_its_call() -> None:
    """No statement is its loop: it ends with its data, and what leads past the call is in what it calls."""
    programs = [[*[Call(line=26)] * (4 - rank), *END] for rank in range(2)]
    snapshot = World(programs).run().snapshot()
    way = Bypass(SKIP, "if overflow: return", asks="check")
    snapshot = replace(
        snapshot,
        ranks=tuple(
            replace(each, stacks=tuple(replace(stack, guard="none", in_loop=False) for stack in each.stacks))
            for each in snapshot.ranks
        ),
        call_sites=(CallSite((Frame(SCRIPT, 26, "main"),), (way,)),),
    )
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, [(who.rank, who.where) for who in verdict.culprits]) == ("skipped-collective", [(1, SKIP)])
    assert "which rank 1 passed, probably at train.py:61 (`if overflow: return`)" in verdict.summary
