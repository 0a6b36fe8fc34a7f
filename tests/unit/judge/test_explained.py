"""Which of several findings is told."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch.judge.explained import best, may_explain
from hangwatch.judge.order import ORDER
from hangwatch.model import Certainty, Culprit, Status
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_zero_only_collective import rank_zero_only
from hangwatch.rules.step.skipped_collective import skipped_collective
from hangwatch.rules.step.skipped_collective.by_turns import made_fewer_calls
from hangwatch.rules.step.slow_checkpoint import slow_checkpoint
from hangwatch.rules.step.uneven_steps import uneven_steps


def found(cause: str, *ranks: int, **others: object) -> Finding:
    culprits = tuple(Culprit(rank) for rank in ranks)
    return Finding(cause, Certainty.LIKELY, f"{cause}.", culprits=culprits, **others)  # type: ignore[arg-type]


def told(*findings: Finding) -> Finding:
    answer = best(iter(findings))
    assert answer is not None
    return answer


def test_the_first_is_told_where_none_explains_it_and_no_other_is_asked_for() -> None:
    def findings() -> Iterator[Finding]:
        yield found("rank-frozen", 1)
        raise AssertionError("asked for more")

    assert best(findings()) == found("rank-frozen", 1)
    assert best(iter(())) is None


def test_the_call_that_a_rank_skipped_explains_that_it_ended_while_others_wait() -> None:
    left, skipped = found("exit-destroy-asymmetric", 2), found("skipped-collective", 2)
    assert told(left, skipped) == skipped
    assert told(skipped, left) == skipped
    assert told(left, found("skipped-collective", 0)) == left
    assert told(left, found("collective-mismatch", 2)) == left


def test_the_ranks_that_left_may_be_more_than_those_that_are_blamed() -> None:
    left = found("exit-destroy-asymmetric", 0, awaited=(1, 2, 3))
    assert told(left, found("rank-zero-only-collective", 1, 2, 3)).cause == "rank-zero-only-collective"


def test_a_rank_that_writes_a_checkpoint_may_come_back_to_its_loop() -> None:
    assert told(found("uneven-steps", 0), found("slow-checkpoint", 0)).cause == "slow-checkpoint"


def test_an_explanation_is_explained_in_its_turn() -> None:
    findings = [found("exit-destroy-asymmetric", 1), found("skipped-collective", 1), found("slow-checkpoint", 1)]
    assert told(*findings).cause == "slow-checkpoint"


def test_why_the_awaited_rank_did_not_come_is_told_with_how_the_job_ended() -> None:
    ended = found("undetermined", 1, victims=(0, 2), status=Status.FAILED, evidence=("rank 0 wrote: timeout",))
    answer = told(ended, found("loader-worker-blocked", 1, evidence=("its worker sleeps",)))
    assert (answer.cause, answer.status) == ("loader-worker-blocked", Status.FAILED)
    assert answer.evidence == ("its worker sleeps", "rank 0 wrote: timeout")


def test_a_victim_of_an_unknown_cause_is_not_blamed() -> None:
    ended = found("undetermined", victims=(0, 2))
    assert told(ended, found("rank-frozen", 0)) == ended
    assert told(ended, found("rank-died", 1)) == ended
    assert told(ended, found("network-partition")) == ended


def test_behind_a_finding_only_the_rules_of_causes_that_explain_it_are_asked() -> None:
    asked = {rule for rule in ORDER if may_explain(rule, "exit-destroy-asymmetric")}
    assert {skipped_collective, made_fewer_calls, rank_zero_only} < asked
    assert {slow_checkpoint, uneven_steps}.isdisjoint(asked)
    assert [rule for rule in ORDER if may_explain(rule, "uneven-steps")] == [slow_checkpoint]
    assert all(may_explain(rule, "undetermined") for rule in ORDER)
