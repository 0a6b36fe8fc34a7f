"""Calls whose order, root or kind follows from a hash, which each process computes with a seed of its own."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.facts.call_site import Path
from hangwatch.facts.case import Case, once
from hangwatch.model import Hashed

_SEED = "PYTHONHASHSEED"


def by_hash(case: Case, ways: Iterable[Path]) -> Hashed | None:
    """The one line that decides by a hash on the way to all calls to which these lines lead, if there is one."""
    known = _known(case)
    found = {known.get(lines) for lines in ways}
    return found.pop() if len(found) == 1 else None


@once
def _known(case: Case) -> dict[Path, Hashed]:
    seeds = {view.evidence.board_settings.get(_SEED, "random") for view in case}
    if len(seeds) == 1 and "random" not in seeds:
        return {}
    return {each.lines: each.hashed for each in case.snapshot.call_sites if each.hashed is not None}
