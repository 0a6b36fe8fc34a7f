"""The job as it stood before its ranks were brought down, by their backend or by each other's end.

Such an end says little of its reason. That is to be read from what every rank did up to then, with the same questions
as for a job that still waits: so the ranks are taken back to the calls in which they stood.
"""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import in_the_engine, path
from hangwatch.facts.calls.last_calls import brought_down, endings_of, frames_at_end, newest
from hangwatch.facts.case import Case, once
from hangwatch.facts.processes.process_end import all_asked_to_end
from hangwatch.facts.rank_end import Ending, Why, backend_of, gave_up_on, told
from hangwatch.facts.uncounted import failed_uncounted
from hangwatch.model import Frame, GroupHead, LoaderFacts, Phase, RankEvidence, Reading, ThreadStack
from hangwatch.ranks.issuers import MAIN
from hangwatch.ranks.last_words import Kind
from hangwatch.ranks.view import OVER, RankView
from hangwatch.stacks.activity import Doing

STOOD_S = 30.0  # without any movement before the end, after which it is told who waited for whom
_TIMEOUTS = frozenset({Kind.TIMEOUT, Kind.WATCHDOG})
_ON_THE_WAY_OUT = OVER | {Phase.FAILED, Phase.BETWEEN, Phase.DESTROYING}  # where the error took it
_C10D = "/torch/distributed/distributed_c10d.py"  # where Python enters a call
_CUDA = "/torch/cuda/__init__.py"


@once
def as_it_stood(case: Case) -> Case | None:
    """The evidence of `case` without what its end did; None where a rank ended by a fault of its own.

    A rank that was in no call that is known keeps its counters alone. That those which have ended did not move any
    more is known; what the others did is as it was seen.
    """
    if not brought_down(case) and not ended_while_it_stood(case):
        return None
    ends = endings_of(case)
    ranks = tuple(_waiting(case, view) if view.rank in ends else _still(view.evidence) for view in case)
    return Case(replace(case.snapshot, ranks=ranks, sampled_twice=True), stood=True)


def how_it_ended(case: Case) -> str:
    """`rank 1 was aborted by torch's NCCL watchdog: ALLREDUCE 8 had not completed in 10 min`."""
    ends = endings_of(case)
    if all(end.why is Why.LAUNCHER for end in ends.values()):
        return f"{case.say(ends, 'was', 'were')} ended by SIGTERM"
    first = min(ends, key=lambda rank: (not _gave_up(case, rank, ends[rank]), *_by(ends[rank]), rank))
    return f"{words.ranks([first])} {told(case.ranks[first], ends[first])}"


def _by(end: Ending) -> tuple[bool, bool]:
    """Orders the ends of ranks: those by the backend come first, and those by the launcher last."""
    return not end.by_backend, end.why is Why.LAUNCHER


def by_a_timeout(case: Case) -> bool:
    """A rank gave up waiting, and no backend ended another one for any other reason."""
    ends = endings_of(case)
    others = [end for end in ends.values() if end.by_backend and end.word and end.word.kind not in _TIMEOUTS]
    return not others and any(_gave_up(case, rank, end) for rank, end in ends.items())


@once
def ended_while_it_stood(case: Case) -> bool:
    """A launcher or a person ended all ranks, nothing had moved for long then, and where they stood was seen."""
    return all_asked_to_end(case) and all(
        view.evidence.still_s >= STOOD_S and not view.evidence.moved and bool(view.evidence.stacks) for view in case
    )


def _gave_up(case: Case, rank: int, end: Ending) -> bool:
    in_time = end.word is not None and end.word.kind in _TIMEOUTS
    return in_time or gave_up_on(case.ranks[rank]) is not None


def _still(evidence: RankEvidence) -> RankEvidence:
    """Unless it moves: it kept the others waiting for as long as their timeout is, and patience for it has run out."""
    if evidence.moved:
        return evidence
    return replace(evidence, still_s=max(evidence.still_s, evidence.patience_s + 1.0))


def _waiting(case: Case, view: RankView) -> RankEvidence:
    """It stood in one place until its end.

    What it used of the processor is known of one that was gone, from the last look at it: a zombie was on its way out.
    """
    evidence, stacks, process = _counted(case, view), _stacks(case, view), view.evidence.process
    cpu_delta_s = process.cpu_delta_s if process is not None and process.state == "X" else None
    return replace(
        _still(replace(evidence, moved=False)),
        stacks=stacks,
        earlier_stacks=stacks,
        process=replace(process, state="S", exit_code=None, cpu_delta_s=cpu_delta_s) if process is not None else None,
        reading=_without_the_end(evidence.reading, view.raised) if evidence.reading is not None else None,
        crash_trace="",
        last_output="",
    )


