"""A process that is gone or frozen, and exceptions: what the system itself says comes before any counting."""

from __future__ import annotations

import re
import signal
from enum import IntEnum

from ..frames import origin, user_frame
from ..records import Certainty, Frame, Phase, ProcessFacts, Status
from . import words
from .aborts import CONSEQUENCE, ENDED_BY_LAUNCHER, Why, ending
from .case import Case, RankView
from .finding import Finding

PEER = re.compile(r"\[([0-9a-fA-F.:]+)\]:\d+")  # as gloo names the other end of a connection
STOPPED_BY_A_PERSON = frozenset({"KeyboardInterrupt", "SystemExit"})
FROZEN_S = 3.3  # who looks at a stopped process lets it go on after a moment: 2.4 s to our look, and a second for it


def rank_died(case: Case) -> Finding | None:
    """A rank's process is gone, and not because its training had ended."""
    suffer = bool(case.blocked) or case.came_down
    dead = [view for view in case if view.dead and (not view.finished or (view.quit and suffer))]
    if any(_own_error(view) for view in case):
        return None  # an error of its own came before its end
    first = _first(dead)
    if first is None or (ended_for(first) is EndedFor.PEER and any(view.finished for view in case)):
        return None  # nobody died by himself: the peers of one who had ended failed
    if _all_asked_to_end(case):
        return None
    after = [view.rank for view in dead if view is not first]
    survivors = [view for view in case if not view.dead and not _failing(view)]
    how = end_of(first.evidence.process)
    waiting = tuple(view.rank for view in survivors if view.rank in case.blocked)
    where = words.at(first.where)
    ended = f"left with {how} in the middle of its training" if first.quit else f"died: {how}"
    error = words.error(first.exception) if first.exception is not None and first.exception.fatal else ""
    of_error = f", of {error}" if error else ""
    summary = f"{words.ranks([first.rank], capital=True)} (pid {first.pid}) {ended}{of_error}{where}"
    if waiting:
        summary += f"; {case.wait_words(waiting)} for it"
    evidence = [f"pid {first.pid} of rank {first.rank} is {'a zombie' if first.state == 'Z' else 'gone'}: {how}"]
    evidence += [f"rank {first.rank} recorded {error}"] if error else []
    evidence += _out_of_memory(case, first)
    if first.evidence.crash_trace:
        evidence.append(f"its last words: {first.evidence.crash_trace.strip().splitlines()[0]}")
    if (word := ending(first).word) is not None:
        evidence.append(f"its output says: {word.line}")
    details = [f"{case.name(after, capital=True)} ended after it"] if after else []
    return Finding(
        "rank-died",
        Certainty.PROVEN if _clearly_first(case, first, dead) else Certainty.LIKELY,
        summary + ".",
        culprits=(first.culprit(_last_place(first)),),
        victims=tuple(view.rank for view in case if view.rank != first.rank and (view.rank in waiting or view.dead)),
        step=first.step,
        evidence=tuple(evidence),
        details=tuple(details),
        status=Status.HUNG if waiting and len(waiting) == len(survivors) else Status.FAILED,
    )


def end_of(process: ProcessFacts | None) -> str:
    """How a process ended, in words."""
    code = None if process is None else process.exit_code
    if code is None:
        return "how is not known"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"


def death_time(view: RankView) -> float:
    """When the rank was last known to live: its ticker's last word."""
    return 0.0 if view.reading is None else max(view.reading.ticker_at, view.reading.progress.at)


def _failing(view: RankView) -> bool:
    return view.phase is Phase.FAILED or view.raised


def _own_error(view: RankView) -> bool:
    error = view.exception
    return error is not None and error.fatal and error.type not in STOPPED_BY_A_PERSON and not ended_for(view)


def _first(dead: list[RankView]) -> RankView | None:
    """The one that died first: not by the launcher's SIGTERM, nor by an error that another's death explains."""
    failed_at = min((_failed_at(view) for view in dead if ended_for(view) is EndedFor.PEER), default=float("inf"))
    # Who lived on when another had failed for want of a peer was ended after it, and was not that peer.
    own = [view for view in dead if ended_for(view) is not EndedFor.LAUNCHER or death_time(view) <= failed_at]
    return min(own, key=lambda view: (ended_for(view), death_time(view), view.rank), default=None)


def _failed_at(view: RankView) -> float:
    error = view.exception
    return error.at if error is not None and error.at else float("inf")


