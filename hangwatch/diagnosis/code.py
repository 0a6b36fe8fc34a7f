"""One rank is behind and stands in code of the program, outside of every collective."""

from __future__ import annotations

from ..records import Certainty, Status
from ..stacks import Doing, Within
from . import words
from .case import Case, RankView
from .finding import Finding, Rule

IN_CODE = frozenset({Doing.CODE, Doing.LOCK, Doing.SOCKET, Doing.SLEEP, Doing.FILE_LOCK, Doing.PIPE, Doing.JOIN_CHILD})


def user_code_blocked(case: Case) -> Finding | None:
    """Somebody is awaited who stands in the program's own code: blocked, or in a loop."""
    awaited = [case.ranks[rank] for rank in sorted(case.awaited()) if rank in case.ranks]
    stuck = [view for view in awaited if view.now.doing in IN_CODE and not view.over and view.where is not None]
    if not stuck or len(stuck) != len(awaited):
        return None
    culprits = [view.rank for view in stuck]
    victims = case.victims(culprits)
    first = stuck[0]
    waiting = (
        f"{case.name(victims)} {words.verb(len(victims), 'waits', 'wait')} for {words.verb(len(stuck), 'it', 'them')}"
    )
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {words.verb(len(stuck), 'is', 'are')} stuck in"
        f" {first.where.function if first.where else '?'}{words.at(first.where)}: {how_stuck(first)};"
        f" {waiting}{words.at(case.usual_place(victims))}.",
        culprits=tuple(view.culprit() for view in stuck),
        victims=victims,
        step=first.step,
        evidence=tuple(sentence for view in stuck[: words.SHOWN] for sentence in _evidence(case, view)),
        status=_status(case, stuck),
        awaited=tuple(culprits),
    )


def _status(case: Case, stuck: list[RankView]) -> Status | None:
    """A loop that burns the processor looks like work for as long as the patience lasts."""
    if all(case.stalled([view.rank]) and not view.writing for view in stuck):
        return Status.HUNG
    return Status.WAITING


def how_stuck(view: RankView) -> str:
    """On what a rank is blocked, as far as the system or its frames say."""
    process = view.evidence.process
    if process is not None and process.blocked_on is not None:
        return f"it waits on {process.blocked_on.path}"
    if view.busy:
        return f"it runs without making progress ({view.cpu:.1f} s of processor time in the last second)"
    kind = {
        Doing.LOCK: "it waits for a lock or a queue",
        Doing.SOCKET: "it waits for a network peer",
        Doing.SLEEP: "it sleeps",
        Doing.FILE_LOCK: "it waits for a file lock",
        Doing.PIPE: "it writes to a file or a pipe",
        Doing.JOIN_CHILD: "it waits for a child process",
    }.get(view.now.doing)
    if kind is not None:
        return kind
    return "it waits and uses no processor time" if view.idle else "it does not come back"


def _evidence(case: Case, view: RankView) -> list[str]:
    found = [f"rank {view.rank} stands at {words.place(view.where)} and is in no collective"]
    if view.cpu is not None:
        found.append(f"its process used {view.cpu:.2f} s of processor time between two samples")
    if view.steady and not view.busy:
        found.append("two samples of its stack agree")
    if view.evidence.process is not None and view.evidence.process.system_call:
        found.append(f"its main thread is in the system call {view.evidence.process.system_call}")
    return found


def training(view: RankView) -> bool:
    """It stands inside torch's own machinery for forward, backward or the optimizer."""
    return bool(view.now.within & {Within.BACKWARD, Within.FORWARD, Within.OPTIMIZER})


RULES: tuple[Rule, ...] = (user_code_blocked,)
