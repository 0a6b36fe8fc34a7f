"""All ranks wait in calls of torch's RPC, and a function that one of them runs for others does not come back."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.remote_calls import Unanswered, left_early, sentences, unanswered
from hangwatch.model import Certainty
from hangwatch.rules.finding import Finding


def answers_no_call(case: Case) -> Finding | None:
    """No rank is left to make the call for which the function waits, if it waits for one."""
    found = unanswered(case)
    if found is None or not found.ends:
        return None
    return _by_a_rank_that_left(case, found) or _by_the_function(case, found)


def _by_a_rank_that_left(case: Case, found: Unanswered) -> Finding | None:
    """What a function waits for was to come with a call of a rank that makes no more: it stands in `rpc.shutdown`."""
    left = [view.rank for view in left_early(case, found)]
    if not left:
        return None
    end = found.ends[0]
    inside = sorted(found.inside)
    asking = sorted({view.rank for view in found.asking})
    function = end.thread.where.function if end.thread.where is not None else "?"
    wait = case.say(asking, "waits", "wait", capital=True) if asking else ""
    waiting = f" {wait} for answers{words.at(case.usual_place(asking))}." if wait else ""
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.say(left, 'makes', 'make', capital=True)} no more calls: {words.verb(len(left), 'it', 'they')}"
        f" {words.verb(len(left), 'stands', 'stand')} in rpc.shutdown{words.at(case.usual_place(left))}; {function}"
        f"{words.at(end.thread.where)}, which {case.name([end.view.rank])} runs for other ranks, waits for a call that"
        f" is lacking.{waiting}",
        fix=f"find the path by which {case.name(left)} left a call out (a `continue`, an early end of its loop, an"
        " exception that was caught), and let it make the call there, too; give the wait a timeout",
        culprits=case.culprits(left),
        victims=tuple(inside),
        step=end.view.step,
        evidence=sentences(found),
        awaited=tuple(left),
    )


def _by_the_function(case: Case, found: Unanswered) -> Finding:
    first = found.ends[0]
    ends = {each.view.rank: each for each in reversed(found.ends)}
    ranks, where = sorted(ends), first.thread.where
    function = where.function if where is not None else "?"
    asking = sorted({view.rank for view in found.asking} - set(ranks))
    calls = words.plural(sum(each.view is first.view for each in found.ends), "call")
    waiting = f"{case.wait_words(asking)} for answers{words.at(case.usual_place(asking))}, and " if asking else ""
    return Finding(
        "user-code-blocked",
        Certainty.LIKELY,
        f"{case.say(ranks, 'does', 'do', capital=True)} not answer: {calls} of other ranks"
        f" {words.verb(len(found.ends), 'stands', 'stand')} there in {function}{words.at(where)};"
        f" {waiting}no rank makes another call.",
        fix="what that function waits for should come with another call, or from another thread: look for a path by"
        " which a rank leaves a call out; give the wait and the call a timeout",
        culprits=tuple(ends[rank].view.culprit(ends[rank].thread.where) for rank in ranks),
        victims=tuple(asking),
        step=first.view.step,
        evidence=sentences(found),
    )
