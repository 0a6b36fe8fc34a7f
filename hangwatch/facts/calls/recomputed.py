"""Collectives that gradient checkpointing makes once more in the backward, where it repeats a part of the forward."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from hangwatch.facts.call_site import in_backward, path
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Frame
from hangwatch.ranks.sides import by_value, spread
from hangwatch.stacks.frames import origin, user_frame

_CHECKPOINT = "/torch/utils/checkpoint.py"


@dataclass(frozen=True)
class Recomputed:
    """`ranks` repeat `call`; `others` have come to the same lines, and repeat none. `where` asks for checkpointing."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    call: Collective
    where: Frame | None

    @property
    def line(self) -> Frame | None:
        return user_frame(self.call.frames)


@once
def recomputed_alone(case: Case) -> Recomputed | None:
    """Some ranks repeat calls in their backward, and the others none of them."""
    sides = _sides(case)
    found, others = (tuple(sorted(sides.get(repeats, ()))) for repeats in (True, False))
    call = _repeated(case, found[0]) if found and others else None
    if call is None:
        return None
    line = path(call.frames)[:1]
    made_too = all(any(path(each.frames)[:1] == line for each in _calls(case, rank)) for rank in spread(others))
    return Recomputed(found, others, call, _asked(case, found[0])) if made_too else None


def _sides(case: Case) -> dict[bool, list[int]]:
    """The ranks by whether they repeat calls; none where some that stand at one line do, and others there do not.

    Of many ranks at one line a few are asked: each has thousands of calls.
    """
    sides: dict[bool, list[int]] = {}
    for ranks in by_value({view.rank: view.where for view in case}).values():
        asked = {rank: _repeated(case, rank) is not None for rank in spread(ranks)}
        if len(asked) < len(ranks) and len(set(asked.values())) > 1:
            return {}
        for rank in ranks:
            sides.setdefault(asked.get(rank, asked[ranks[0]]), []).append(rank)
    return sides


def _calls(case: Case, rank: int) -> Iterable[Collective]:
    return case.ledger.calls(rank).values()


def _repeated(case: Case, rank: int) -> Collective | None:
    calls = _calls(case, rank)
    return next((call for call in calls if _below_checkpoint(call) and in_backward(call)), None)


def _below_checkpoint(call: Collective) -> bool:
    return any(frame.file.endswith(_CHECKPOINT) for frame in call.frames)


def _asked(case: Case, rank: int) -> Frame | None:
    """The user's line that ran a part of the forward by checkpoint()."""
    made = next((call for call in _calls(case, rank) if _below_checkpoint(call) and not in_backward(call)), None)
    if made is None:
        return None
    inside = list(takewhile(lambda frame: not frame.file.endswith(_CHECKPOINT), made.frames))
    return next((frame for frame in made.frames[len(inside) :] if origin(frame.file) == "user"), None)
