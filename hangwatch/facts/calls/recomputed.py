"""Collectives that gradient checkpointing makes once more in the backward, where it repeats a part of the forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from hangwatch.facts.call_site import in_backward, path
from hangwatch.facts.case import Case, once
from hangwatch.model import Collective, Frame
from hangwatch.ranks.sides import spread
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
    found = {rank: call for rank in case.ranks if (call := _repeated(case, rank)) is not None}
    others = tuple(rank for rank in case.ranks if rank not in found)
    if not found or not others:
        return None
    call = found[min(found)]
    line = path(call.frames)[:1]
    made_too = all(any(path(each.frames)[:1] == line for each in _calls(case, rank)) for rank in spread(others))
    return Recomputed(tuple(sorted(found)), others, call, _asked(case, min(found))) if made_too else None


def _calls(case: Case, rank: int) -> Sequence[Collective]:
    return tuple(case.ledger.calls(rank).values())


def _repeated(case: Case, rank: int) -> Collective | None:
    calls = _calls(case, rank)
    return next((call for call in calls if in_backward(call) and _below_checkpoint(call)), None)


def _below_checkpoint(call: Collective) -> bool:
    return any(frame.file.endswith(_CHECKPOINT) for frame in call.frames)


def _asked(case: Case, rank: int) -> Frame | None:
    """The user's line that ran a part of the forward by checkpoint()."""
    made = next((call for call in _calls(case, rank) if _below_checkpoint(call) and not in_backward(call)), None)
    if made is None:
        return None
    inside = list(takewhile(lambda frame: not frame.file.endswith(_CHECKPOINT), made.frames))
    return next((frame for frame in made.frames[len(inside) :] if origin(frame.file) == "user"), None)
