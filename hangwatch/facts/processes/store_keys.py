"""The key of a store for which ranks wait, by the user's source, and what it says of the lines that set that key."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.call_site import comes_before
from hangwatch.facts.case import Case
from hangwatch.model import Frame, StoreKey
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import of_origin


def shared_key(case: Case, views: Iterable[RankView]) -> StoreKey | None:
    """The key for which all of `views` wait; None where they wait for several, or the source does not show it."""
    found = [_key_of(case, view) for view in views]
    return found[0] if found and len({each.key if each is not None else "" for each in found}) == 1 else None


def _key_of(case: Case, view: RankView) -> StoreKey | None:
    own = of_origin(view.evidence.main_stack, "user")
    return next((each for each in case.snapshot.store_keys if each.frames == own), None)


def setting_rank(case: Case, key: StoreKey) -> int | None:
    """The one rank that comes to the lines that set the key, by their conditions; None where that is not known."""
    ranks = {each.rank for each in key.setters}
    rank = ranks.pop() if len(ranks) == 1 else None
    return rank if rank in case.ranks else None


def who_sets(case: Case, key: StoreKey) -> str:
    """`by the source only rank 0 sets it (train.py:13), and is on a later line by now (train.py:32)`, or ""."""
    if not key.setters:
        return ""
    first, more = key.setters[0], len(key.setters) > 1
    rank = setting_rank(case, key)
    under = next((f", under `{each.text}`" for each in reversed(first.conditions) if each.asks != "rank"), "")
    where = f"{words.at(first.where)}{' and elsewhere' if more else under}"
    if rank is None:
        return f"by the source it is set at {words.place(first.where)}{' and elsewhere' if more else ''}"
    view = case.ranks[rank]
    later = f", and is on a later line by now{words.at(view.where)}" if _is_past(view, key) else ""
    return f"by the source only {case.name([rank])} sets it{where}{later}"


def _is_past(view: RankView, key: StoreKey) -> bool:
    """It stands behind all lines that set the key, and no loop leads it back to one."""
    return view.now.in_loop is not None and all(_is_behind(view, each.frames) for each in key.setters)


def _is_behind(view: RankView, line: tuple[Frame, ...]) -> bool:
    """`line` leaves by an earlier line the innermost function that both come through, and the rank in no loop there.

    A loop that begins after that line does not lead back to it; nor does one of a function that is called behind it.
    """
    stands = of_origin(view.evidence.main_stack, "user")
    if not comes_before(tuple(each.source_line for each in line), tuple(each.source_line for each in stands)):
        return False
    apart = next(pair for pair in zip(reversed(line), reversed(stands), strict=False) if pair[0].line != pair[1].line)
    inside = {each.scope for each in stands[: stands.index(apart[1])]} - {apart[0].scope}
    loop = view.now.loop
    loops = (loop.where, *loop.outer) if loop is not None else ()
    after = (each for each in loops if each.scope not in inside)
    return all(each.scope == apart[0].scope and each.line > apart[0].line for each in after)


def key_evidence(case: Case, key: StoreKey) -> tuple[str, ...]:
    """Under which conditions the lines set the key, and whether an error may keep a rank from them unseen."""
    if not key.setters:
        return (f"no line in the program's files sets a key by the name {key.key!r}",)
    found = []
    for setter in key.setters[: words.SHOWN]:
        under = words.listed(f"`{each.text}`{words.at(each.where)}" for each in setter.conditions)
        found.append(f"{key.key!r} is set at {words.place(setter.where)}{f', under {under}' if under else ''}")
        if setter.swallows is not None and setter.tries is not None:
            found.append(
                f"an error from line {setter.tries.line} on is caught at {words.place(setter.swallows)}: the program"
                " goes on without that key then"
            )
    return tuple(found)