def _all_asked_to_end(case: Case) -> bool:
    """Each of several ranks was ended by SIGTERM, and none had met an error: who asked for it is none of them."""
    ends = [view for view in case if view.dead]
    return len(ends) == len(case.ranks) > 1 and all(
        ended_for(view) is EndedFor.LAUNCHER and not view.raised for view in ends
    )


def _all_lost_peers(dead: list[RankView]) -> bool:
    """Each failed in an operation of torch because a connection broke: who broke it is none of them."""
    errors = [view.exception if ended_for(view) is EndedFor.PEER else None for view in dead]
    return bool(errors) and all(
        error is not None and error.frames and origin(error.frames[0].file) == "torch" for error in errors
    )


def lost_peers(case: Case) -> Finding | None:
    """Ranks that can be seen from here failed because of one that cannot."""
    dead = [view for view in case if view.dead or view.raised]
    if not case.absent or not _all_lost_peers(dead):
        return None
    errors = {view.rank: words.error(view.exception) for view in dead}
    peers = sorted({peer for error in errors.values() for peer in PEER.findall(error)})
    at = f" at {words.listed(peers)}" if peers else ""
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(errors, capital=True)} lost the connection to another rank{at}, and failed."
        f" Nothing is known of {words.ranks(case.absent)}: one of them ended first, or the network between broke.",
        fix="read the reports of the other nodes; with one report directory or a dashboard all are judged together",
        victims=tuple(case.ranks),
        step=case.furthest_step(list(errors)),
        evidence=tuple(f"rank {rank} failed with {error}" for rank, error in list(errors.items())[: words.SHOWN]),
        status=Status.FAILED,
    )


def ended_by_launcher(case: Case) -> Finding | None:
    """All ranks were ended from outside, and none of them is at fault."""
    if not _all_asked_to_end(case):
        return None
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(list(case.ranks), capital=True)} were ended by SIGTERM, as a launcher or a scheduler does it; none"
        " of them had failed before.",
        fix="read what the launcher printed last: it lost its rendezvous, another node failed, or somebody ended it",
        victims=tuple(case.ranks),
        step=case.furthest_step(list(case.ranks)),
        evidence=tuple(
            f"rank {view.rank} (pid {view.pid}) was {end_of(view.evidence.process)}"
            for view in list(case)[: words.SHOWN]
        ),
        status=Status.FAILED,
    )


def ended_by_peers(case: Case) -> Finding | None:
    """Ranks failed only because others had ended before them, as they should or for a reason that nobody saw."""
    dead = [view.rank for view in case if (view.dead and not view.finished) or view.raised]
    ended = [view.rank for view in case if view.finished]
    if not dead or not ended or case.blocked:
        return None
    if all(_destroyed(case.ranks[rank]) for rank in ended):
        return _destroyed_before(case, ended, dead)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(dead, capital=True)} failed because {case.name(ended)} had ended before:"
        " why they did not end together is not known.",
        victims=tuple(dead),
        step=case.furthest_step(dead),
        evidence=tuple(
            f"rank {rank} {end_of(case.ranks[rank].evidence.process)}" for rank in (*ended, *dead)[: words.SHOWN]
        ),
        status=Status.FAILED,
    )


def _destroyed(view: RankView) -> bool:
    """It had destroyed its process groups, and not just ended."""
    return view.reading is not None and view.reading.progress.calls > 0 and not view.reading.heads


def _destroyed_before(case: Case, ended: list[int], failed: list[int]) -> Finding:
    """The fewer are to blame; of two halves, nobody is: one side left too early or the other called too much."""
    fewer = min(ended, failed, key=len) if len(ended) != len(failed) else []
    errors = [(rank, error) for rank in failed if (error := case.ranks[rank].exception) is not None]
    where = words.at(user_frame(errors[0][1].frames)) if errors else ""
    return Finding(
        "exit-destroy-asymmetric",
        Certainty.LIKELY,
        f"{case.name(ended, capital=True)} destroyed {'its' if len(ended) == 1 else 'their'} process group while"
        f" {case.name(failed)} still used it{where}: {'it' if len(failed) == 1 else 'they'} failed.",
        culprits=tuple(case.ranks[rank].culprit(_last_place(case.ranks[rank])) for rank in fewer),
        victims=tuple(failed) if fewer != failed else (),
        step=case.furthest_step(failed),
        evidence=(
            *(f"rank {rank} had destroyed its process groups" for rank in ended[: words.SHOWN]),
            *(f"rank {rank} failed with {e.type}{words.at(user_frame(e.frames))}" for rank, e in errors[: words.SHOWN]),
        ),
        status=Status.FAILED,
    )


