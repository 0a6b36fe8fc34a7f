"""A process of a rank that is gone."""

from __future__ import annotations

import signal

from hangwatch import words
from hangwatch.catalogue.deaths import advice
from hangwatch.facts.case import Case
from hangwatch.facts.processes.nccl_view import given_up
from hangwatch.facts.processes.process_end import (
    STOPPED_BY_A_PERSON,
    all_asked_to_end,
    death_time,
    end_of,
    ended_for,
    last_place,
)
from hangwatch.facts.rank_end import Why, ending
from hangwatch.facts.start.arrivals import ends_the_others
from hangwatch.model import Certainty, Culprit, Phase, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding

_READ = "find out why it ended: read the last lines of its output, above those of its launcher"
_END_TOGETHER = (
    "torch's gloo may abort a process at its exit: end with dist.barrier() before destroy_process_group(), behind what"
    " {ranks} still did, so that no rank is at work when another one exits"
)
UNANSWERED_S = 10.0  # seconds without progress, after which a rank that does not answer NCCL is taken for dead


def _quit(view: RankView) -> bool:
    """Gone with exit code 0, although neither its training nor its main program had ended (os._exit)."""
    return view.finished and not view.over and view.reading is not None and view.phase is not Phase.START


def rank_died(case: Case) -> Finding | None:
    """A rank's process is gone, and not because its training had ended."""
    dead = [view for view in case if view.dead and (not view.finished or (_quit(view) and case.in_trouble))]
    if any(_own_error(view) for view in case):
        return None  # an error of its own came before its end
    first = _first(dead)
    if first is None or (ended_for(first) is Why.PEER and any(view.ended_well for view in case)):
        return None  # no rank died by itself: they failed because a peer had ended
    if all_asked_to_end(case) or _may_have_followed(first, dead):
        return None
    after = [view.rank for view in dead if view is not first]
    survivors = [view for view in case if not view.dead and not _failing(view)]
    how = end_of(first.evidence.process)
    waiting = tuple(view.rank for view in survivors if view.rank in case.blocked)
    where = words.at(first.where)
    late = " after the end of its training" if first.over and not first.raised else ""
    ended = f"left with {how} in the middle of its training" if _quit(first) else f"died{late}: {how}"
    error = words.error(first.exception) if first.exception is not None and first.exception.fatal else ""
    of_error = f", of {error}" if error else ""
    summary = f"{words.ranks([first.rank], capital=True)} (pid {first.pid}) {ended}{of_error}{where}"
    if waiting:
        summary += f"; {case.wait_words(waiting)} for it"
    evidence = [f"pid {first.pid} of rank {first.rank} is {'a zombie' if first.state == 'Z' else 'gone'}: {how}"]
    evidence += [f"rank {first.rank} recorded {error}"] if error else []
    killed = _out_of_memory(case, first)
    evidence += killed
    if first.evidence.crash_trace:
        evidence.append(f"its last words: {first.evidence.crash_trace.strip().splitlines()[0]}")
    if (word := ending(first).word) is not None:
        evidence.append(f"its output says: {word.line}")
    details = [f"{case.name(after, capital=True)} ended after it{words.at(case.usual_place(after))}"] if after else []
    return Finding(
        "rank-died",
        Certainty.PROVEN if _clearly_first(case, first, dead) else Certainty.LIKELY,
        summary + ".",
        fix=advice(process.exit_code if (process := first.evidence.process) else None, out_of_memory=bool(killed))
        or (_READ if ends_the_others(case) else ""),
        culprits=(first.culprit(last_place(first)),),
        victims=tuple(view.rank for view in case if view.rank != first.rank and (view.rank in waiting or view.dead)),
        step=first.step,
        evidence=tuple(evidence),
        details=tuple(details),
        status=Status.HUNG if waiting and len(waiting) == len(survivors) else Status.FAILED,
    )


