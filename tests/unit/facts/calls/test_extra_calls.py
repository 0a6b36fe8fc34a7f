"""Calls that one side issued before a call that all ranks come to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.calls.extra_calls import extra_calls, sentences
from hangwatch.facts.case import Case
from hangwatch.judge import diagnose
from hangwatch.model import Collective, Collectives, Frame, GroupHead, RankEvidence, Snapshot
from tests.unit.job import SCRIPT, blamed, rank, snapshot, told
from tests.unit.simulator import TORCH

C10D = f"{TORCH}/distributed/distributed_c10d.py"
Issued = tuple[str, int, int, str]  # operation, elements, line, thread

LOSS: Issued = ("all_reduce", 1, 60, "MainThread")
GRADIENTS: Issued = ("all_reduce", 1024, 0, "pt_autograd_0")
SCORES: Issued = ("all_gather", 256, 82, "MainThread")
END: Issued = ("barrier", 0, 110, "MainThread")


def ahead(number: int, members: tuple[int, ...], *issued: Issued, completed: int) -> RankEvidence:
    """A rank whose host has issued all these calls, and whose device waits in the first that is not completed."""
    calls = tuple(_call(seq, one, completed) for seq, one in enumerate(issued, start=1))
    head = GroupHead("0", members, issued=len(issued), completed=completed)
    stack = (Frame(C10D, 4000, "barrier"), Frame(SCRIPT, issued[-1][2], "main"), Frame(SCRIPT, 199, "<module>"))
    entry = rank(number, stack, world_size=len(members))
    return replace(entry, collectives=Collectives(heads=(head,), recent=calls))


def _call(seq: int, one: Issued, completed: int) -> Collective:
    op, elements, line, thread = one
    sizes = ((elements,),) if elements else ()
    where = (Frame(C10D, 2900, op), Frame(SCRIPT, line, "main"), Frame(SCRIPT, 199, "<module>")) if line else ()
    return Collective("0", seq, op, sizes, ("float",) if elements else (), thread_name=thread, frames=where,
                      retired=seq <= completed, step=0)  # fmt: skip


def job(*programs: tuple[Issued, ...], completed: int = 2) -> Snapshot:
    members = tuple(range(len(programs)))
    ranks = tuple(ahead(number, members, *program, completed=completed) for number, program in enumerate(programs))
    return snapshot(*ranks, world_size=len(ranks))


USUAL = (LOSS, GRADIENTS, END)
ALONE = (LOSS, GRADIENTS, SCORES, SCORES, END)


def test_one_of_two_ranks_that_came_to_the_common_call_later_made_the_calls_before_it() -> None:
    case = Case(job(ALONE, USUAL))
    extra = extra_calls(case)
    assert extra is not None
    assert (extra.ranks, extra.others) == ((0,), (1,))
    assert [call.seq for call in extra.calls] == [3, 4]
    said = (
        "rank 0 issued 2 calls of all_gather (train.py:82), and only then barrier (train.py:110), which rank 1 issued"
    )
    assert sentences(case, extra) == (f"{said} as number 3 already",)


def test_the_rank_alone_in_new_calls_is_named_and_not_both() -> None:
    judgement = diagnose(job(ALONE, USUAL))
    verdict = judgement.verdict
    assert told(judgement)[:2] == ("rank-zero-only-collective", "likely")
    assert [who for who, _, _ in blamed(judgement)] == [0]
    assert "Rank 0 is alone in all_gather (train.py:82), 2 times" in verdict.summary


def test_most_ranks_made_a_call_that_one_left_out() -> None:
    """Its device has taken part in all that came before: what it lacks is the gradients of the second step."""
    usual = (LOSS, GRADIENTS, LOSS, GRADIENTS, END)
    judgement = diagnose(job(usual, (LOSS, GRADIENTS, LOSS, END), usual, completed=3))
    assert judgement.verdict.cause == "skipped-collective"
    assert [who for who, _, _ in blamed(judgement)] == [1]
    assert "left out all_reduce of backward" in judgement.verdict.summary


def test_another_size_in_the_same_line_is_no_extra_call() -> None:
    other = (LOSS, GRADIENTS, ("all_gather", 20, 82, "MainThread"), END)
    assert extra_calls(Case(job((LOSS, GRADIENTS, SCORES, END), other))) is None


@pytest.mark.parametrize("later", [USUAL, (LOSS, GRADIENTS)])
def test_ranks_that_issued_the_same_have_no_extra_calls(later: tuple[Issued, ...]) -> None:
    """That one host is behind is no difference: it may issue the rest yet."""
    assert extra_calls(Case(job(USUAL, later))) is None


def test_calls_of_two_threads_are_in_no_order_of_the_program() -> None:
    beat: Issued = ("all_reduce", 16, 132, "beat")
    one, other = (LOSS, GRADIENTS, beat, END), (LOSS, GRADIENTS, END, beat)
    assert extra_calls(Case(job(one, other))) is None
    judgement = diagnose(job(one, other))
    assert judgement.verdict.cause == "concurrent-collectives"
    said = "the paired calls of all ranks are the same operation"  # the barrier of one is paired with the other's beat
    assert said not in [each.why_not for each in judgement.verdict.alternatives]


def test_a_rank_whose_record_has_lost_its_gradients_calls_may_have_made_them() -> None:
    # GIVEN rank 1 one call behind since an earlier step, of which only the calls of Python code are on record
    full = job((LOSS, GRADIENTS, LOSS, GRADIENTS, LOSS, END), (LOSS, GRADIENTS, LOSS, LOSS, END), completed=2)
    dead = full.ranks[1]
    left = tuple(call for call in dead.collectives.recent if call.thread_name == "MainThread")
    lost = replace(dead, collectives=replace(dead.collectives, recent=left))
    partial = replace(full, ranks=(full.ranks[0], lost))
    for case in (Case(full), Case(partial)):
        extra = extra_calls(case)
        assert extra is not None
        assert extra.made_before(case, extra.others)
    # AND THEN it is not said that it never made them
    assert "never" not in diagnose(partial).verdict.summary
