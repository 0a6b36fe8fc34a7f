"""All ranks wait in calls of torch's RPC, and no thread of any of them works on an answer."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.remote_calls import left_early, sentences, unanswered
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def never_answered(case: Case) -> Finding | None:
    """Another call was to complete the Future that a function has returned, or no thread is left to run the function.

    Which of the two is on no record. Where fewer ranks than are inside a call make none any more, these are the ones to
    look at.
    """
    found = unanswered(case)
    if found is None or found.ends:
        return None
    asking = sorted({*(view.rank for view in found.asking), *(each.view.rank for each in found.served)})
    inner = next((each for each in found.served if each.asks), None)
    where = inner.thread.where if inner is not None else case.usual_place(asking)
    left = [view.rank for view in left_early(case, found)]
    idle = [view.rank for view in case if view.rank not in found.inside]
    no = "makes no call, and runs" if left else "runs"
    beside = f" {case.name(idle, capital=True)} {no} no function for another one." if idle else ""
    ends = [inner.view.rank] if inner is not None else asking
    return Finding(
        "undetermined",
        Certainty.LIKELY if left else Certainty.UNDETERMINED,
        f"{case.say(ends, 'waits', 'wait', capital=True)} for the answer of a remote call"
        f"{words.at(where)}, and no thread of any rank works on it: another call was to bring it, or no thread is free"
        f" to run what was called.{beside}",
        fix="look at what completes the Future that the called function has returned: it may count calls, or workers,"
        " of which one has ended or left one out; where functions call further ones and wait for them, raise"
        " num_worker_threads or return a Future (async_execution); give calls a timeout",
        culprits=case.culprits(left),
        victims=tuple(asking),
        evidence=sentences(found),
        awaited=tuple(case.ranks),
    )
