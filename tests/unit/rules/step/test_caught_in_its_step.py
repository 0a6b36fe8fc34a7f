"""`exception-on-one-rank`: an error that the program caught, in the step in which its rank began to differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import Bypass, CallSite, ExceptionFacts, Frame, Judgement, RankEvidence
from tests.unit.job import IN_BACKWARD, blamed, judge, told
from tests.unit.rules.step.aborts import CLOSED, EXTRA, calls, dead, lost
from tests.unit.rules.step.worlds import STEP, Program, changed, world
from tests.unit.simulator import SCRIPT, Call, Draw, Peer, World

SKIPPED = 3  # the step of which rank 1 leaves out all calls


def job(*caught: tuple[int, ExceptionFacts]) -> Judgement:
    """Three ranks, of which rank 1 skips a step, and errors that ranks caught."""
    snapshot = world(STEP * 6, [*STEP * SKIPPED, Draw(), *STEP * 2], STEP * 6)
    for rank, error in caught:
        snapshot = changed(snapshot, rank, lambda entry, error=error: with_caught(entry, error))  # type: ignore[misc]
    return diagnose(snapshot)


def with_caught(entry: RankEvidence, error: ExceptionFacts) -> RankEvidence:
    assert entry.reading is not None
    return replace(entry, reading=replace(entry.reading, caught=(*entry.reading.caught, error)))


def error(step: int, message: str = "activation 7e5", thread: str = "MainThread") -> ExceptionFacts:
    frames = (Frame(SCRIPT, 33, "watch"), Frame(SCRIPT, 12, "main"))
    return ExceptionFacts("FloatingPointError", message, frames, thread, fatal=False, step=step)


def test_the_error_of_that_step_is_the_cause_with_its_line() -> None:
    judgement = job((1, error(SKIPPED)))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("exception-on-one-rank", "likely")
    assert [number for number, _, _ in blamed(judgement)] == [1]
    (culprit,) = judgement.verdict.culprits
    assert culprit.where == Frame(SCRIPT, 33, "watch")
    assert "it issued 0 collectives in that step, and the others 2" in judgement.verdict.summary
    assert "ranks 0 and 2 recorded no error in that step" in judgement.verdict.evidence


def test_an_error_that_left_a_forward_and_then_its_program_was_not_caught() -> None:
    """It is on the board twice: as it left the model's forward, and as it ended the program."""
    snapshot = world(STEP * 6, [*STEP * SKIPPED, Draw(), *STEP * 2], STEP * 6)
    fatal = replace(error(SKIPPED), fatal=True)

    def ends(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        return replace(entry, reading=replace(entry.reading, exception=fatal, caught=(error(SKIPPED),)))

    verdict = diagnose(changed(snapshot, 1, ends)).verdict
    assert verdict.cause == "exception-on-one-rank"
    assert "caught it" not in verdict.summary


@pytest.mark.parametrize(
    "caught",
    [
        [],
        [(1, error(SKIPPED - 1))],
        [(0, error(SKIPPED))],
        [(1, error(SKIPPED)), (0, error(SKIPPED))],
        [(1, error(SKIPPED, "Connection closed by peer"))],
        [(1, error(SKIPPED, thread="prefetch"))],
    ],
    ids=["none", "of another step", "of another rank", "of others too", "a consequence", "of another thread"],
)
def test_another_error_is_not(caught: list[tuple[int, ExceptionFacts]]) -> None:
    assert job(*caught).verdict.cause == "skipped-collective"


def past(text: str, *, alone: bool = True) -> Judgement:
    """Rank 0 (or all but rank 2) is past the call at line 30, in the next one, where all come."""
    first, common = Call("barrier", line=30), Call("broadcast", line=40)
    went_on = [[common], *([[first, common]] * 2 if alone else [[common], [first, common]])]
    snapshot = World(went_on).run().snapshot()
    straight = (
        replace(entry, stacks=stacks, earlier_stacks=stacks)
        for entry in snapshot.ranks
        for stacks in [tuple(replace(stack, in_loop=False) for stack in entry.stacks)]
    )
    way = Bypass(Frame(SCRIPT, 34, "main"), text)
    site = CallSite((Frame(SCRIPT, 30, "main"),), (way,))
    return diagnose(replace(snapshot, ranks=tuple(straight), call_sites=(site,)))


def test_an_except_clause_is_the_only_way_past_a_call() -> None:
    judgement = past("except FileNotFoundError")
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("exception-on-one-rank", "likely")
    (culprit,) = judgement.verdict.culprits
    assert (culprit.rank, culprit.where) == (0, Frame(SCRIPT, 34, "main"))
    assert "Rank 0 went on without barrier (train.py:30), which ranks 1-2 called" in judgement.verdict.summary


def test_another_way_past_it_is_no_error() -> None:
    assert past("if not os.path.exists(path): return").verdict.cause != "exception-on-one-rank"


def test_an_error_on_most_ranks_is_none_of_one() -> None:
    assert past("except FileNotFoundError", alone=False).verdict.cause != "exception-on-one-rank"


def test_an_error_in_the_step_in_whose_backward_the_others_wait() -> None:
    """The rank left its loop, and made another call under the number of the gradients: the counts do not differ."""
    snapshot = World([[*STEP * 6], [*STEP * 6], [*STEP * 5, Draw(), Call("barrier", line=60)]]).run().snapshot()
    judgement = diagnose(changed(snapshot, 2, lambda entry: with_caught(entry, error(5))))
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("exception-on-one-rank", "likely")
    (culprit,) = judgement.verdict.culprits
    assert (culprit.rank, culprit.where) == (2, Frame(SCRIPT, 33, "watch"))
    assert "went on to barrier (train.py:60) without the backward of that step" in judgement.verdict.summary
    assert diagnose(snapshot).verdict.cause != "exception-on-one-rank"
    elsewhere = changed(snapshot, 2, lambda entry: with_caught(entry, error(4)))
    assert diagnose(elsewhere).verdict.cause != "exception-on-one-rank"


@pytest.mark.parametrize(
    ("block", "in_loop", "said"),
    [
        ("with", False, "left its `with` block and came to barrier"),
        ("finally", False, "left its `try` block and came to barrier"),
        ("with", True, "caught it and went on to barrier"),
        ("", False, "caught it and went on to barrier"),
    ],
)
def test_an_error_that_runs_the_end_of_a_block_is_not_said_to_be_caught(block: str, in_loop: bool, said: str) -> None:
    """GIVEN a rank whose error in this step ended its loop, and that now waits at the end of a `with` or `try` block
    THEN that error goes on; it is only caught where the loop goes on, or no such block is left."""
    snapshot = World([[*STEP * 6], [*STEP * 6], [*STEP * 5, Draw(), Call("barrier", line=60)]]).run().snapshot()

    def at_the_end(entry: RankEvidence) -> RankEvidence:
        stacks = tuple(replace(stack, block=block, in_loop=in_loop) for stack in entry.stacks)
        return with_caught(replace(entry, stacks=stacks), error(5))

    verdict = diagnose(changed(snapshot, 2, at_the_end)).verdict
    assert said in verdict.summary
    assert ("vote" in verdict.fix) is ("caught" in said)


def test_an_error_in_the_step_of_a_pipeline_in_which_the_others_wait() -> None:
    """GIVEN a pipeline, WHEN its last stage catches an error before it has sent its gradients, THEN it is the cause;
    one of a kind that the stage handles now and then is not known to be."""
    first: Program = [Draw(), Peer("send", 1), Peer("recv", 1)]
    second: Program = [Draw(), Peer("recv", 0), Peer("send", 2), Peer("recv", 2), Peer("send", 0)]
    last: Program = [Draw(), Peer("recv", 1), Peer("send", 1)]
    programs = [first * 5, second * 5, [*last * 4, *last[:2], Peer("recv", 1)]]
    snapshot = World(programs).run().snapshot()
    caught = changed(snapshot, 2, lambda entry: with_caught(entry, error(4)))
    judgement = diagnose(caught)
    assert (judgement.verdict.cause, judgement.verdict.certainty) == ("exception-on-one-rank", "likely")
    (culprit,) = judgement.verdict.culprits
    assert (culprit.rank, culprit.where) == (2, Frame(SCRIPT, 33, "watch"))
    assert "without the rest of that step, in which ranks 0-1 wait." in judgement.verdict.summary
    usual = changed(snapshot, 2, lambda entry: with_caught(with_caught(entry, error(1)), error(4)))
    elsewhere = changed(snapshot, 2, lambda entry: with_caught(entry, error(3)))
    assert "exception-on-one-rank" not in {diagnose(each).verdict.cause for each in (snapshot, usual, elsewhere)}


def lost_in(number: int, *frames: Frame) -> RankEvidence:
    """It caught the loss of its peer there, and failed of that in a later call."""
    loss = ExceptionFacts("RuntimeError", CLOSED, frames, "MainThread", fatal=False, step=5)
    return with_caught(lost(number, calls(5, EXTRA, gap=3)), loss)


def test_an_error_in_the_step_in_whose_backward_the_others_lost_the_rank_and_went_on() -> None:
    """All ranks run their training in a `try`: that of the others ends because the one had left its own."""
    left = with_caught(dead(2, calls(5, EXTRA)), error(5))
    judgement = judge(*(lost_in(number, *IN_BACKWARD) for number in range(2)), left)
    assert told(judgement) == ("exception-on-one-rank", "likely", "failed")
    assert [(who.rank, who.where) for who in judgement.verdict.culprits] == [(2, Frame(SCRIPT, 33, "watch"))]
    assert "went on to all_reduce (train.py:27) without the backward of that step" in judgement.verdict.summary


def test_an_error_is_no_reason_where_the_others_lost_the_rank_elsewhere() -> None:
    left = with_caught(dead(2, calls(5, EXTRA)), error(5))
    judgement = judge(*(lost_in(number, *EXTRA) for number in range(2)), left)
    assert judgement.verdict.cause != "exception-on-one-rank"
