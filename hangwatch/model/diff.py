"""How the ranks' histories differ: their calls in the same iteration, side by side."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangwatch.model.stack import Frame
from hangwatch.model.step import StepName


@dataclass(frozen=True)
class DiffCall:
    """One call as a lane made it."""

    op: str  # "all_reduce", "gradients" for those that backward issues
    group: str
    where: Frame | None  # the user's innermost line that led to it
    via: tuple[Frame, ...] = ()  # the user's outer lines that led to `where`, innermost first
    times: int = 1  # in a row: backward issues one for each bucket of gradients
    open: bool = False  # a rank of the lane has not returned from it
    caller: Frame | None = None  # the framework's function that made the call, where `where` only runs the framework


@dataclass(frozen=True)
class DiffRow:
    """One place in the order of calls: what each lane called there; None where a lane has no such call."""

    calls: tuple[DiffCall | None, ...]
    note: str = ""  # what is remarkable: missing, extra, mispaired


@dataclass(frozen=True)
class DiffIteration:
    """The rows of one iteration."""

    step: StepName
    rows: tuple[DiffRow, ...]


@dataclass(frozen=True)
class RanksDiff:
    """The ranks' recorded calls, aligned by call path, in the iterations in which they differ.

    `lanes` are the ranks whose calls are equal in these iterations. Of a large job some ranks only are compared:
    `compared` says how many.
    """

    lanes: tuple[tuple[int, ...], ...]
    compared: int
    iterations: tuple[DiffIteration, ...] = field(default=())
