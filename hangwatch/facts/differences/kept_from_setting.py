"""The error that kept a rank from setting the key of a store for which the other ranks wait, by record and source."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.facts.differences.caught_errors import all_caught
from hangwatch.facts.processes.own_code import awaited_views
from hangwatch.facts.processes.store_keys import setting_rank, shared_key
from hangwatch.facts.processes.store_waits import awaits_key, store_ports
from hangwatch.model import ExceptionFacts, KeySetter, StoreKey
from hangwatch.ranks.view import RankView


@dataclass(frozen=True)
class KeptFromSetting:
    """`error`, which `rank` caught, kept it from the only line that sets the key for which `waiting` wait."""

    rank: int
    error: ExceptionFacts
    key: StoreKey
    setter: KeySetter
    waiting: tuple[int, ...]


@once
def kept_from_setting(case: Case) -> KeptFromSetting | None:
    """The rank that caught an error on its way to the only line that sets the awaited key, and waits for the others.

    A key that varies is none: the error may belong to another turn, for which the key was set later.
    """
    views = awaited_views(case)
    ports = store_ports(case) if views else frozenset[str]()
    key = shared_key(case, views) if all(awaits_key(view, ports) for view in views) else None
    if key is None or len(key.setters) != 1 or "{}" in key.key:
        return None
    setter = key.setters[0]
    waiting = {view.rank for view in views}
    rank = setting_rank(case, key)
    candidates = [case.ranks[rank]] if rank is not None else [view for view in case if view.rank not in waiting]
    found = [
        (view.rank, error)
        for view in candidates
        if view.rank in case.blocked and not _inside(view, setter)
        for error in all_caught(view)
        if _before(error, setter)
    ]
    return KeptFromSetting(*found[-1], key, setter, tuple(sorted(waiting))) if len({r for r, _ in found}) == 1 else None


def _inside(view: RankView, setter: KeySetter) -> bool:
    """It still is in what the except clause is for, and may come to the line."""
    tries, clause = setter.tries, setter.swallows
    return any(
        tries is not None
        and clause is not None
        and frame.scope == tries.scope
        and tries.line <= frame.line < clause.line
        for frame in view.evidence.main_stack
    )


def _before(error: ExceptionFacts, setter: KeySetter) -> bool:
    """It came between the first line of the `try` and the line that sets the key, or leads there."""
    tries = setter.tries
    if tries is None or setter.swallows is None:
        return False
    way = next((frame for frame in setter.frames if frame.scope == tries.scope), None)
    inside = (frame for frame in error.frames if frame.scope == tries.scope)
    return way is not None and any(tries.line <= frame.line <= way.line for frame in inside)