def aborted_at_its_exit(case: Case) -> Finding | None:
    """A rank was through with its program, and its end as a process took others with it that were not.

    Where all are through, such an abort does no harm. That the launcher ended the others for it is no more than likely.
    """
    aborted = [view for view in case if view.dead and view.over and view.exit_code == -signal.SIGABRT]
    first = min(aborted, key=death_time, default=None)
    ended = [view for view in case if view.dead and not view.finished]
    if first is None or not ended or any(ended_for(view) is not Why.LAUNCHER for view in ended):
        return None
    if any(death_time(view) < death_time(first) for view in case if view.dead):
        return None
    taken = case.name([view.rank for view in ended])
    return Finding(
        "rank-died",
        Certainty.LIKELY,
        f"Rank {first.rank} (pid {first.pid}) was aborted (SIGABRT) at its exit, after the end of its training; its"
        f" launcher took that for a failure, and ended {taken}, which had not come to the end.",
        fix=_END_TOGETHER.format(ranks=taken),
        culprits=(first.culprit(last_place(first)),),
        victims=tuple(view.rank for view in ended),
        step=case.furthest_step([view.rank for view in ended]),
        evidence=(
            f"pid {first.pid} of rank {first.rank} was {end_of(first.evidence.process)}; its main program had ended",
            *(f"rank {view.rank} was ended by SIGTERM after that" for view in ended[: words.SHOWN]),
        ),
        status=Status.FAILED,
    )


def dead_by_nccl(case: Case) -> Finding | None:
    """NCCL calls ranks dead of which nothing is seen, and all that are seen wait: no more than likely by itself."""
    dead = [rank for rank in given_up(case) if rank not in case.ranks or case.ranks[rank].evidence.process is None]
    seen = [view for view in case if view.rank not in dead and not view.dead]
    if not dead or 2 * len(dead) > len(seen) + len(dead) or not all(view.rank in case.blocked for view in seen):
        return None
    waiting = tuple(view.rank for view in seen)
    does = words.verb(len(dead), "does", "do")
    return Finding(
        "rank-died",
        Certainty.LIKELY,
        f"NCCL calls {words.ranks(dead)} dead: {words.verb(len(dead), 'it', 'they')} {does} not answer its RAS threads,"
        f" and no process of {words.verb(len(dead), 'it', 'them')} is seen; {case.wait_words(waiting)} for"
        f" {words.verb(len(dead), 'it', 'them')}{words.at(case.usual_place(waiting))}.",
        culprits=tuple(Culprit(rank) for rank in dead),
        victims=waiting,
        step=case.furthest_step(waiting),
        details=("A process that is stopped, and a machine that is lost or cut off, do not answer either.",),
        status=Status.HUNG if case.still(waiting, UNANSWERED_S) else Status.WAITING,
    )


def _failing(view: RankView) -> bool:
    return view.phase is Phase.FAILED or view.raised


def _own_error(view: RankView) -> bool:
    error = view.exception
    return error is not None and error.fatal and error.type not in STOPPED_BY_A_PERSON and ended_for(view) is Why.ITSELF


def _first(dead: list[RankView]) -> RankView | None:
    """The one that died first: not by the launcher's SIGTERM, nor by an error that another's death explains."""
    failed_at = min((_failed_at(view) for view in dead if ended_for(view) is Why.PEER), default=float("inf"))
    # A rank that lived on when another had failed because it lost a peer was ended after it, and was not that peer.
    own = [view for view in dead if ended_for(view) is not Why.LAUNCHER or death_time(view) <= failed_at]
    return min(own, key=lambda view: (_distance(view), not _is_told(view), death_time(view), view.rank), default=None)


def _failed_at(view: RankView) -> float:
    error = view.exception
    return error.at if error is not None and error.at else float("inf")


def _may_have_followed(first: RankView, dead: list[RankView]) -> bool:
    """Nothing but its exit code is known of it, and other ranks have ended, of which any may be the reason."""
    return len(dead) > 1 and not _is_told(first)


def _is_told(view: RankView) -> bool:
    """More than an exit code is known of its end."""
    return view.exception is not None or view.reading is not None or (view.exit_code or 0) <= 0


def _clearly_first(case: Case, first: RankView, dead: list[RankView]) -> bool:
    """It alone has ended; or why it ended is known, and the ends of all others follow from another's.

    Of an exit code alone, without a board to say what was raised, it is not known whether it was an error of its own.
    """
    others = [view for view in dead if view is not first]
    known = first.exception is not None or _quit(first) or (first.exit_code or 0) < 0
    if not known:
        return _is_told(first) and not others and not any(view.ended_well for view in case)
    return all(_distance(view) > _distance(first) for view in others)


def _distance(view: RankView) -> int:
    """How far its end is from being a cause."""
    return (Why.ITSELF, Why.LAUNCHER, Why.PEER).index(ended_for(view))


def _out_of_memory(case: Case, view: RankView) -> list[str]:
    return [
        f"{words.plural(node.oom_kills, 'out-of-memory kill')} in the job's cgroup on {node.host}"
        for node in case.snapshot.nodes
        if node.oom_kills and (not node.ranks or view.rank in node.ranks)
    ]
