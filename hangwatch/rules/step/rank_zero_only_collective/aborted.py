"""A job that its backend brought down because one rank issued a call that no other did.

The ranks' boards survive them. At the end each rank stood at a call site; the one that stood where no rank had ever
been, or that had left the order of calls that it kept in every earlier step, did something that the others did not.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hangwatch import words
from hangwatch.facts.call_site import Site, comes_before, framework, same, site
from hangwatch.facts.calls.call_order import present_and_usual
from hangwatch.facts.calls.last_calls import (
    Last,
    brought_down,
    end_sentences,
    endings_of,
    is_early_at,
    last_calls,
    may_have_come_first,
)
from hangwatch.facts.calls.skip_paths import reached_by_all
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import had_fewer, has_left_inner_loop
from hangwatch.facts.differences.again import loop_in_its_step
from hangwatch.facts.differences.parting import parting
from hangwatch.facts.rank_end import told
from hangwatch.model import Certainty, Collective, Frame, Status
from hangwatch.ranks.last_words import Kind
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.step.rank_zero_only_collective.witnesses import behind, call_on_every_rank, condition_of
from hangwatch.rules.turns import equal_turns
from hangwatch.stacks.activity import IN_DDPS_FORWARD, Within
from hangwatch.stacks.frames import name_of, of_origin


def _known_sites(case: Case, besides: Iterable[Collective | None]) -> set[Site]:
    """All sites at which any rank has called, the given calls left out."""
    left_out = {id(call) for call in besides if call is not None}
    calls = (call for rank in case.ranks for call in case.ledger.calls(rank).values() if id(call) not in left_out)
    return {place for call in calls if (place := site(call)) is not None}


def _complete(case: Case) -> bool:
    """Every collective of every rank was issued from Python code, so that a board has a record of it."""
    numbers: dict[tuple[int, str], list[int]] = {}
    for rank in case.ranks:
        for name, seq in case.ledger.calls(rank):
            numbers.setdefault((rank, name), []).append(seq)
    return bool(numbers) and all(
        after - before == 1 for seqs in numbers.values() for before, after in pairwise(sorted(seqs))
    )


def _is_new(case: Case, last: Last, known: set[Site]) -> bool:
    """No rank had ever called there. What C++ code issued leaves no record: unknown where such calls are usual."""
    if any(same(place._replace(kind=""), last.site) for place in known):
        return False
    if not known:
        return last.call is not None and all(view.evidence.boards_all_calls for view in case)
    return last.call is not None or _complete(case)


def extra_call(case: Case) -> Finding | None:
    """One rank stood in a call where no rank had ever called, or had left its order of calls; the backend ended it."""
    if len(case.ranks) < 2 or not brought_down(case):
        return None
    lasts = last_calls(case)
    if not _in_conflict(case, lasts):
        return None
    return _at_a_new_place(case, lasts) or _once_more(case, lasts)


def _in_conflict(case: Case, lasts: dict[int, Last]) -> bool:
    """The calls are mispaired: gloo aborts for nothing else. After a timeout, a rank may not have come yet."""
    kinds = {end.word.kind if end.word is not None else None for end in endings_of(case).values() if end.by_backend}
    return not kinds.isdisjoint((None, Kind.SIZE_MISMATCH)) or len(lasts) == len(case.ranks)


def _at_a_new_place(case: Case, lasts: dict[int, Last]) -> Finding | None:
    known = _known_sites(case, (last.call for last in lasts.values()))
    asked = {rank: last for rank, last in lasts.items() if not _of_every_step(case.ranks[rank])}
    passed = [rank for rank in asked if not known and _passed_by(case, rank, lasts)]
    new = passed or [rank for rank, last in asked.items() if _is_new(case, last, known)]
    if len(new) != 1 or (not passed and _comes_to_all(case, new[0], lasts)) or not _is_alone(new[0], lasts):
        return None
    view, last = case.ranks[new[0]], lasts[new[0]]
    below = framework(last.site) if _is_known_line(last, known) else None
    caller = _first_unlike(last, known) if below is None else last.where
    when = words.in_step(view.step)
    line = words.place(below or caller)
    way = condition_of(case, view.rank, last.site.lines)
    return _found(
        case,
        view,
        caller,
        f"{words.ranks([view.rank], capital=True)} called {_called(last, caller, below)}{when}{behind(way)};"
        f" {_elsewhere(last, known)}, and the call was paired with another one of the other ranks.",
        f"no rank has an earlier collective from {line} on its board",
        *_ahead(case, passed),
        fix=call_on_every_rank(way),
    )


def _elsewhere(last: Last, known: set[Site]) -> str:
    """A destructor runs at any line: that it never ran at this one says nothing of the call."""
    inner = {site.lines[0] for site in known if site.lines}
    runs_anywhere = any(name_of(frame.function) == "__del__" for frame in of_origin(last.frames, "user"))
    if runs_anywhere and last.site.lines and last.site.lines[0] in inner:
        return "`__del__`, which makes it, had not run at that point on any rank"
    return "no rank had ever called a collective from there"


def _is_alone(rank: int, lasts: dict[int, Last]) -> bool:
    """No other rank ended in that call, with a record of it or without; and it is not ahead of them in its group."""
    mine, others = lasts[rank], [last for other, last in lasts.items() if other != rank]
    if any(same(last.site._replace(kind=""), mine.site) for last in others):
        return False
    numbers = [last.call.seq for last in others if last.call is not None and mine.call is not None]
    of_one_group = all(last.call and mine.call and last.call.group == mine.call.group for last in others)
    return not (numbers and of_one_group and mine.call is not None and mine.call.seq > max(numbers))


def _comes_to_all(case: Case, rank: int, lasts: dict[int, Last]) -> bool:
    """The others may come to the call of `rank` as well: it is ahead of them, or no condition leads to it."""
    if _may_follow(case, rank) or may_have_come_first(case, rank, lasts):
        return True
    others = {other: last.site.lines for other, last in lasts.items() if other != rank}
    return is_early_at(case, case.ranks[rank], lasts[rank].site.lines, others)


def _passed_by(case: Case, rank: int, lasts: dict[int, Last]) -> bool:
    """All the others were further at the end, in a later step or line, and had not made that call on their way there.

    Two ranks that differ are one against one: then only the source says which of them is right.
    """
    view, others = case.ranks[rank], [other for other in case if other.rank != rank]
    if had_fewer(case, rank) or reached_by_all(case, view):
        return False  # they still draw data that it has done with, or no condition leads to its call: they come later
    further = all(_is_further(other, view, lasts) for other in others)
    return further and lasts[rank].call is not None and (len(others) > 1 or view.guarded)


def _is_further(other: RankView, view: RankView, lasts: dict[int, Last]) -> bool:
    at, step = view.step.step, other.step.step
    if at is None or step is None or step != at or other.rank not in lasts:
        return at is not None and step is not None and step > at
    return comes_before(lasts[view.rank].site.lines, lasts[other.rank].site.lines)


def _ahead(case: Case, passed: list[int]) -> tuple[str, ...]:
    """A sentence on the steps of the ranks that went on without the call."""
    if not passed:
        return ()
    others = [rank for rank in case.ranks if rank not in passed]
    at = words.step(case.furthest_step(others))
    verb = words.verb(len(others), "was", "were")
    return (f"{case.name(others)} {verb} in {at} already, and had gone by without that call",)


def _first_unlike(last: Last, known: set[Site]) -> Frame | None:
    """The innermost of the user's lines, from the call outwards, from where no rank had ever come to it."""
    lines = last.site.lines
    if not lines:
        return last.where
    depth = next((n for n in range(1, len(lines) + 1) if all(place.lines[:n] != lines[:n] for place in known)), 1)
    file, line = lines[depth - 1]
    return next((frame for frame in last.frames if frame.source_line == (file, line)), last.where)


