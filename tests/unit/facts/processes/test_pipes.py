"""A rank and its child that each read what only the other one could write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.processes.pipes import awaits_its_own_input
from hangwatch.judge import diagnose
from hangwatch.model import NodeFacts, OpenFile, Pipe, ProcessEvidence, RankEvidence
from tests.unit.job import IN_BARRIER, IN_CODE, process, rank, snapshot

ANSWERS, INPUT = "pipe:[71]", "pipe:[72]"


def ranks(call: str = "read") -> list[RankEvidence]:
    """Rank 1 reads the output of its child 90, a filter that reads its input."""
    child = ProcessEvidence("child", process(90, command="sort -u", system_call=call, blocked_on=OpenFile(0, INPUT)))
    facts = {"system_call": "read", "blocked_on": OpenFile(14, ANSWERS)}
    waiting = rank(1, IN_CODE, facts=facts, issued=3, completed=3, evidence={"children": (child,)})
    return [rank(0, IN_BARRIER, issued=4, completed=3), waiting]


def nodes(*writers: int) -> tuple[NodeFacts, ...]:
    """The child alone writes the answers; `writers` hold its input."""
    return (NodeFacts("node-a", pipes=(Pipe(ANSWERS, (101,), (90,)), Pipe(INPUT, (90,), writers))),)


def test_a_filter_whose_input_is_not_closed() -> None:
    verdict = diagnose(replace(snapshot(*ranks()), nodes=nodes(101))).verdict
    assert verdict.cause == "user-code-blocked"
    assert "reads the output of its child process 90 (`sort -u`), which is in read on pipe:[72]" in verdict.summary
    assert "stdin.close()" in verdict.fix


@pytest.mark.parametrize(
    ("call", "writers"), [("read", (101, 300)), ("read", ()), ("futex", (101,))],
    ids=["another process may write", "not known", "it reads nothing"],
)  # fmt: skip
def test_a_child_that_may_go_on_is_another_matter(call: str, writers: tuple[int, ...]) -> None:
    case = Case(replace(snapshot(*ranks(call)), nodes=nodes(*writers)))
    assert awaits_its_own_input(case, case.ranks[1]) is None