def _counted(case: Case, view: RankView) -> RankEvidence:
    """With the call in which it lost a peer, which its board has not counted any more."""
    groups = case.ledger.groups_of(view.rank)
    lost = {group.name for group in groups if failed_uncounted(view, case.ledger, group)}

    def at_its_end(head: GroupHead) -> GroupHead:
        issued = head.issued + (head.name in lost)
        return replace(head, issued=issued, completed=_completed(case, view, head, issued))

    made, reading = view.evidence.collectives, view.reading
    return replace(
        view.evidence,
        collectives=replace(made, heads=tuple(map(at_its_end, made.heads))),
        reading=replace(reading, heads=tuple(map(at_its_end, reading.heads))) if reading is not None else None,
    )


def _completed(case: Case, view: RankView, head: GroupHead, issued: int) -> int:
    """All before its last call was complete, and that too if it stood elsewhere; its backend may have told it earlier.

    Of several calls at once, those before the one for which it waited. Calls of a device, and gradients, run behind the
    host: of these only the backend knows.
    """
    frames, _, _ = frames_at_end(view)
    behind = head.uses_nccl or in_the_engine(frames) or not frames
    if head.completed >= 0 and behind:
        return max(head.completed, _of_steps_before(view, head))
    waited = [call for call in case.ledger.open_calls(view.rank) if call.group == head.name]
    if waited and view.now.doing is Doing.WORK_WAIT:
        return max(head.completed, min(call.seq for call in waited) - 1, 0)
    last = case.ledger.call(view.rank, head.name, issued)
    elsewhere = bool(frames) and last is not None and bool(last.frames) and path(last.frames) != path(frames)
    return max(head.completed, issued if elsewhere else issued - 1, 0)


def _of_steps_before(view: RankView, head: GroupHead) -> int:
    """What it had issued as its last step began. A backward ends with its gradients, where no device runs behind."""
    steps = view.reading.steps if view.reading is not None and not head.uses_nccl else ()
    return min(steps[-1].issued.get(head.name, 0), head.issued) if steps else 0


def _stacks(case: Case, view: RankView) -> tuple[ThreadStack, ...]:
    """Those that were taken of it; else where its error came up, or the call that it had made last."""
    frames, _, _ = frames_at_end(view)
    if view.threads and (not frames or any(thread.in_collective for thread in view.threads)):
        return tuple(replace(stack, source="call") for stack in view.evidence.stacks)
    frames = frames or _its_wait(case, view)
    return (ThreadStack(view.pid or 0, MAIN, frames, main=True),) if frames else ()


def _its_wait(case: Case, view: RankView) -> tuple[Frame, ...]:
    """In a call that it never returned from; one that was aborted, in its last call or behind it."""
    entered = max(case.ledger.open_calls(view.rank), key=lambda call: (call.at or 0.0, call.seq), default=None)
    if entered is not None:
        return (Frame(_C10D, 0, entered.op), *entered.frames)
    last = newest(case, view.rank) if endings_of(case)[view.rank].why is not Why.LAUNCHER else None
    if last is None:
        return ()
    on_device = "nccl" in backend_of(view)
    return (Frame(_CUDA, 0, "synchronize") if on_device else Frame(_C10D, 0, last.op), *last.frames)


def _without_the_end(reading: Reading, raised: bool) -> Reading:
    """What an error took the rank to on its way out is none of its work; one that was aborted went nowhere."""
    error = reading.exception if reading.exception is not None and not reading.exception.fatal else None
    reading = replace(reading, exception=error, taken_at=reading.ticker_at)
    if not raised:
        return reading
    phase = Phase.STEP if reading.phase in _ON_THE_WAY_OUT else reading.phase
    return replace(reading, phase=phase, loaders=tuple(_in_its_loop(loader) for loader in reading.loaders))


def _in_its_loop(loader: LoaderFacts) -> LoaderFacts:
    """The error took the rank out of its loop, not its data: its last epoch has not ended."""
    if not loader.left or loader.exhausted:
        return loader
    if loader.exhausted_per_epoch[-1:] != (False,):
        return replace(loader, left=False)
    drawn, exhausted = loader.drawn_per_epoch[:-1], loader.exhausted_per_epoch[:-1]
    return replace(loader, left=False, drawn_per_epoch=drawn, exhausted_per_epoch=exhausted)
