"""What the diagnosis says: the verdict, its culprits, and warnings of a running job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hangwatch.model.diff import RanksDiff
from hangwatch.model.evidence import Excerpt
from hangwatch.model.stack import Frame
from hangwatch.model.step import StepName
from hangwatch.model.terms import Certainty, Stage, Status


@dataclass(frozen=True)
class Culprit:
    """A process to blame. `where` is the user's own line if known, `excerpt` that line with its surroundings."""

    rank: int | None
    pid: int | None = None
    host: str = ""
    process: str = "rank"  # rank | loader-worker | launcher | other
    where: Frame | None = None
    excerpt: Excerpt | None = None


def ranks_of(culprits: Iterable[Culprit]) -> tuple[int, ...]:
    """The ranks at fault, or whose processes are, in the order of `culprits`."""
    return tuple(culprit.rank for culprit in culprits if culprit.rank is not None)


@dataclass(frozen=True)
class Alternative:
    """A cause that was weighed and not chosen."""

    cause: str
    certainty: Certainty
    why_not: str  # what speaks against it; of an open one what may make it the cause
    open: bool = False  # nothing excludes it: it may be the cause as well


@dataclass(frozen=True)
class Wait:
    """One edge of the wait-for graph: `rank` waits for `awaited` in `what`."""

    rank: int
    awaited: tuple[int, ...]
    what: str  # "all_reduce 12 of group 0", "batch from loader worker 3", ...
    where: Frame | None = None
    also: tuple[int, ...] = ()  # further ranks that wait alike, so that thousands need one edge

    @property
    def waiting(self) -> tuple[int, ...]:
        """All ranks that the edge stands for."""
        return (self.rank, *self.also)


@dataclass(frozen=True)
class ChainEnd:
    """Where a chain of waits leaves the ranks: `rank`, which is blamed, waits for no rank."""

    rank: int
    does: str  # a predicate: "waits (train.py:60) for loader worker 0 (pid 88), which sleeps ...", "has ended"
    awaits: str = ""  # the process, thread or lock that it waits for: "loader worker 0"; "" where it waits for none
    pid: int | None = None  # of that process, or of the one that holds the lock
    where: Frame | None = None  # the user's line where the rank stands
    also: tuple[int, ...] = ()  # further ranks of which the same is true

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks that the end stands for."""
        return (self.rank, *self.also)


@dataclass(frozen=True)
class Verdict:
    """The two answers. `summary` is one sentence for a person; `culprits` is empty where no rank is to blame.

    *Is the job dead?* `hang` is PROVEN where no rank that is left can ever move, LIKELY where patience ran out, and
    None where the job is not called hung; `argument` says why, in sentences. *Whose fault, and why?* `certainty` is
    that of `cause` and `culprits`. The first never lends its word to the second.
    """

    cause: str
    certainty: Certainty
    summary: str
    fix: str = ""
    docs: str = ""
    culprits: tuple[Culprit, ...] = ()
    victims: tuple[int, ...] = ()
    step: StepName = field(default_factory=StepName)
    evidence: tuple[str, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    waits: tuple[Wait, ...] = ()  # the shortest chain from victims to culprits, and what these wait for themselves
    details: tuple[str, ...] = ()  # further sentences for the terminal: which ranks wait where
    hang: Certainty | None = None
    argument: tuple[str, ...] = ()  # why the job is dead: the waits, and the conditions that were checked
    diff: RanksDiff | None = None  # how the ranks' recorded calls differ; None where they do not, as far as recorded
    ends: tuple[ChainEnd, ...] = ()  # what culprits do, or wait for, that wait for no rank; older reports have none

    @property
    def blamed(self) -> tuple[int, ...]:
        """The ranks at fault, or whose processes are."""
        return ranks_of(self.culprits)


@dataclass(frozen=True)
class Judgement:
    """What `diagnose` returns: the verdict, the job's state and the stage in which it stopped."""

    status: Status
    stage: Stage
    verdict: Verdict