class EndedFor(IntEnum):
    """Whose end it was that a rank's own end follows from, as far as is known; false for its own."""

    ITSELF = 0
    LAUNCHER = 1  # which ended it
    PEER = 2  # for want of which it failed


def ended_for(view: RankView) -> EndedFor:
    """Why a rank has ended, or is about to."""
    exception = view.exception
    if exception is not None and CONSEQUENCE.search(f"{exception.type} {exception.message}"):
        return EndedFor.PEER
    if view.dead and ending(view).why is Why.BACKEND:
        return EndedFor.PEER  # of some rank's call, not of its own
    return EndedFor.LAUNCHER if view.exit_code in ENDED_BY_LAUNCHER else EndedFor.ITSELF


def _clearly_first(case: Case, first: RankView, dead: list[RankView]) -> bool:
    """It alone has ended, or why it did is known, and the ends of all others follow from another's.

    Of an exit code alone, without a board to say what was raised, nobody knows whether it was an error of its own.
    """
    others = [view for view in dead if view is not first]
    known = first.exception is not None or first.quit or (first.exit_code or 0) < 0
    if not known:
        return not others and not any(view.finished for view in case)
    return all(ended_for(view) > ended_for(first) for view in others)


def _out_of_memory(case: Case, view: RankView) -> list[str]:
    return [
        f"{words.plural(node.oom_kills, 'out-of-memory kill')} in the job's cgroup on {node.host}"
        for node in case.snapshot.nodes
        if node.oom_kills and (not node.ranks or view.rank in node.ranks)
    ]


def _last_place(view: RankView) -> Frame | None:
    """The user's line of its last recorded call, for a process that has no stack any more."""
    if view.where is not None:
        return view.where
    exception = view.exception
    return exception.frames[0] if exception is not None and exception.frames else None


def rank_frozen(case: Case) -> Finding | None:
    """A rank's process is stopped, or sleeps in the kernel where nothing can wake it."""
    stopped = [view for view in case if view.stopped]
    deep = [view for view in case if view.state == "D" and not view.works and view.evidence.still_s > 2]
    frozen = stopped or deep
    if not frozen or (not stopped and not any(view.rank in case.awaited() for view in deep)):
        return None
    culprits = [view.rank for view in frozen]
    return Finding(
        "rank-frozen",
        Certainty.PROVEN if stopped else Certainty.LIKELY,
        f"{case.name(culprits, capital=True)} {_how_frozen(frozen[0])}{words.at(frozen[0].where)}"
        f"{_waiting_for(case, culprits)}.",
        fix=_thaw(frozen),
        culprits=tuple(view.culprit() for view in frozen),
        step=frozen[0].step,
        evidence=tuple(_frozen_evidence(view) for view in frozen[: words.SHOWN]),
        status=None if not stopped else Status.HUNG if case.still(culprits, FROZEN_S) else Status.WAITING,
        dead=f"{case.name(culprits)} cannot run until continued: the process is stopped" if stopped else "",
        held=tuple(culprits),
    )


def _how_frozen(view: RankView) -> str:
    if view.state == "t":
        return f"(pid {view.pid}) is stopped by a debugger (state t)"
    if view.state == "T":
        return f"(pid {view.pid}) is stopped (state T: SIGSTOP, Ctrl-Z or a freezer)"
    process = view.evidence.process
    target = f" on {process.blocked_on.path}" if process is not None and process.blocked_on is not None else ""
    return f"(pid {view.pid}) sleeps uninterruptibly in the kernel (state D){target}"


def _thaw(frozen: list[RankView]) -> str:
    pids = " ".join(str(view.pid) for view in frozen[: words.SHOWN])
    return f"kill -CONT {pids}" if frozen[0].stopped else "look at the device or file system that it waits for"


def _frozen_evidence(view: RankView) -> str:
    process = view.evidence.process
    channel = f", kernel function {process.wait_channel}" if process is not None and process.wait_channel else ""
    return f"pid {view.pid} of rank {view.rank} is in state {view.state}{channel}"


def _waiting_for(case: Case, culprits: list[int]) -> str:
    victims = case.victims(culprits)
    if not victims:
        return ""
    waits = words.verb(len(victims), "waits", "wait")
    return f"; {case.name(victims)} {waits} for it{words.at(case.usual_place(victims))}"


GONE = (lost_peers, rank_died, rank_frozen)
LAST = (ended_by_peers, ended_by_launcher)
