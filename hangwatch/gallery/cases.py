"""The table of the gallery: which script shows which cause, how to start it, what should be said of it."""

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


def nobody(culprit: int, ranks: int) -> tuple[int, ...]:
    """No rank is to blame."""
    return ()


def everyone(culprit: int, ranks: int) -> tuple[int, ...]:
    """All ranks take part in the fault alike."""
    return tuple(range(ranks))


def last(culprit: int, ranks: int) -> tuple[int, ...]:
    """The rank with the highest number."""
    return (ranks - 1,)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to start one script, and the verdict that should follow.

    Attributes:
        name: Unique name of the case.
        cause: Id of the cause in the catalogue.
        script: File name in this directory.
        args: Arguments of the faulty run.
        healthy_args: Arguments of the look-alike that must finish; empty where there is none.
        ranks: Default world size; `min_ranks` is the smallest that shows the fault.
        launcher: How the ranks are started.
        launch: Further arguments of the launcher. `{culprit}`, `{port}` and `{ranks}` are filled in.
        healthy_launch: The same for the look-alike, if it differs.
        culprit: The rank chosen by default; None where no rank can be chosen.
        culprits: From the chosen rank and the world size to the ranks that the verdict should name.
        process: What kind of process is to blame.
        status: Status of the incident that should be opened ("warned": a warning, and no incident).
        step: (epoch, batch) of the fault, counted from 0; None in place of what is unknown.
        where: Function in which the culprit's thread is found; empty where there is none.
        needs: What the machine must offer: "root", "namespaces", "iproute2".
        after: Seconds after the start at which the hang has certainly come, imports included.
    """

    name: str
    cause: str
    script: str
    args: tuple[str, ...] = ()
    healthy_args: tuple[str, ...] = ("--healthy",)
    ranks: int = 2
    min_ranks: int = 2
    launcher: Launcher = "torchrun"
    launch: tuple[str, ...] = ()
    healthy_launch: tuple[str, ...] | None = None
    culprit: int | None = 1
    culprits: Culprits = chosen
    process: Process = "rank"
    status: Status = "hung"
    step: tuple[int | None, int | None] | None = None
    where: str = ""
    needs: tuple[str, ...] = ()
    after: float = 12.0


EXIT = (
    Case(
        name="exit-heartbeat-thread",
        cause="exit-non-daemon-thread",
        script="exit_non_daemon_thread.py",
        status="lingering",
        where="beat",
    ),
    Case(
        name="exit-writer-thread",
        cause="exit-non-daemon-thread",
        script="exit_writer_thread.py",
        launcher="spawn",
        status="lingering",
        where="drain",
    ),
)

COLLECTIVES = (
    Case(
        name="uneven-steps",
        cause="uneven-steps",
        script="uneven_steps.py",
        step=(0, 120),
        where="main",
    ),
    Case(
        name="uneven-steps-iterable",
        cause="uneven-steps",
        script="uneven_steps_iterable.py",
        ranks=4,
        culprit=2,
        step=(0, 96),
        where="main",
    ),
    Case(
        name="uneven-steps-late",
        cause="uneven-steps",
        script="uneven_steps_late.py",
        step=(0, 60),
        where="main",
    ),
    Case(
        name="uneven-steps-trainer",
        cause="uneven-steps",
        script="uneven_steps_trainer.py",
        launcher="spawn",
        step=(0, 80),
        where="finish_epoch",
    ),
    Case(
        name="rank-frozen",
        cause="rank-frozen",
        script="rank_frozen.py",
        step=(0, 100),
        where="main",
    ),
    Case(
        name="blocked-on-socket",
        cause="user-code-blocked",
        script="user_code_blocked.py",
        step=(0, 100),
        where="push_metrics",
    ),
    Case(
        name="blocked-on-lock",
        cause="user-code-blocked",
        script="user_code_lock.py",
        ranks=4,
        culprit=3,
        step=(0, 80),
        where="add",
    ),
    Case(
        name="blocked-on-file-lock",
        cause="user-code-blocked",
        script="user_code_flock.py",
        launcher="plain",
        step=(0, 100),
        where="append_row",
    ),
    Case(
        name="busy-loop",
        cause="user-code-blocked",
        script="user_code_loop.py",
        status="waiting",
        step=(0, 100),
        where="project",
    ),
)

CASES: tuple[Case, ...] = (*COLLECTIVES, *EXIT)
