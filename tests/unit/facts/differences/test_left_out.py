"""Calls that were left out, by the order of call sites."""

from __future__ import annotations

from hangwatch.facts.call_site import Site
from hangwatch.facts.differences.left_out import told_apart
from hangwatch.model import Frame
from tests.unit.simulator import SCRIPT


def test_calls_of_one_helper_are_told_apart_by_the_lines_that_call_it() -> None:
    critic, generator = (Site("all_reduce", ((SCRIPT, 9), (SCRIPT, line), (SCRIPT, 90))) for line in (52, 60))
    assert told_apart(critic, generator) == (Frame(SCRIPT, 52, ""), Frame(SCRIPT, 60, ""))


def test_calls_of_two_lines_are_told_apart_by_these() -> None:
    one, other = (Site("all_reduce", ((SCRIPT, line), (SCRIPT, 90))) for line in (9, 12))
    assert told_apart(one, other) == (Frame(SCRIPT, 9, ""), Frame(SCRIPT, 12, ""))


def test_a_path_of_which_fewer_lines_are_known_is_not_told_from_the_whole_one() -> None:
    """Of a rank that has ended, only its innermost line may be left."""
    whole, rest = Site("all_reduce", ((SCRIPT, 9), (SCRIPT, 52))), Site("all_reduce", ((SCRIPT, 9),))
    assert told_apart(whole, rest) is None
