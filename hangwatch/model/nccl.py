"""What NCCL itself says of the communicators of a job."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class NcclLaunched:
    """How many operations of one kind some ranks of a communicator have launched; `number` is how many ranks.

    `ranks` are ranks of the communicator; fewer than `number` where NCCL does not list them all.
    """

    op: str
    count: int
    number: int
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True)
class NcclCommunicator:
    """A communicator as NCCL's RAS threads tell of it. All ranks are those of the communicator.

    `members` are the job's ranks in that order, -1 where not known; empty where none is. `launched` are the kinds of
    operation of which the ranks have launched different numbers. `missing` did not answer their peers, `dead` are
    those among them that are given up. `errors` are by rank, in NCCL's words.
    """

    id: str
    size: int
    members: tuple[int, ...] = ()
    launched: tuple[NcclLaunched, ...] = ()
    missing: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    errors: dict[int, str] = field(default_factory=dict)
    initialising: tuple[int, ...] = ()
    aborted: tuple[int, ...] = ()


@dataclass(frozen=True)
class NcclView:
    """What NCCL itself says of the job's communicators, those without anything of note included in `communicators`."""

    version: str = ""
    communicators: int = 0
    of_note: tuple[NcclCommunicator, ...] = ()
    dead_processes: tuple[str, ...] = ()  # "process 4711 on node 10.0.0.2", in answers without lists of ranks
