"""What all records of a job tell of the calls of one kind: what one of them lacks is not compared."""

from __future__ import annotations

from dataclasses import dataclass

from .matching import Shape, kind_of, shape
from .model import Queues


@dataclass(slots=True)
class Told:
    """What all records tell of the calls of one kind: what one lacks is not compared."""

    given: bool = True
    made: bool = True
    typed: bool = True

    def narrow(self, one: Shape) -> None:
        self.given &= one.given is not None
        self.made &= one.made is not None
        self.typed &= bool(one.dtypes)

    def of(self, one: Shape) -> Shape:
        return Shape(
            one.kind,
            one.given if self.given else None,
            one.made if self.made else None,
            one.dtypes if self.typed else "",
        )


def told_by_all(queues: Queues) -> dict[str, Told]:
    found: dict[str, Told] = {}
    for call in queues.calls:
        found.setdefault(kind_of(call), Told()).narrow(shape(call))
    return found


def is_sited(queues: Queues) -> bool:
    """Whether call sites can be compared: a rank whose record has none at all differs in them from no other rank.

    Unless it tells that its calls came from no line, as those of backward do, and no rank made such calls from one.
    """
    made: dict[int, set[int]] = {}
    for _, lane in queues.lanes():
        if len(lane):
            made.setdefault(lane.rank, set()).update(lane.calls)
    with_lines = {shape(call) for call in queues.calls if call.frames}
    bare = [calls for calls in made.values() if not any(queues.calls[index].frames for index in calls)]
    told = [queues.calls[index] for calls in bare for index in calls]
    return len(bare) < len(made) and all(call.traced and shape(call) not in with_lines for call in told)
