"""`exception-on-one-rank`: an exception on one rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.judge import diagnose
from hangwatch.model import ExceptionFacts, Frame, Phase, RankEvidence, Snapshot, Status
from tests.unit.job import IN_BACKWARD, NOW, TORCH, gone, judge, told
from tests.unit.job import rank as living
from tests.unit.rules.step.worlds import STEP, changed, error, retrying, stuck, with_error, world
from tests.unit.simulator import SCRIPT, Call, Die, Stop, blamed_ranks


def test_a_pending_exception_on_one_rank_is_the_cause_not_the_barrier_it_waits_in() -> None:
    snapshot = changed(world(STEP * 5, [*STEP * 3, Call("barrier", line=60)]), 1, with_error(error("list index")))
    judgement = diagnose(snapshot)
    assert judgement.verdict.cause == "exception-on-one-rank"
    assert blamed_ranks(judgement) == [1]
    assert "IndexError: list index (train.py:33)" in judgement.verdict.summary
    assert judgement.status is Status.HUNG


def test_an_exception_that_another_ranks_end_explains_is_not_the_cause() -> None:
    snapshot = world(STEP * 5, [*STEP * 3, Die(-9)], STEP * 5)
    follow = replace(error("Connection closed by peer", fatal=True), type="RuntimeError")
    judgement = diagnose(changed(snapshot, 0, with_error(follow)))
    assert judgement.verdict.cause == "rank-died"
    assert blamed_ranks(judgement) == [1]


def test_of_two_errors_the_first_is_to_blame() -> None:
    snapshot = world([*STEP * 3, Die(1)], [*STEP * 3, Die(1)], STEP * 5)
    snapshot = changed(snapshot, 0, with_error(error("second", fatal=True, at=9.0)))
    snapshot = changed(snapshot, 1, with_error(error("first", fatal=True, at=8.0)))
    assert blamed_ranks(diagnose(snapshot)) == [1]


@pytest.mark.parametrize(("message", "blamed"), [("no sample 7", [1, 2]), ("no sample 40", [1, 2]), ("bad", [1])])
def test_ranks_that_raise_one_error_each_by_itself_are_blamed_together(message: str, blamed: list[int]) -> None:
    """An error with other words at that line is another one: it may follow from the first."""
    snapshot = changed(world(STEP * 5, STEP * 4, STEP * 4), 1, with_error(error("no sample 7", fatal=True)))
    snapshot = changed(snapshot, 2, with_error(error(message, fatal=True, at=5.1)))
    judgement = diagnose(snapshot)
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("exception-on-one-rank", blamed)
    own = [each for each in judgement.verdict.evidence if each.startswith(f"rank {blamed[-1]} recorded ")]
    assert (message if blamed == [1, 2] else "no sample 7") in own[0]
    later = [] if blamed == [1, 2] else ["Rank 2 raised errors after it."]
    assert [each for each in judgement.verdict.details if "raised errors" in each] == later


def test_an_error_that_all_ranks_raise_at_one_line_blames_none_of_them() -> None:
    """Ranks that received what was meant for another call fail alike, and not where one of them left the order."""
    snapshot = world(*[[*STEP * 3, Die(1)]] * 3)
    for rank, at in enumerate((9.0, 8.0, 8.5)):
        snapshot = changed(snapshot, rank, with_error(error(f"shape [4, {rank}]", fatal=True, at=at)))
    verdict = diagnose(snapshot).verdict
    assert (verdict.cause, verdict.certainty) == ("exception-on-one-rank", "likely")
    assert not verdict.culprits
    assert "All ranks raised" in verdict.summary


def test_a_handled_exception_that_all_ranks_have_is_a_way_of_the_program() -> None:
    snapshot = world(STEP * 5, [*STEP * 3, Stop()])
    for rank in range(2):
        snapshot = changed(snapshot, rank, with_error(error("no module named apex")))
    assert diagnose(snapshot).verdict.cause == "rank-frozen"


def test_an_error_without_a_lock_is_the_cause() -> None:
    assert diagnose(retrying(stuck("lock"))).verdict.cause == "exception-on-one-rank"


@pytest.mark.parametrize(("in_loop", "cause"), [(True, "user-code-blocked"), (False, "exception-on-one-rank")])
def test_an_error_after_which_a_rank_tries_again_in_a_loop_is_what_it_waits_for(in_loop: bool, cause: str) -> None:
    """`time.sleep` has no frame of its own: the system call shows that the rank pauses in the user's function."""

    def polls(entry: RankEvidence) -> RankEvidence:
        stack = replace(entry.stacks[0], frames=(Frame(SCRIPT, 39, "push"), Frame(SCRIPT, 99, "<module>")))
        stacks = (replace(stack, in_loop=in_loop),)
        return replace(entry, stacks=stacks, earlier_stacks=stacks)

    verdict = diagnose(retrying(changed(stuck("code", system_call="clock_nanosleep"), 1, polls))).verdict
    assert verdict.cause == cause
    if in_loop:
        assert "it sleeps" in verdict.summary
        assert "it tries again after BlockingIOError: [Errno 11] (train.py:39)" in verdict.evidence


def _after_an_error_in(thread: str, **process: object) -> Snapshot:
    """Rank 1 made many steps since an error ended one of its threads, and now stands in its own code."""

    def since(entry: RankEvidence) -> RankEvidence:
        assert entry.reading is not None
        return replace(entry, reading=replace(entry.reading, progress=replace(entry.reading.progress, at=900.0)))

    snapshot = changed(stuck("lock", **process), 1, with_error(replace(error("no such file"), thread=thread)))
    return changed(snapshot, 1, since)


def test_a_thread_that_an_error_ended_gives_nothing_for_which_its_rank_waits() -> None:
    judgement = diagnose(_after_an_error_in("saver", private_wait=True))
    assert (judgement.verdict.cause, blamed_ranks(judgement)) == ("exception-on-one-rank", [1])
    assert "in thread 'saver'" in judgement.verdict.summary


@pytest.mark.parametrize(
    ("thread", "process"),
    [("MainThread", {"private_wait": True}), ("saver", {}), ("saver", {"private_wait": True, "cpu_delta_s": 0.9})],
)
def test_an_error_that_the_rank_has_survived_is_not_why_it_stands(thread: str, process: dict[str, object]) -> None:
    assert diagnose(_after_an_error_in(thread, **process)).verdict.cause == "user-code-blocked"


def test_the_error_of_a_loaders_worker_is_told_in_its_own_words_and_at_its_own_line() -> None:
    lines = (
        f'Original Traceback (most recent call last):\n  File "{SCRIPT}", line 24, in collate\nIndexError: no nodes.\n'
    )
    wrapped = f"Caught IndexError in DataLoader worker process 1.\n{lines}"
    loop = (Frame(f"{TORCH}/utils/data/dataloader.py", 725, "__next__"), Frame(SCRIPT, 46, "main"))
    raised = gone(1, 1, Phase.FAILED, exception=ExceptionFacts("IndexError", wrapped, loop, at=NOW - 12))
    judgement = judge(living(0, IN_BACKWARD, issued=4, completed=3), raised)
    assert told(judgement)[0] == "exception-on-one-rank"
    assert "Rank 1 raised IndexError: no nodes (in DataLoader worker 1) (train.py:24)" in judgement.verdict.summary
