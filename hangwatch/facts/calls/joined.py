"""Ranks that have run out of inputs, for which torch's `Join` makes DDP's calls, and calls that it does not make."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.facts.case import Case, once
from hangwatch.model import Collective
from hangwatch.ranks.joined import by_join
from hangwatch.ranks.ledger import Group
from hangwatch.stacks.frames import user_frame

_C10D = ("/distributed_c10d.py", "/c10d_logger.py")


@dataclass(frozen=True)
class JoinedTooEarly:
    """`ranks` stand in for DDP's calls since they ran out; `call` of the others is none, and is paired with one."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    group: Group
    call: Collective  # of the first of `others`
    stand_in: Collective  # of the first of `ranks`, under the same number


@once
def joined_too_early(case: Case) -> JoinedTooEarly | None:
    """The first call of the program's own that is paired with a call of Join; None where there is none on record."""
    for group in case.ledger.groups.values():
        joined = {rank: call for rank in group.members if (call := _first_of_join(case, rank, group)) is not None}
        others = tuple(rank for rank in group.members if rank not in joined)
        if joined and others and (found := _pair(case, group, tuple(joined), others)) is not None:
            return found
    return None


def _first_of_join(case: Case, rank: int, group: Group) -> Collective | None:
    return next((call for call in case.ledger.calls_in(rank, group.name) if by_join(call)), None)


def _called_directly(call: Collective) -> bool:
    """The user's line called the collective itself, and no module or optimizer of torch's."""
    where = user_frame(call.frames)
    depth = call.frames.index(where) if where is not None else 0
    return depth > 0 and call.frames[depth - 1].file.endswith(_C10D)


def _pair(case: Case, group: Group, ranks: tuple[int, ...], others: tuple[int, ...]) -> JoinedTooEarly | None:
    for call in sorted(case.ledger.calls_in(others[0], group.name), key=lambda each: each.seq):
        stand_in = case.ledger.call(ranks[0], group.name, call.seq) if _called_directly(call) else None
        if stand_in is not None and by_join(stand_in):
            return JoinedTooEarly(ranks, others, group, call, stand_in)
    return None
