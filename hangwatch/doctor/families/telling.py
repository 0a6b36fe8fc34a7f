"""How a check is made, and what several families ask."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from hangwatch.doctor.model import Check, RankFacts, Stage, State
from hangwatch.report.words import ranks as named

__all__ = ["between_hosts", "differing", "fail", "groups", "named", "ok", "skip", "stage", "warn"]


def ok(family: str, name: str, found: str, details: Iterable[str] = ()) -> Check:
    return Check(family, name, State.OK, found, details=tuple(details))


def skip(family: str, name: str, found: str) -> Check:
    return Check(family, name, State.SKIP, found)


def warn(
    family: str, name: str, found: str, advice: str, about: Iterable[int] = (), details: Iterable[str] = ()
) -> Check:
    return Check(family, name, State.WARN, found, advice, tuple(sorted(set(about))), tuple(details))


def fail(
    family: str, name: str, found: str, advice: str, about: Iterable[int] = (), details: Iterable[str] = ()
) -> Check:
    return Check(family, name, State.FAIL, found, advice, tuple(sorted(set(about))), tuple(details))


def groups(ranks: Iterable[RankFacts], of: Callable[[RankFacts], Hashable]) -> dict[Hashable, list[int]]:
    """The ranks by what they have in common, the largest group first."""
    found: dict[Hashable, list[int]] = {}
    for each in ranks:
        found.setdefault(of(each), []).append(each.rank)
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def differing(values: dict[Hashable, list[int]], most: int = 4) -> str:
    """2.13.0 on ranks 0-2, 2.12.1 on rank 3."""
    shown = [f"{value if value not in ('', None) else 'none'} on {named(ranks)}" for value, ranks in values.items()]
    return ", ".join(shown[:most]) + (f", and {len(shown) - most} more" if len(shown) > most else "")


def minority(values: dict[Hashable, list[int]]) -> list[int]:
    """The ranks that are not in the largest group."""
    return [rank for ranks in list(values.values())[1:] for rank in ranks]


def stage(rank: RankFacts, name: str) -> Stage | None:
    return next((each for each in rank.stages if each.name == name), None)


def between_hosts(ranks: Sequence[RankFacts]) -> bool:
    return len({each.host for each in ranks}) > 1
