"""Functions that ranks run for each other (torch's RPC): which wait for an answer, and what stands in its way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.case import Case, once
from hangwatch.model import ThreadStack
from hangwatch.ranks.thread_stacks import runs_users_code, waits_for_a_lock
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import UNRECORDED, Activity, Doing
from hangwatch.stacks.innermost import SHUTDOWN

_WAITS = {Doing.LOCK: "waits for other threads of its process", Doing.SLEEP: "sleeps", Doing.SOCKET: "waits for a peer"}
_SERVES = "/torch/distributed/rpc/internal.py"


@dataclass(frozen=True)
class Served:
    """A thread of a rank that runs a function for another one, in the program's own code."""

    view: RankView
    thread: Activity

    @property
    def asks(self) -> bool:
        """It waits for an answer in its turn."""
        return asks(self.thread)


@dataclass(frozen=True)
class Unanswered:
    """Where every rank waits in calls of RPC: those that ask in their main thread, and all functions that run."""

    asking: tuple[RankView, ...]
    served: tuple[Served, ...]

    @property
    def ends(self) -> tuple[Served, ...]:
        """The functions at which all these waits end: they wait for something else than an answer."""
        return tuple(each for each in self.served if not each.asks)

    @property
    def inside(self) -> frozenset[int]:
        """The ranks that wait for an answer, or run a function for another rank."""
        return frozenset(view.rank for view in (*self.asking, *(each.view for each in self.served)))


@once
def unanswered(case: Case) -> Unanswered | None:
    """None where a rank is on its way, or none waits for an answer."""
    found = Unanswered(
        tuple(view for view in case if asks(view.now) and view.steady),
        tuple(each for view in case for each in _served(view)),
    )
    waits = case.all_wait and not any(case.works(view) for view in case)
    asking = found.asking or any(each.asks for each in found.served)
    return found if waits and asking and any(map(_in_rpc, case)) else None


def left_early(case: Case, found: Unanswered) -> tuple[RankView, ...]:
    """The ranks that make no more calls: they stand in `rpc.shutdown`, and no function runs there for another one.

    None where no more than as many are inside a call, or a rank is at neither: which ranks were to make the call that
    is lacking is on no record then.
    """
    others = [view for view in case if view.rank not in found.inside]
    left = tuple(view for view in others if view.steady and view.now.op == SHUTDOWN)
    callers = found.inside - {each.view.rank for each in found.ends}
    return left if len(left) == len(others) and len(left) < len(callers) else ()


def asks(now: Activity) -> bool:
    return now.doing is Doing.REMOTE_CALL


def no_call_is_left(living: Sequence[RankView]) -> bool:
    """Each rank waits for others in calls of RPC, and what runs for these waits for other threads: none is left.

    Not where other threads of the program run beside them, which may bring it.
    """
    return any(map(_in_rpc, living)) and all(_is_inside(view) and _only_waits(view) for view in living)


def may_ask(case: Case) -> list[RankView]:
    """One rank of each line at which a rank sleeps in C code, where others are in calls of RPC.

    The wait for an answer (`rpc_async(...).wait()`) leaves no Python frame.
    """
    if not any(_in_rpc(view) or view.now.op == SHUTDOWN for view in case):
        return []
    asleep = (view for view in case if waits_for_a_lock(view.now, view.evidence.process) and view.steady)
    return list({view.where: view for view in asleep}.values())


def _in_rpc(view: RankView) -> bool:
    return asks(view.now) or bool(_served(view))


def _is_inside(view: RankView) -> bool:
    """By its stack, or it sleeps in C code for what its own process gives, as for an answer or a lock."""
    asleep = waits_for_a_lock(view.now, view.evidence.process)
    return view.steady and (view.now.doing in UNRECORDED or asleep)


def _only_waits(view: RankView) -> bool:
    served = [each.thread for each in _served(view)]
    pairs = zip(view.threads, view.evidence.stacks, strict=True)
    own = [thread for thread, stack in pairs if not stack.main and runs_users_code(stack)]
    waits = all(asks(thread) or thread.doing is Doing.LOCK for thread in served)
    return not view.works and waits and len(own) == len(served)


def _served(view: RankView) -> list[Served]:
    serving = [_serves(stack) for stack in view.evidence.stacks]
    if not any(serving):
        return []
    return [Served(view, thread) for thread, serves in zip(view.threads, serving, strict=True) if serves]


def _serves(stack: ThreadStack) -> bool:
    inside = not stack.main and any(frame.file.endswith(_SERVES) for frame in stack.frames)
    return inside and runs_users_code(stack)


def sentences(found: Unanswered) -> tuple[str, ...]:
    """`a thread of rank 0 that serves a call waits for other threads of its process (server.py:28)`."""
    return tuple(
        f"a thread of rank {each.view.rank} that runs a function for another rank {_waits(each)}"
        f"{words.at(each.thread.where)}"
        for each in found.served[: words.SHOWN]
    )


def _waits(served: Served) -> str:
    return "waits for the answer of a call in its turn" if served.asks else _WAITS.get(served.thread.doing, "stands")