def _is_known_line(last: Last, known: set[Site]) -> bool:
    """The user's lines lead to other calls as well, as those of a trainer do: its own line tells them apart."""
    return any(place.lines == last.site.lines for place in known)


def _called(last: Last, caller: Frame | None, below: Frame | None) -> str:
    """`all_reduce (train.py:9, called from train.py:38)`, `all_reduce of reduce (strategy.py:31, below train.py:9)`."""
    name = last.name or "a collective"
    if below is not None:
        return f"{name} of {name_of(below.function)} ({words.place(below)}, below {words.place(last.where)})"
    if caller is None or caller == last.where:
        return f"{name}{words.at(last.where)}"
    return f"{name} ({words.place(last.where)}, called from {words.place(caller)})"


def _of_every_step(view: RankView) -> bool:
    """DDP's own collectives, in backward and in forward: no record says where they were called before."""
    return any(now.op in ("gradients", *IN_DDPS_FORWARD) or Within.BUFFERS in now.within for now in view.threads)


def _may_follow(case: Case, rank: int) -> bool:
    """The others may come to the place of `rank` yet: it has left a loop that they are in, or is steps ahead.

    Where the ledgers differ in an earlier step, what each rank does now only follows from that. So it does where the
    rank has run out of data before the others: no stack need say so of those that their launcher ended.
    """
    view, found = case.ranks[rank], parting(case)
    if had_fewer(case, rank):
        return True
    at = view.step.step
    if found is not None and at is not None and found.divergence.step < at:
        return True
    behind = any(at is not None and other.step.step is not None and other.step.step < at for other in case)
    return behind or has_left_inner_loop(case, view) or any(other.over and not other.raised for other in case)


def _once_more(case: Case, lasts: dict[int, Last]) -> Finding | None:
    """One rank alone repeated a call within its step, against the order of all its earlier steps."""
    again = [rank for rank in lasts if _repeats(case, rank)]
    if len(again) != 1 or _may_follow(case, again[0]):
        return None
    view, last = case.ranks[again[0]], lasts[again[0]]
    what = f"{last.name or 'a collective'}{words.at(last.where)}"
    return _found(
        case,
        view,
        last.where,
        f"{words.ranks([view.rank], capital=True)} called {what} once more than usual in {words.step(view.step)}; the"
        " call was paired with another call of the other ranks.",
        f"in every earlier step on its board in which rank {view.rank} made that call, it did so once less",
        fix=equal_turns(loop_in_its_step(view)),
    )


def _repeats(case: Case, rank: int) -> bool:
    """The last call of its present step stands where, in all recorded steps before, another one or none came."""
    present, usual = present_and_usual(case, rank)
    if not present or not usual:
        return False
    done = len(present) - 1
    return present[:done] == usual[:done] and present[done] in usual[:done] and present[done] not in usual[done:]


def _found(case: Case, view: RankView, where: Frame | None, summary: str, *why: str, fix: str = "") -> Finding:
    others = tuple(rank for rank in case.ranks if rank != view.rank)
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        summary,
        fix=fix,
        culprits=(view.culprit(where),),
        victims=others,
        step=view.step,
        evidence=(*why, *end_sentences(case)),
        details=_came_of_it(case),
        status=Status.FAILED,
    )


def _came_of_it(case: Case) -> tuple[str, ...]:
    ended = [rank for rank, end in endings_of(case).items() if end.by_backend]
    return (
        (f"{case.name(ended, capital=True)} {told(case.ranks[ended[0]], endings_of(case)[ended[0]])}.",)
        if ended
        else ()
    )
