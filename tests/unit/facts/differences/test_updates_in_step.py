"""Ranks at one line of a step, of which some left an optimizer step out on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.facts.case import Case
from hangwatch.facts.differences.updates_in_step import updates_in_step
from hangwatch.model import (
    Condition,
    ExceptionFacts,
    Frame,
    LoaderFacts,
    LoopFacts,
    Phase,
    Progress,
    RankEvidence,
    StepEntry,
)
from tests.unit.job import IN_BACKWARD, SCRIPT, frames, rank, snapshot

LOOP = LoopFacts(Frame(SCRIPT, 40, "main"), updates=(Condition(Frame(SCRIPT, 44, "main"), "if active", "check"),))
BATCHES = LoaderFacts(0, None, epoch=0, drawn=8, where=Frame(SCRIPT, 40, "main"))


def member(
    number: int, made: int, *, begun: int = 14, loop: LoopFacts = LOOP, line: int = 50, **parts: Any
) -> RankEvidence:
    """A rank in step 7, which it began after so many optimizer steps, and in which it has `made` more."""
    stack = frames(
        *((each.file, each.line, each.function) for each in IN_BACKWARD[:2]), below=(Frame(SCRIPT, line, "main"),)
    )
    found = rank(
        number,
        stack,
        phase=Phase.BACKWARD,
        progress=Progress(0, 7, 7, begun + made, 30, 0),
        steps=(StepEntry(7, 0, 7, 0, 1.0, {"0": 21}, begun),),
        loaders=(BATCHES,),
        issued=22 + made,
        world_size=3,
        **parts,
    )
    return replace(found, stacks=tuple(replace(each, loop=loop, in_loop=True) for each in found.stacks))


def test_the_rank_without_its_optimizer_step_and_the_condition_ahead() -> None:
    found = updates_in_step(Case(snapshot(member(0, 1), member(1, 0), member(2, 1), world_size=3)))
    assert found is not None
    assert (found.without, found.others, found.fewer, found.more) == ((1,), (0, 2), 0, 1)
    assert [each.text for each in found.conditions] == ["if active"]


INNER = replace(LOOP, where=Frame(SCRIPT, 46, "main"), outer=(Frame(SCRIPT, 40, "main"),))
FAILED = ExceptionFacts("ValueError", "bad", (Frame(SCRIPT, 47, "main"),), fatal=False, step=7)


@pytest.mark.parametrize(
    "odd",
    [
        member(1, 1),
        member(1, 0, begun=13),
        member(1, 0, line=48),
        member(1, 0, loop=INNER),
        member(1, 0, exception=FAILED),
        replace(member(1, 0), reading=replace(member(1, 0).reading, heads=member(0, 1).reading.heads)),  # type: ignore[type-var, union-attr]
    ],
    ids=["as many", "began otherwise", "at another line", "in an inner loop", "by an error", "as many calls"],
)
def test_otherwise_nothing_is_known_to_be_left_out(odd: RankEvidence) -> None:
    others = [replace(member(n, 1), stacks=odd.stacks) if odd.stacks[0].loop is INNER else member(n, 1) for n in (0, 2)]
    assert updates_in_step(Case(snapshot(others[0], odd, others[1], world_size=3))) is None
