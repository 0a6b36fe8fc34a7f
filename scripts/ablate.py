"""Which rules decide what: `python -m scripts.ablate [--world N] [--seed S]`.

Each kept report of tests/judged/, and each of N simulated jobs, is judged with all rules, and then without each of
those that found something there. A line for each rule says how often it found something, and how many verdicts are no
longer right without it, or only then. A rule that decides nothing may be deleted, where no kind of cause is left to it
alone: neither the reports nor the simulated jobs show every kind.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from unittest.mock import patch

from hangwatch import judge
from hangwatch.judge import as_they_stood, diagnose, histories
from hangwatch.judge.order import ORDER
from hangwatch.model import Judgement, Snapshot
from hangwatch.report.incident import snapshot_of
from hangwatch.rules.finding import Finding, Rule
from hangwatch.world.score import Outcome, outcome
from hangwatch.world.world import Played, play
from scripts import judged

TABLES = (ORDER, histories.HISTORIES, histories.CALLS)
RULES = tuple(dict.fromkeys(rule for table in TABLES for rule in table))
IsRight = Callable[[Judgement], bool]


@dataclass
class Count:
    """In how many jobs a rule found something, was needed for the right verdict, or was in its way."""

    found: int = 0
    needed: list[str] = field(default_factory=list)  # names of jobs
    in_the_way: int = 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="judge without each rule in turn")
    parser.add_argument("--world", type=int, default=0, metavar="N", help="also N simulated jobs (0)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="the first of them (0)")
    given = parser.parse_args(arguments)
    counts = {rule: Count() for rule in RULES}
    for name, snapshot, is_right in chain(_reports(), _simulated(given.seed, given.world)):
        _without_each(name, snapshot, is_right, counts)
    for rule, count in sorted(counts.items(), key=lambda item: (len(item[1].needed), item[1].found)):
        does = f"found {count.found}, needed {len(count.needed)}, in the way {count.in_the_way}"
        print(f"{named(rule)}: {does}", *count.needed[:3])
    return 0


def named(rule: Rule) -> str:
    """`step.rank_frozen.rank_frozen`"""
    return f"{rule.__module__.removeprefix('hangwatch.rules.')}.{rule.__name__}"


def _reports() -> Iterator[tuple[str, Snapshot, IsRight]]:
    for truth in judged.truths():
        yield truth.name, snapshot_of([judged.incident(truth.name)]), partial(_is_told, truth)


def _is_told(truth: judged.Truth, judgement: Judgement) -> bool:
    return judgement.verdict.cause in truth.causes and {*judgement.verdict.blamed} == {*truth.ranks}


def _simulated(first: int, count: int) -> Iterator[tuple[str, Snapshot, IsRight]]:
    for seed in range(first, first + count):
        played = play(seed)
        yield f"seed {seed}", played.snapshot, partial(_is_right, played)


def _is_right(played: Played, judgement: Judgement) -> bool:
    return outcome(played, judgement) is Outcome.RIGHT


def _without_each(name: str, snapshot: Snapshot, is_right: IsRight, counts: dict[Rule, Count]) -> None:
    found = set[Rule]()
    with _rules(lambda rule: _noting(rule, found)):
        right = is_right(diagnose(snapshot))
    for rule in found:
        counts[rule].found += 1
        with _rules(partial(_but, rule)):
            right_without = is_right(diagnose(snapshot))
        if right and not right_without:
            counts[rule].needed.append(name)
        counts[rule].in_the_way += right_without and not right


def _but(left_out: Rule, rule: Rule) -> Rule | None:
    return None if rule is left_out else rule


def _noting(rule: Rule, found: set[Rule]) -> Rule:
    def asked(case: judge.Case) -> Finding | None:
        finding = rule(case)
        if finding is not None:
            found.add(rule)
        return finding

    # By these a cause finds the rules that explain it.
    asked.__module__, asked.__name__ = rule.__module__, rule.__name__
    return asked


@contextmanager
def _rules(changed: Callable[[Rule], Rule | None]) -> Iterator[None]:
    """The judge asks `changed(rule)` for each rule, or leaves it out where that is None."""
    order, told, calls = (tuple(other for rule in table if (other := changed(rule)) is not None) for table in TABLES)
    with patch.object(judge, "ORDER", order), patch.multiple(as_they_stood, HISTORIES=told, CALLS=calls):
        yield


if __name__ == "__main__":
    sys.exit(main())
