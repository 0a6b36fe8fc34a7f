"""A rank that lost a peer in a call, and ended before its board had counted that call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.facts.uncounted import failed_uncounted
from hangwatch.judge import Case
from hangwatch.model import Collectives, Frame, GroupHead, RankEvidence
from tests.unit.job import C10D, snapshot
from tests.unit.rules.step.aborts import EXTRA, USUAL, calls, lost
from tests.unit.simulator import TRAINER

IN_TORCH = Frame(C10D, 3252, "all_reduce")


def ended(
    *,
    completed: int = 7,
    inside: tuple[Frame, ...] = (IN_TORCH, *EXTRA),
    groups: tuple[str, ...] = ("0",),
    **error: str,
) -> RankEvidence:
    """It issued number 7 as its last from its usual line, and then lost a peer `inside` of a call."""
    found = lost(0, calls(4), **error)
    assert found.reading is not None
    assert found.reading.exception is not None
    heads = tuple(GroupHead(name, (0, 1), "", "gloo", 7, completed) for name in groups)
    reading = replace(found.reading, heads=heads, exception=replace(found.reading.exception, frames=inside))
    return replace(found, reading=reading, collectives=Collectives(heads))


def is_uncounted(entry: RankEvidence) -> bool:
    case = Case(snapshot(entry))
    return failed_uncounted(case.ranks[0], case.ledger, case.ledger.groups[("0", (0, 1))])


@pytest.mark.parametrize("completed", [7, 6])
def test_a_call_from_another_line_than_the_last_one_counted(completed: int) -> None:
    assert is_uncounted(ended(completed=completed))


@pytest.mark.parametrize(("completed", "uncounted"), [(7, True), (6, False)])
def test_a_call_from_the_line_of_the_last_one_is_another_only_where_that_is_complete(
    completed: int, uncounted: bool
) -> None:
    assert is_uncounted(ended(completed=completed, inside=(IN_TORCH, *USUAL))) is uncounted


def test_which_of_two_groups_it_called_in_is_known_by_earlier_calls_from_there() -> None:
    assert not is_uncounted(ended(groups=("0", "1")))
    assert is_uncounted(ended(groups=("0", "1"), inside=(IN_TORCH, *USUAL)))


def test_below_a_trainer_its_own_line_tells_one_call_from_another() -> None:
    """GIVEN a rank that lost a peer below the user's line of the calls before"""

    def below(line: int) -> tuple[Frame, ...]:
        return (IN_TORCH, Frame(TRAINER, line, "step"), *USUAL)

    def made_below(line: int) -> RankEvidence:
        entry = ended(groups=("0", "1"), inside=below(57))
        assert entry.reading is not None
        calls = tuple(replace(call, frames=below(line)) for call in entry.reading.calls)
        return replace(entry, reading=replace(entry.reading, calls=calls))

    # THEN those were made there too only if the trainer's line is the same
    assert is_uncounted(made_below(57))
    assert not is_uncounted(made_below(90))


def test_an_error_of_its_own_is_no_call() -> None:
    assert not is_uncounted(ended(message="invalid device ordinal"))
    assert not is_uncounted(ended(inside=EXTRA))
