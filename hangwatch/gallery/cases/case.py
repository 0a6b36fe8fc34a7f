"""One row of the gallery's table: a script, how it is started, and what should be said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Launcher = Literal["torchrun", "spawn", "plain"]
Process = Literal["rank", "loader-worker", "launcher", "other"]
Status = Literal["hung", "lingering", "failed", "waiting", "warned"]
Culprits = Callable[[int, int], tuple[int, ...]]


def chosen(culprit: int, ranks: int) -> tuple[int, ...]:
    """The rank that was chosen with --culprit."""
    return (culprit,)


def no_rank(culprit: int, ranks: int) -> tuple[int, ...]:
    """No rank is to blame."""
    return ()


def every_rank(culprit: int, ranks: int) -> tuple[int, ...]:
    """All ranks take part in the fault alike."""
    return tuple(range(ranks))


def odd_one_out(culprit: int, ranks: int) -> tuple[int, ...]:
    """The chosen rank; of two ranks that disagree, neither is the odd one."""
    return (culprit,) if ranks > 2 else (0, 1)


def off_the_master(culprit: int, ranks: int) -> tuple[int, ...]:
    """The chosen rank; of two ranks always rank 1, since the rendezvous is where rank 0 listens."""
    return (culprit,) if ranks > 2 else (1,)


def the_first(culprit: int, ranks: int) -> tuple[int, ...]:
    """Rank 0, which serves the chosen one."""
    return (0,)


def last(culprit: int, ranks: int) -> tuple[int, ...]:
    """The rank with the highest number."""
    return (ranks - 1,)


def all_but_last(culprit: int, ranks: int) -> tuple[int, ...]:
    """All ranks but the one with the highest number."""
    return tuple(range(ranks - 1))


@dataclass(frozen=True, slots=True)
class Case:
    """One way to start one script, and the verdict that should follow.

    Attributes:
        name: Unique name of the case.
        cause: Id of the cause in the catalogue.
        script: File name in this directory.
        variant: A sentence that says what this case does, where several cases run one script.
        args: Arguments of the faulty run.
        healthy_args: Arguments of the look-alike that must finish; empty where there is none.
        ranks: Default world size; `min_ranks` is the smallest that shows the fault.
        launcher: How the ranks are started.
        launch: Further arguments of the launcher. `{culprit}`, `{port}` and the like are filled in.
        healthy_launch: The same for the look-alike, if it differs.
        culprit: The rank chosen by default; None where no rank can be chosen.
        immune: Ranks that cannot be chosen.
        culprits: From the chosen rank and the world size to the ranks that the verdict should name.
        process: What kind of process is to blame.
        status: Status of the incident that should be opened ("warned": a warning, and no incident).
        step: (epoch, batch) of the fault, counted from 0; None in place of what is unknown.
        where: Function of the script, unqualified, in which the culprit's thread is found; empty where there is none.
        needs: What the machine must offer: "root", "namespaces", "iproute2".
        after: Seconds after the start at which the hang has certainly come, imports included.
        backend: torch's backend, or the stand-in for NCCL, which needs a C compiler.
    """

    name: str
    cause: str
    script: str
    variant: str = ""
    args: tuple[str, ...] = ()
    healthy_args: tuple[str, ...] = ("--healthy",)
    ranks: int = 2
    min_ranks: int = 2
    launcher: Launcher = "torchrun"
    launch: tuple[str, ...] = ()
    healthy_launch: tuple[str, ...] | None = None
    culprit: int | None = 1
    immune: tuple[int, ...] = ()
    culprits: Culprits = chosen
    process: Process = "rank"
    status: Status = "hung"
    step: tuple[int | None, int | None] | None = None
    where: str = ""
    needs: tuple[str, ...] = ()
    after: float = 12.0
    backend: Literal["gloo", "nccl_standin"] = "gloo"
