"""`rank-zero-only-collective`: a collective on one rank only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.processes.as_it_stood import as_it_stood
from hangwatch.judge import Case, diagnose
from hangwatch.model import (
    Bypass,
    CallSite,
    Certainty,
    Collective,
    Collectives,
    Frame,
    GroupHead,
    Judgement,
    LoaderFacts,
    LoopFacts,
    Progress,
    RankEvidence,
)
from hangwatch.rules.step.rank_zero_only_collective.at_a_new_place import mispaired_at_a_new_place
from hangwatch.rules.step.rank_zero_only_collective.before_the_end import stayed_with_a_lone_call
from tests.unit.job import C10D, SCRIPT, TORCH, blamed, frames, judge, rank, snapshot, told
from tests.unit.job import told as said
from tests.unit.rules.step.aborts import EXTRA, MODULE, SIZES, TRACE, USUAL, calls, dead, drew, lost
from tests.unit.rules.step.decisions import GRADIENTS, changed
from tests.unit.rules.step.endings import DDP, ended, failed, stepped
from tests.unit.rules.step.loops import END, Program, epoch, everywhere, judged
from tests.unit.simulator import TRAINER, Action, Call, Draw, LoopEnd, World, blamed_ranks

BUFFERS = ((DDP, 2425, "_sync_buffers"), (DDP, 1782, "_pre_forward"))


def test_a_rank_that_evaluated_alone_and_failed_when_the_others_were_done() -> None:
    judgement = judge(failed(0, *BUFFERS, forwards=14), ended(1), ended(2), world_size=3)
    assert told(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert blamed(judgement) == [(0, 100, "rank")]
    assert "rank 0 made 8 forwards more than any other rank, in as many steps" in judgement.verdict.evidence


@pytest.mark.parametrize("forwards", [6, 5])
def test_without_more_forwards_no_rank_is_blamed(forwards: int) -> None:
    judgement = judge(failed(0, *BUFFERS, forwards=forwards), ended(1))
    assert told(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []


@pytest.mark.parametrize("culprit", [0, 2])
def test_one_that_issued_more_in_its_last_step_than_others_in_theirs(culprit: int) -> None:
    more, usual = ([1] * 12, 14, -6), ([1] * 13, 8, -15)
    told_by = [(n, *(more if n == culprit else usual)) for n in range(4)]
    ranks = [stepped(n, counts, head=head, code=code, world_size=4) for n, counts, head, code in told_by]
    judgement = judge(*ranks, world_size=4)
    assert told(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert blamed(judgement) == [(culprit, 100 + culprit, "rank")]


@pytest.mark.parametrize("code", [-6, None])
def test_the_rank_that_called_where_no_rank_ever_had(code: int | None) -> None:
    judgement = judge(lost(0, calls(6, USUAL)), dead(1, calls(6, EXTRA), code, crash_trace=TRACE))
    assert said(judgement) == ("rank-zero-only-collective", "likely", "failed")
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "Rank 1 called all_reduce (train.py:27) in epoch 0, batch 5" in judgement.verdict.summary


def test_a_call_that_no_other_rank_has_come_to_is_paired_with_none() -> None:
    """GIVEN ranks that stand in a reduction WHEN one that need not wait for it is in the next call THEN it is ahead."""
    judgement = judge(lost(0, calls(6)), dead(1, calls(6, EXTRA), crash_trace=TRACE))
    assert blamed(judgement) == []


def test_a_place_where_another_rank_failed_without_a_record_is_no_lone_one() -> None:
    third = lost(2, calls(6))
    assert third.reading is not None
    assert third.reading.exception is not None
    there = replace(third.reading.exception, frames=(Frame(C10D, 3252, "all_reduce"), *EXTRA))
    third = replace(third, reading=replace(third.reading, exception=there))
    judgement = judge(lost(0, calls(6, USUAL)), dead(1, calls(6, EXTRA), crash_trace=TRACE), third, world_size=3)
    assert (1, 101, "rank") not in blamed(judgement)


def test_it_is_named_too_where_gloo_aborted_another() -> None:
    """GIVEN an extra call with a larger message THEN gloo aborts the rank that gets it, which is a victim."""
    judgement = judge(lost(0, calls(6, EXTRA)), dead(1, calls(6, USUAL), last_output=SIZES))
    assert blamed(judgement) == [(0, 100, "rank")]
    assert judgement.verdict.victims == (1,)
    assert judgement.verdict.details[0].startswith("Rank 1 was aborted by gloo: a message of 676 bytes")


def test_a_helper_that_all_use_is_told_by_its_caller() -> None:
    helper = Frame(SCRIPT, 9, "log")
    usual, extra = (helper, *USUAL), (helper, *EXTRA)
    judgement = judge(lost(0, calls(6, usual, site=usual)), dead(1, calls(6, extra, site=usual)))
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "all_reduce (train.py:9, called from train.py:27)" in judgement.verdict.summary
    assert judgement.verdict.culprits[0].where == EXTRA[0]


def test_below_a_trainer_its_own_line_tells_the_call_that_no_rank_had_made() -> None:
    """GIVEN one line of the user's for all calls THEN it is not said that none was ever made from there."""
    strategy = "/venv/lib/python3.12/site-packages/trainer/strategy.py"
    usual, extra = ((Frame(strategy, line, "reduce"), *USUAL) for line in (12, 31))
    judgement = judge(lost(0, calls(6, usual, site=usual)), dead(1, calls(6, extra, site=usual)))
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "all_reduce of reduce (strategy.py:31, below train.py:24)" in judgement.verdict.summary
    assert "no rank has an earlier collective from strategy.py:31 on its board" in judgement.verdict.evidence
    assert judgement.verdict.culprits[0].where == USUAL[0]


