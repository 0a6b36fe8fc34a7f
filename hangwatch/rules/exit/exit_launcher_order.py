"""A launcher that waits for its ranks in the wrong order."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.process_end import end_of
from hangwatch.facts.start.launchers import END_SEEN_S, place_of
from hangwatch.model import Certainty, Frame, ProcessEvidence, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def launcher_order(case: Case) -> Finding | None:
    """A launcher waits for one rank, while another one has failed already, unnoticed."""
    if case.blocked:
        return None  # ranks that wait for the dead one in a collective explain more
    for launcher in case.snapshot.launchers:
        awaited = next((view for view in case if not view.dead and view.pid == launcher.facts.waits_for), None)
        failed = [view for view in case if view.state == "Z" and _has_failed(view) and _is_child(launcher, view)]
        if awaited is not None and failed:
            return _wrong_order(case, launcher, awaited, failed)
    return None


def _has_failed(view: RankView) -> bool:
    """For its launcher any code but 0 is a failure, whatever the rank meant by it."""
    return not view.finished or (view.exit_code or 0) > 0


def _is_child(launcher: ProcessEvidence, view: RankView) -> bool:
    process = view.evidence.process
    return view.pid in launcher.facts.children or (process is not None and process.parent == launcher.facts.pid)


def _wrong_order(case: Case, launcher: ProcessEvidence, awaited: RankView, failed: list[RankView]) -> Finding:
    ranks = [view.rank for view in failed]
    where = place_of(launcher)
    how = f"{end_of(failed[0].evidence.process)}{_of_error(failed[0])}"
    return Finding(
        "exit-launcher-order",
        Certainty.PROVEN,
        f"The launcher (pid {launcher.facts.pid}) waits for rank {awaited.rank} (pid {awaited.pid}){words.at(where)},"
        f" while {case.name(ranks)} has ended already ({how}), unnoticed.",
        culprits=case.culprits_at(ranks, _raised_at),
        victims=(awaited.rank,),
        step=failed[0].step,
        evidence=(
            f"pid {launcher.facts.pid} is in {launcher.facts.system_call} for pid {awaited.pid}",
            *(_zombie(view) for view in failed[:8]),
            f"rank {awaited.rank} stands at {words.place(awaited.where) or awaited.main.doing}",
        ),
        status=_of_order(case, awaited, failed),
        awaited=(awaited.rank,),
    )


def _zombie(view: RankView) -> str:
    return f"rank {view.rank} (pid {view.pid}) is a zombie: {end_of(view.evidence.process)}{_of_error(view)}"


def _of_error(view: RankView) -> str:
    """The error that ended it, where it recorded one: of the silence the launcher is the reason, not of the error."""
    return f", of {words.error(view.exception)}{words.at(_raised_at(view))}" if view.raised else ""


def _of_order(case: Case, awaited: RankView, failed: list[RankView]) -> Status | None:
    """After the training it lingers, once it has gone unnoticed for a while."""
    if awaited.works:
        return Status.WAITING
    ended = [view.evidence.ended_at for view in failed if view.evidence.ended_at is not None]
    settled = bool(ended) and case.snapshot.taken_at - max(ended) > END_SEEN_S
    if awaited.over:
        return Status.LINGERING if settled or awaited.evidence.stalled else Status.WAITING
    return Status.HUNG if settled else None


def _raised_at(view: RankView) -> Frame | None:
    exception = view.exception
    return user_frame(exception.frames) if exception is not None else None
