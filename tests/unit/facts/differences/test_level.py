"""Steps that optimizers count: where the totals of groups say more than they."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.differences.level import ROUNDS, at_one_place, is_level, lacking_turns, steps_apart
from hangwatch.judge import Case
from hangwatch.model import Collective, Divergence, GroupHead, Identity, Progress, RankEvidence, Reading, StepEntry
from tests.unit.facts.processes.test_standstill import ITEM, host, job

ALL = (0, 1, 2)


def rank(number: int, steps: int, totals: dict[str, int], *, loader: bool = False) -> RankEvidence:
    """A rank behind so many optimizer steps, whose host waits for its device in the last call of the last group."""
    done = {name: made - (name == [*totals][-1]) for name, made in totals.items()}
    heads = tuple(
        GroupHead(name, ALL, backend="nccl", issued=made, completed=done[name]) for name, made in totals.items()
    )
    batch = steps if loader else None
    entries = tuple(StepEntry(step, None, batch, None, 1.0 * step, {}) for step in range(steps + 1))
    identity = Identity(number, len(ALL), number, "node-a", 100 + number, 1.0, "j")
    progress = Progress(None, batch, steps)
    reading = Reading(identity, 100.0, ticker_at=99.9, heads=heads, steps=entries, progress=progress)
    found = host(number)
    return replace(found, reading=reading, collectives=replace(found.collectives, heads=heads))


def case(*ranks: RankEvidence) -> Case:
    return Case(job(*ranks))


def divergence(name: str) -> Divergence:
    return Divergence(name, ALL, 9, None, None, {0: 1, 1: 0, 2: 1}, (1,), ())


def test_a_group_of_which_all_made_as_many_calls_lacks_none_behind_an_added_turn() -> None:
    """Rank 1 trained one of its two models once more, so that its steps have other numbers from then on."""
    found = case(*(rank(each, 12 + (each == 1), {"one": 20, "two": 10 + (each == 1)}) for each in ALL))
    assert is_level(found, divergence("one"))
    assert not is_level(found, divergence("two"))


@pytest.mark.parametrize("loader", [True, False])
def test_the_batches_of_a_loader_count_the_same_turns_on_all_ranks(loader: bool) -> None:
    found = case(*(rank(each, 12, {"one": 20, "two": 10 + (each == 1)}, loader=loader) for each in ALL))
    assert at_one_place(found) is is_level(found, divergence("one")) is not loader


def test_where_no_group_lacks_a_call_all_are_mispaired_since_one_was_left_out() -> None:
    """Rank 1 left out a call and is a turn ahead: totals say nothing of it."""
    found = case(*(rank(each, 12 + (each == 1), {"one": 20}) for each in ALL))
    assert not is_level(found, divergence("one"))
    assert lacking_turns(found, {each: 13 + (each == 1) for each in ALL}) == ((), ())


def test_a_turn_less_of_everything_before_the_call_that_all_have_come_to() -> None:
    found = case(*(rank(each, 30 - (each == 2), {"rows": 120 - 4 * (each == 2), "all": 1}) for each in ALL))
    assert lacking_turns(found, {each: 31 - (each == 2) for each in ALL}) == ((2,), (0, 1))


def test_where_one_group_lacks_nothing_no_whole_turn_is_lacking() -> None:
    found = case(*(rank(each, 30 - (each == 2), {"rows": 120, "all": 1}) for each in ALL))
    assert lacking_turns(found, {each: 31 - (each == 2) for each in ALL}) == ((), ())


def rounds(number: int, *, steps_in_them: bool = True, places: int = 2, more: int = 1) -> RankEvidence:
    """A rank that makes calls from so many `places` in each round, and an optimizer step, and `more` of these later."""
    made = 2 * ROUNDS
    found = rank(number, (made if steps_in_them else 0) + more, {"all": made * places})
    calls = tuple(
        Collective(
            "all", at + 1, "broadcast", ((8,),), ("Float",), at=1.0 + at,
            step=at // places if steps_in_them else 0, frames=(replace(ITEM[0], line=20 + at % places), ITEM[1]),
        )
        for at in range(made * places)
    )  # fmt: skip
    return replace(found, collectives=replace(found.collectives, recent=calls))


@pytest.mark.parametrize(
    ("odd", "apart"),
    [({}, False), ({"steps_in_them": False}, True), ({"steps_in_them": False, "more": 0}, False)],
    ids=["as all", "another role", "it may repeat the step in which it is"],
)
def test_a_rank_that_takes_part_without_steps_has_other_steps_than_the_rest(odd: dict[str, int], apart: bool) -> None:
    assert steps_apart(case(rounds(0), rounds(1), rounds(2, **odd))) is apart  # type: ignore[arg-type]


def test_a_call_that_is_made_again_and_again_from_one_place_is_no_other_role() -> None:
    found = case(rounds(0, places=1), rounds(1, places=1), rounds(2, places=1, steps_in_them=False))
    assert not steps_apart(found)