KEYS = LoopFacts(Frame(SCRIPT, 22, "flush"), counted=False, outer=(Frame(SCRIPT, 9, "main"),))


@pytest.mark.parametrize(
    ("loop", "fix"),
    [
        (KEYS, "let all ranks make the same number of turns in the loop at train.py:22"),
        (replace(KEYS, outer=()), "never repeat a call on one rank alone"),  # that of the steps themselves
        (None, "never repeat a call on one rank alone"),
    ],
)
def test_a_call_that_is_repeated_against_the_order_of_all_steps(loop: LoopFacts | None, fix: str) -> None:
    other = (Frame(SCRIPT, 30, "main"), MODULE)
    ring = tuple(
        replace(call, step=index // 2) for index, call in enumerate(calls(0, *[USUAL, other] * 6, USUAL, USUAL))
    )
    ring = tuple(replace(call, step=min(index // 2, 6)) for index, call in enumerate(ring))
    assert [call.step for call in ring[-2:]] == [6, 6]
    odd = dead(1, ring)
    odd = replace(odd, stacks=tuple(replace(stack, loop=loop) for stack in odd.stacks))
    usual = dead(0, ring[:-1], -15)
    at = Progress(step=6, epoch=0, batch=6)
    odd, usual = (replace(each, reading=replace(each.reading, progress=at)) for each in (odd, usual))  # type: ignore[type-var]
    judgement = judge(usual, odd)
    assert blamed(judgement) == [(1, 101, "rank")]
    assert "once more than usual" in judgement.verdict.summary
    assert judgement.verdict.fix.startswith(fix)
    once = "in every earlier step on its board in which rank 1 made that call, it did so once less"
    assert judgement.verdict.evidence[0] == once


def test_no_rank_is_blamed_where_all_stand_at_places_of_every_step() -> None:
    judgement = judge(dead(0, calls(6)), dead(1, calls(6), -15))
    assert said(judgement) == ("undetermined", "undetermined", "failed")
    assert blamed(judgement) == []
    assert "Rank 0 was aborted by gloo in all_reduce (train.py:24)" in judgement.verdict.summary
    assert "the reason is not known" in judgement.verdict.summary


def test_a_rank_that_came_first_to_a_new_call_and_gave_up_waiting_is_not_blamed() -> None:
    """GIVEN a rank that saves for the first time WHEN the others are slow and its timeout runs out."""
    gave_up = lost(0, calls(6, EXTRA), "Timed out waiting 6000ms for recv operation to complete")
    judgement = judge(gave_up, dead(1, calls(6), -15, inside=False))
    assert blamed(judgement) == []
    assert "gave up waiting after 6.0 s" in judgement.verdict.summary


def test_what_cxx_code_issued_is_not_taken_for_a_new_place() -> None:
    """GIVEN a rank that was aborted in a call that has no record WHEN such calls are usual THEN it is not blamed."""
    functional = frames((f"{C10D.replace('distributed_c10d', '_functional_collectives')}", 142, "wait_tensor"))
    odd = replace(dead(1, calls(6)), stacks=rank(1, functional).stacks)
    assert blamed(judge(dead(0, calls(6), -15), odd)) == []


@everywhere
@pytest.mark.parametrize(
    "lone",
    [
        [Call("broadcast", line=30, via="buffers", root=0, function="validate"), Call(line=31, function="validate")],
        [Call("all_gather", line=30, function="validate")],
        [Call("barrier", line=35, function="save")] * 3,
    ],
    ids=["forward", "gather", "barriers"],
)
def test_a_rank_alone_in_a_collective_is_to_blame_whatever_the_numbers_say(
    ranks: int, culprit: int, lone: Program
) -> None:
    usual = [*epoch(0, 8), *epoch(1, 8), *END]
    judgement = judged(usual, [*epoch(0, 8), *lone, *epoch(1, 8), *END], ranks, culprit)
    assert judgement.verdict.cause == "rank-zero-only-collective"
    assert blamed_ranks(judgement) == [culprit]


AUTOGRAD = Frame("/venv/lib/python3.12/site-packages/torch/autograd/graph.py", 829, "_engine_run_backward")


def _behind_its_first_epoch(others: int, step: int, guard: str = "", backward: int = 24) -> Judgement:
    """Rank 0 was aborted in the first call that Python ever made; the others failed in a backward of `step`."""
    alone = dead(0, calls(0, (Frame(C10D, 3252, "all_reduce"), *EXTRA)))
    alone = replace(alone, stacks=tuple(replace(stack, guard=guard) for stack in alone.stacks))
    went_on = []
    for number in range(1, others + 1):
        found = lost(number, calls(0, (AUTOGRAD, Frame(SCRIPT, backward, "main"), MODULE)))
        assert found.reading is not None
        reading = replace(found.reading, calls=(), progress=Progress(step=step, epoch=1, batch=0))
        went_on.append(replace(found, reading=reading))
    return judge(alone, *went_on)


def test_a_rank_whose_first_call_all_others_have_gone_by_was_alone_in_it() -> None:
    judgement = _behind_its_first_epoch(others=2, step=6)
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("rank-zero-only-collective", Certainty.LIKELY)
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [0]
    assert any("had gone by without that call" in sentence for sentence in judgement.verdict.evidence)


@pytest.mark.parametrize(("line", "known"), [(35, True), (24, False)])
def test_others_behind_its_line_in_the_same_step_have_gone_by_its_call(line: int, known: bool) -> None:
    """GIVEN a flag that the rank with a NaN alone reduces WHEN the others stand in the backward of that step."""
    judgement = _behind_its_first_epoch(others=2, step=5, guard="other", backward=line)
    assert (judgement.verdict.cause == "rank-zero-only-collective") is known
    assert [culprit.rank for culprit in judgement.verdict.culprits] == ([0] if known else [])


def test_others_that_still_draw_from_the_data_that_it_has_done_with_have_not_gone_by_its_call() -> None:
    """The call stands behind the loop over the data, for them too."""
    alone = drew(dead(0, calls(0, (Frame(C10D, 3252, "all_reduce"), *EXTRA))), 5, left=True)
    went_on = []
    for number in (1, 2):
        found = lost(number, calls(0, (AUTOGRAD, *USUAL)))
        assert found.reading is not None
        loader = LoaderFacts(0, 40, epoch=0, drawn=6, training=True)
        reading = replace(found.reading, calls=(), progress=Progress(step=6, epoch=0, batch=6), loaders=(loader,))
        went_on.append(replace(found, reading=reading))
    judgement = judge(alone, *went_on)
    assert (judgement.verdict.cause, [culprit.rank for culprit in judgement.verdict.culprits]) == ("early-exit", [0])


def test_a_call_to_which_no_condition_leads_is_one_that_the_others_come_to_later() -> None:
    assert _behind_its_first_epoch(others=2, step=6, guard="none").verdict.cause != "rank-zero-only-collective"


def test_others_that_are_in_the_same_step_may_have_come_to_that_call_yet() -> None:
    assert _behind_its_first_epoch(others=2, step=5).verdict.culprits == ()


@pytest.mark.parametrize(("guard", "culprits"), [("rank", [0]), ("none", [])])
def test_of_two_ranks_only_the_source_says_which_one_is_right(guard: str, culprits: list[int]) -> None:
    judgement = _behind_its_first_epoch(others=1, step=6, guard=guard)
    assert [culprit.rank for culprit in judgement.verdict.culprits] == culprits


def test_without_steps_a_rank_behind_the_place_of_the_others_may_only_have_come_there_first() -> None:
    """One rank left a helper's loop of all_reduces before the other, and called the next collective of main()."""
    helper = (Frame(SCRIPT, 7, "iterate"), Frame(SCRIPT, 17, "main"), MODULE)
    behind = (Frame(C10D, 3252, "all_reduce"), Frame(SCRIPT, 18, "main"), MODULE)
    found = [lost(0, calls(4, site=helper)), dead(1, calls(3, behind, site=helper))]
    uncounted = []
    for each in found:
        assert each.reading is not None
        ring = tuple(replace(call, step=None) for call in each.reading.calls)
        uncounted.append(replace(each, reading=replace(each.reading, calls=ring, progress=Progress())))
    assert said(judge(*uncounted))[0] != "rank-zero-only-collective"


def test_a_rank_in_a_new_call_that_another_ranks_own_error_ended_was_not_ended_by_its_call() -> None:
    """It may be the first to come to its call, and the error is why no other rank came."""
    waiting = dead(0, calls(4, EXTRA), -15)
    other = lost(1, calls(4), "no checkpoint at /scratch/1")
    assert other.process is not None
    judgement = judge(waiting, replace(other, process=replace(other.process, exit_code=1)))
    assert told(judgement) == ("exception-on-one-rank", "proven", "failed")
    assert [number for number, _, _ in blamed(judgement)] == [1]


@pytest.mark.parametrize(("guard", "cause"), [("rank", "rank-zero-only-collective"), ("other", "collective-mismatch")])
def test_a_rank_in_the_first_call_of_the_job_is_alone_there_by_the_source(guard: str, cause: str) -> None:
    """set_model_state_dict where only rank 0 has loaded weights: nothing is on record that could say what is usual."""
    lone, usual = Call("broadcast", line=10, size=1), Call("all_gather", line=17)
    found = World([[lone], [usual], [usual]]).run().snapshot()
    guards = (guard, "none", "none")
    ranks = tuple(
        replace(each, stacks=tuple(replace(stack, guard=here, in_loop=False) for stack in each.stacks))
        for each, here in zip(found.ranks, guards, strict=True)
    )
    judgement = diagnose(replace(found, ranks=ranks))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == (cause, [0])


@pytest.mark.parametrize(("line", "cause"), [(31, "rank-zero-only-collective"), (30, "rank-local-decision")])
def test_below_a_trainer_a_call_of_another_function_of_its_own_is_no_repeated_one(line: int, cause: str) -> None:
    """Trainer.train() leads to every call: that a rank saves alone shows in the package's lines."""

    def program(extra: bool) -> Program:
        logged = [Call("all_gather", line=5, trainer=30)]
        steps: list[Program] = [[Draw(0, batch), Call(line=5, trainer=12), *logged] for batch in range(6)]
        saved = [Call("all_gather", line=5, trainer=line)] if extra else []
        return [*(each for step in steps for each in step), *saved, Draw(0, 6), Call(line=5, trainer=12)]

    judgement = judged(program(False), program(True), 3, 1)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == (cause, [1])
    assert ("repeated what all call" in judgement.verdict.summary) is (line == 30)
    assert ("(strategy.py:31, below train.py:5)" in judgement.verdict.summary) is (line == 31)


ENGINE = f"{TORCH}/autograd/graph.py", 979, "_engine_run_backward"


@pytest.mark.parametrize(
    ("inner", "told"), [(((C10D, 3252, "all_reduce"),), True), ((ENGINE,), False)], ids=["its own call", "in backward"]
)
def test_a_failure_in_backward_is_at_no_place_where_others_never_were(
    inner: tuple[tuple[str, int, str], ...], told: bool
) -> None:
    """Their gradients' collectives have left no place on their records either."""

    def called(evidence: RankEvidence) -> RankEvidence:
        ring = tuple(Collective("0", number, "barrier", frames=(Frame(SCRIPT, 20, "main"),)) for number in range(1, 6))
        assert evidence.reading is not None
        return replace(evidence, reading=replace(evidence.reading, calls=ring))

    ranks = [called(each) for each in (ended(0), failed(1, *inner), ended(2))]
    then = as_it_stood(Case(snapshot(*ranks, world_size=3)))
    found = stayed_with_a_lone_call(then) if then is not None else None
    assert (found is not None) is told


@pytest.mark.parametrize(("thread", "told"), [("MainThread", True), ("pt_autograd_0", False)])
def test_gradients_of_which_one_rank_alone_has_a_record_are_no_place_of_its_own(thread: str, told: bool) -> None:
    """GIVEN calls without frames, as the engine's threads issue them, WHEN others have none on record THEN no place."""

    def called(evidence: RankEvidence, *more: Collective) -> RankEvidence:
        ring = tuple(Collective("0", number, "barrier", frames=(Frame(SCRIPT, 20, "main"),)) for number in range(1, 6))
        assert evidence.reading is not None
        return replace(evidence, reading=replace(evidence.reading, calls=(*ring, *more)))

    own = Frame(SCRIPT, 70, "save")
    one = Collective("0", 6, "all_reduce", thread_name=thread, frames=(own,) if thread == "MainThread" else ())
    ranks = [called(ended(0)), called(failed(1, ENGINE), one), called(ended(2))]
    then = as_it_stood(Case(snapshot(*ranks, world_size=3)))
    found = stayed_with_a_lone_call(then) if then is not None else None
    assert (found is not None) is told


@pytest.mark.parametrize(("lone", "cause"), [("save", "rank-zero-only-collective"), ("main", "collective-mismatch")])
def test_of_calls_that_are_new_to_all_the_one_of_a_single_rank_in_a_function_of_its_own_is_the_odd_one(
    lone: str, cause: str
) -> None:
    """Within one function the two may as well be the branches of one condition."""
    steps: Program = [action for batch in range(3) for action in (Draw(0, batch), Call(line=12))]
    usual: Program = [*steps, Call("broadcast", line=96, size=1)]
    odd: Program = [*steps, Call("all_gather", line=82, size=256, function=lone)]
    judgement = judged(usual, odd, 3, 0)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == (cause, [0])


@pytest.mark.parametrize(
    ("first", "line"),
    [(Call(line=5, trainer=88, function="validate"), 88), (Call("broadcast", line=5, via="buffers", root=2), 90)],
    ids=["in its first call", "past one that no rank waits in"],
)
def test_below_a_trainer_ranks_stand_apart_by_its_lines_where_the_users_line_is_one(first: Call, line: int) -> None:
    """All calls lead to trainer.fit(); the others stand together in a call that is new to them too."""
    steps: Program = [action for batch in range(3) for action in (Draw(0, batch), Call(line=5, trainer=12))]
    usual: Program = [*steps, Call("barrier", line=5, trainer=85, function="save")]
    odd: Program = [*steps, first, Call(line=5, trainer=90, function="validate")]
    judgement = judged(usual, odd, 4, 2)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("rank-zero-only-collective", [2])
    assert f"of validate (strategy.py:{line}, below train.py:5)" in judgement.verdict.summary


def test_a_rank_in_an_epoch_that_had_ended_earlier_for_the_other_is_in_no_call_of_its_own() -> None:
    """It logs every second step; the other one had no second step in that epoch."""
    short: Program = [Draw(0, 0), Call(line=12), LoopEnd(), Draw(1, 0), Call(line=12)]
    long: Program = [Draw(0, 0), Call(line=12), Draw(0, 1), Call("all_to_all", line=60)]
    judgement = judged(long, short, 2, 1)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("uneven-steps", [1])


@pytest.mark.parametrize(("theirs", "told"), [(20, True), (60, False)], ids=["alone", "rank 0 lets ranks wait for it"])
def test_the_line_of_a_failed_call_behind_a_check_of_the_rank_is_a_place_below_a_package_too(
    theirs: int, told: bool
) -> None:
    """A trainer makes barriers for many lines of the user from one place of its own."""
    strategy = Frame(TRAINER, 303, "barrier")

    def called(evidence: RankEvidence) -> RankEvidence:
        lines = [20, 20, 20, 20, theirs]
        ring = tuple(
            Collective("0", n, "barrier", frames=(strategy, Frame(SCRIPT, line, "main")))
            for n, line in enumerate(lines)
        )
        assert evidence.reading is not None
        return replace(evidence, reading=replace(evidence.reading, calls=ring))

    down = called(failed(1))
    assert down.reading is not None
    assert down.reading.exception is not None
    frames = (Frame(f"{TORCH}/distributed/distributed_c10d.py", 5356, "barrier"), strategy, Frame(SCRIPT, 70, "main"))
    down = replace(down, reading=replace(down.reading, exception=replace(down.reading.exception, frames=frames)))
    guarded = tuple(
        CallSite(
            (Frame(SCRIPT, line, "main"),),
            (Bypass(Frame(SCRIPT, line - 1, "main"), "if rank == 0", inner=True, asks="rank"),),
        )
        for line in (70, 60)
    )
    job = replace(snapshot(called(ended(0)), down, called(ended(2)), world_size=3), call_sites=guarded)
    verdict = diagnose(job).verdict
    blamed = (verdict.cause, [(who.rank, who.where and who.where.line) for who in verdict.culprits])
    assert (blamed == ("rank-zero-only-collective", [(1, 70)])) is told, verdict.summary
    assert ("the source asks for the rank at train.py:69 (`if rank == 0`)" in verdict.evidence) is told


def test_ranks_wait_in_ddps_second_forward_while_it_agrees_on_the_order_of_its_buckets() -> None:
    """GIVEN a guarded barrier in the first step WHEN the others are in the next forward THEN it is a proven hang."""
    step: Program = [Draw(0, 0), Call(line=13, via="gradients")]
    usual: Program = [*step, Draw(0, 1), Call(line=12, via="buckets")]
    snapshot = World([[*step, Call("barrier", line=25)], usual, usual]).run().snapshot()
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "rank-zero-only-collective"
    assert blamed_ranks(judgement) == [0]
    assert judgement.verdict.hang == "proven"
    assert "Ranks 1-2 wait in the model's forward (train.py:12)." in judgement.verdict.details


def _behind_a_check(entry: RankEvidence, line: int) -> RankEvidence:
    """Its stack leads to `line` behind a check of the rank; other stacks are left as they are."""
    stacks = (
        replace(each, guard="rank") if any(f.line == line for f in each.frames) else each for each in entry.stacks
    )
    return replace(entry, stacks=tuple(stacks))


@pytest.mark.parametrize("alike", [True, False])
def test_a_call_behind_a_rank_check_in_each_of_several_groups(alike: bool) -> None:
    """GIVEN two groups WHEN the first member of each calls alone THEN both are; else what is said is of one group."""
    turn: Program = [Draw(), Call(line=12, group="pairs")]
    more = Call("all_gather", line=30, group="pairs", size=4, function="log")
    callers = (0, 2) if alike else (0, 2, 3)
    programs: list[Program] = [[*turn * 4, *([more] if rank in callers else []), *turn] for rank in range(4)]
    snapshot = World(programs, groups={"pairs": [(0, 1), (2, 3)]}).run().snapshot()
    case = Case(replace(snapshot, ranks=tuple(_behind_a_check(entry, 30) for entry in snapshot.ranks)))
    found = mispaired_at_a_new_place(case)
    assert found is not None
    assert [culprit.rank for culprit in found.culprits] == ([0, 2] if alike else [0])
    who = "rank" if alike else "member of group pairs"
    assert f"no other {who} has ever called a collective at train.py:30" in [each.says for each in found.witnesses]


START = Frame(SCRIPT, 39, "<module>")
FIRST = Collective("0", 1, "broadcast", ((8,),), ("Float",), frames=(START,), retired=True, peer=0)


def before_any_loop(number: int, call: Collective, *stack: Frame) -> RankEvidence:
    """A rank that stands in `call`, its second one or its first one of group 1, before it has come to any loop."""
    issued = (2, 0) if call.group == "0" else (1, 1)
    heads = tuple(GroupHead(str(n), (0, 1, 2), "", "gloo", made, 1 - n) for n, made in enumerate(issued))
    found = rank(
        number, stack, still_s=500, patience_s=60, progress=Progress(step=-1), world_size=3,
        calls=(FIRST, call), open_calls=(call,),
    )  # fmt: skip
    assert found.reading is not None
    stacks = tuple(replace(each, in_loop=False, guard="none") for each in found.stacks)
    calls = Collectives(heads, (FIRST, call), (call,))
    reading = replace(found.reading, heads=heads)
    return replace(found, reading=reading, stacks=stacks, earlier_stacks=stacks, collectives=calls)


@pytest.mark.parametrize(("line", "cause"), [(95, "rank-zero-only-collective"), (91, "undetermined")])
def test_a_call_inside_of_a_block_at_whose_end_the_others_wait(line: int, cause: str) -> None:
    """GIVEN Lightning's prepare_data, which one rank runs WHEN a barrier is called there."""
    inside = (Frame(SCRIPT, 15, "prepare_data"), Frame(TRAINER, line, "Trainer.prepare_data"), START)
    alone = before_any_loop(0, Collective("0", 2, "barrier", frames=inside), Frame(C10D, 5356, "barrier"), *inside)
    exits = (Frame(TRAINER, 7, "Block.__exit__"), Frame(TRAINER, 93, "Trainer.prepare_data"), START)
    call = Collective("1", 1, "monitored_barrier", frames=exits)
    others = [before_any_loop(n, call, Frame(C10D, 5420, "monitored_barrier"), *exits) for n in (1, 2)]
    judgement = judge(alone, *others, world_size=3)
    assert judgement.verdict.cause == cause
    assert blamed_ranks(judgement) == ([0] if line == 95 else [])


def test_calls_that_met_others_of_elsewhere_make_no_habit() -> None:
    """GIVEN a loop of gathers behind a rank check WHEN the first one was paired with one that the others made later."""
    steps: Program = [action for _ in range(4) for action in (Draw(), GRADIENTS)]
    lone: Program = [*steps, *[Call("all_gather", line=30, function="evaluate")] * 2]
    others: Program = [*steps, *(Call("all_gather", line=32, size=size, function="predict") for size in (8, 2))]

    def guarded(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(each, guard="rank" if entry.rank == 0 else "none") for each in entry.stacks)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    judgement = diagnose(changed(World([lone, others, others]).run().snapshot(), guarded))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("rank-zero-only-collective", [0])


def test_a_call_from_a_common_helper_is_told_by_its_caller_when_the_rank_has_gone_on() -> None:
    """GIVEN one call more than the others, paired with their next one THEN the culprit is the line that made it."""
    usual: list[list[Action]] = [[Draw(0, n), Call(line=12), Call(line=24, helper=13)] for n in range(16)]
    more = [*usual[:10], [*usual[10], Call(line=29, helper=13)], *usual[11:]]
    programs = [[action for step in (more if rank == 1 else usual) for action in step] for rank in range(3)]
    verdict = diagnose(World(programs).run().snapshot()).verdict
    assert (verdict.cause, [(each.rank, each.where and each.where.line) for each in verdict.culprits]) == (
        "rank-zero-only-collective",
        [(1, 29)],
    )
    assert "Rank 1 called all_reduce (train.py:13) from train.py:29 in epoch 0, batch 10" in verdict.summary
