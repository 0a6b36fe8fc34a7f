"""What speaks for calls being one too many, and not for the others having left them out."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch import words
from hangwatch.facts.call_site import Path, path, same
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.skip_paths import asked_for_the_rank, condition, own_condition, rank_check
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Bypass, Collective, Frame
from hangwatch.ranks.sides import spread

_TURNS_BACK = re.compile(r": (return|continue|break|raise)\b")
_COMPOUND = re.compile(r"\b(and|or)\b")


def alone_at(case: Case, what: str, where: str, who: str = "rank") -> Witness:
    """No other rank has ever made such a call there, as far as known; `what` is "a collective" or its name.

    `who` narrows it to the members of a group.
    """
    known = len(case.ranks) == case.size and all(view.reading is not None for view in case)
    whole = known and all(sites_of(case).remembers(rank) for rank in spread(case.ranks))
    recorded = "" if whole else "as far as recorded, "
    return Witness(Kind.PLACE, f"{recorded}no other {who} has ever called {what} {where}")


def most_or_the_source(
    case: Case, call: Collective, makers: Sequence[int], others: Sequence[int]
) -> tuple[Witness, ...]:
    """Most ranks made no such call, or the source asks for the rank before it."""
    heard = []
    if len(makers) < len(others):
        heard.append(Witness(Kind.MAJORITY, f"most ranks made no such call: {case.name(others)}"))
    if (guard := rank_check(case, path(call.frames))) is not None:
        heard.append(Witness(Kind.SOURCE, asked_for_the_rank(guard)))
    return tuple(heard)


def is_guarded(case: Case, alone: Sequence[int]) -> bool:
    """The source leads to where they stand under a condition on the rank, and no other rank has called there."""
    return case.ranks[alone[0]].now.guard == "rank" and not _steps_of_others(case, alone)


def condition_of(case: Case, rank: int, lines: Path) -> Bypass | None:
    """The condition by which a rank came to its call by these lines, where the source shows which one it is."""
    found = rank_check(case, lines)
    return found if found is not None or case.ranks[rank].now.guard == "rank" else own_condition(case, lines)


def only_by_rank(where: Frame | None) -> Witness:
    """The source leads to `where` by a condition on the rank alone."""
    return Witness(Kind.SOURCE, f"the source leads to {words.place(where)} only under a condition on the rank")


def behind(way: Bypass | None) -> str:
    """`: it is behind `if rank == 0` (train.py:86)`, the line to look at; "" where the source does not show it."""
    return f": it is behind {condition(way)}" if way is not None else ""


def call_on_every_rank(way: Bypass | None, *, through_ddp: bool = False) -> str:
    """What to do about a call that stands behind a condition; "" for the usual words."""
    if through_ddp:
        return "evaluate with model.module: the DDP wrapper broadcasts its buffers in forward"
    if way is None:
        return ""
    if way.asks == "rank" and way.text.startswith("@"):
        return (
            f"make that call on every rank: take it out of the function below `{way.text}` ({words.place(way.where)})"
        )
    if way.asks == "rank":
        return f"make that call on every rank: {_past_the_check(way)}"
    return (
        f"let all ranks answer the condition at {words.place(way.where)} alike: reduce or broadcast what it asks for"
        " before it; or make that call on every rank"
    )


def _past_the_check(way: Bypass) -> str:
    """Where else than the rank a condition asks for something, that has to stay."""
    place = words.place(way.where)
    if (turned := _TURNS_BACK.search(way.text)) is not None:
        return f"put the `{turned[1]}` at {place} behind it"
    if _COMPOUND.search(way.text):
        return f"take the check of the rank alone out of the condition at {place}, and keep the rest"
    return f"take it out of the condition at {place}"


def do_not_call(case: Case, alone: Sequence[int], *, inside: bool) -> str:
    """Only a check of the rank says that the others never come there: on another condition they may yet."""
    if is_guarded(case, alone):
        return "never call"
    steps = _steps_of_others(case, alone)
    if inside and case.ranks[alone[0]].step.step in steps:
        return "called less often in that step"
    now = " in that step" if steps else ""
    return f"have not called{now}" if inside else f"did not call{now}"


def _steps_of_others(case: Case, alone: Sequence[int]) -> set[int]:
    """The steps in which another rank has called from where they stand."""
    sites = sites_of(case)
    now, others = sites.now(alone[0]), (rank for rank in case.ranks if rank not in alone)
    if now is None:
        return set()
    made = (each for rank in spread(others) for each in sites.by_step(rank).items())
    return {step for step, places in made if any(same(now, place) for place in places)}
