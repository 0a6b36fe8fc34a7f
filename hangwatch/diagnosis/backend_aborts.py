"""Jobs that a backend brought down: the abort is a consequence, and its reason is looked for in the ranks' calls.

The ranks' boards survive them. At the end each rank stood at a call site; the one that stood where no rank had ever
been, or that had left the order of calls that it kept in every earlier step, has done something else than the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from ..activity import Within
from ..frames import name_of, user_frame
from ..last_words import Kind, LastWord
from ..ledger import family
from ..records import Certainty, Collective, Frame, Status, StepName
from . import words
from .aborts import Ending, Why, ending, failed_in_torch, told, words_of
from .case import Case, RankView, once
from .finding import Finding, Rule
from .loops import has_left_inner_loop
from .parting import parting
from .processes import death_time
from .sites import Path, Site, path, site

_LIBRARY = re.compile(r"/torch/distributed/checkpoint/(state_dict|state_dict_saver|state_dict_loader)\.py$")


@once
def endings_of(case: Case) -> dict[int, Ending]:
    """The endings of all ranks that have ended in the middle of their work, or are failing."""
    return {view.rank: ending(view) for view in case if (view.dead and not view.finished) or view.raised}


def brought_down(case: Case) -> bool:
    """No rank ended by a fault of its own, and the backend ended one, or each lost another."""
    ends = endings_of(case)
    inside = all(end.why is not Why.ITSELF or failed_in_torch(case.ranks[rank]) for rank, end in ends.items())
    return inside and any(end.why in (Why.BACKEND, Why.PEER) for end in ends.values())


# ------------------------------------------------------------------------------------------ where each rank stood


@dataclass(frozen=True)
class Last:
    """The call in which a rank stood at its end: its site, what called it, and its record where Python issued it."""

    site: Site
    frames: tuple[Frame, ...]
    name: str
    call: Collective | None = None

    @property
    def where(self) -> Frame | None:
        return user_frame(self.frames)


def last_call(case: Case, view: RankView) -> Last | None:
    """Where `view` stood: by its last stack, the error that ended it, or the call that it had not returned from."""
    frames, op, name = _frames(view)
    if not frames:
        return None
    name = _library_call(frames) or name
    call = _newest(case, view.rank)
    if call is not None and _same(path(call.frames), path(frames)):
        return Last((family(call.op), path(frames)), frames, name or call.op, call)
    return Last((family(op), path(frames)), frames, name or op or _entered(frames))


def _library_call(frames: tuple[Frame, ...]) -> str:
    """The function of torch that the user called and that communicates by itself, such as get_model_state_dict."""
    where = user_frame(frames)
    depth = frames.index(where) if where is not None else 0
    called = frames[depth - 1] if depth else None
    return name_of(called.function) if called is not None and _LIBRARY.search(called.file) else ""


def _entered(frames: tuple[Frame, ...]) -> str:
    """The function that the user's code called, for calls that no operation's name stands for."""
    where = user_frame(frames)
    depth = frames.index(where) if where is not None else 0
    return name_of(frames[depth - 1].function) if depth else ""


def _frames(view: RankView) -> tuple[tuple[Frame, ...], str, str]:
    threads = [(stack, now) for stack, now in zip(view.evidence.stacks, view.threads, strict=True) if now.in_collective]
    if threads:
        stack, now = next((each for each in threads if each[1].main), threads[0])
        return stack.frames, now.op, now.call
    error = view.exception
    if error is not None and error.fatal and failed_in_torch(view):
        return error.frames, "", ""
    return (), "", ""


def _newest(case: Case, rank: int) -> Collective | None:
    calls = case.ledger.calls(rank).values()
    return max(calls, key=lambda call: (call.at or 0.0, call.seq), default=None)


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
    if not known or any(_same(place, last.site[1]) for _, place in known):
        return False
    return last.call is not None or _complete(case)


def _same(one: Path, other: Path) -> bool:
    """Equal as far as both are known: where only the innermost line was recorded, that decides."""
    return one[:1] == other[:1] if 1 in (len(one), len(other)) else one == other


# ------------------------------------------------------------------------------------------ rules


def extra_call(case: Case) -> Finding | None:
    """One rank stood in a call where no rank had ever called, or had left its order of calls; the backend ended it."""
    if len(case.ranks) < 2 or not brought_down(case):
        return None
    lasts = {view.rank: last for view in case if (last := last_call(case, view)) is not None}
    if not _in_conflict(case, lasts):
        return None
    return _at_a_new_place(case, lasts) or _once_more(case, lasts)


def _in_conflict(case: Case, lasts: dict[int, Last]) -> bool:
    """Calls of different ranks met: gloo aborts for nothing else. After a timeout, a rank may not have come yet."""
    kinds = {end.word.kind if end.word is not None else None for end in endings_of(case).values() if _by_backend(end)}
    return not kinds.isdisjoint((None, Kind.SIZE_MISMATCH)) or len(lasts) == len(case.ranks)


def _by_backend(end: Ending) -> bool:
    return end.why is Why.BACKEND


def _at_a_new_place(case: Case, lasts: dict[int, Last]) -> Finding | None:
    known = _known_sites(case, (last.call for last in lasts.values()))
    new = [rank for rank, last in lasts.items() if not _of_every_step(case.ranks[rank]) and _is_new(case, last, known)]
    if len(new) != 1 or _may_follow(case, new[0]):
        return None
    view, last = case.ranks[new[0]], lasts[new[0]]
    caller = _first_unlike(last, known)
    when = f" in {words.step(view.step)}" if words.step(view.step) else ""
    line = words.place(caller)
    return _found(
        case,
        view,
        caller,
        f"{words.ranks([view.rank], capital=True)} called {_called(last, caller)}{when}; no rank had ever called a"
        " collective from there, and the call met another one of the other ranks.",
        f"no rank has an earlier collective from {line} on its board",
    )


def _first_unlike(last: Last, known: set[Site]) -> Frame | None:
    """The innermost of the user's lines, from the call outwards, from where no rank had ever come to it."""
    lines = last.site[1]
    depth = next((n for n in range(1, len(lines) + 1) if all(place[:n] != lines[:n] for _, place in known)), 1)
    file, line = lines[depth - 1]
    return next((frame for frame in last.frames if (frame.file, frame.line) == (file, line)), last.where)


def _called(last: Last, caller: Frame | None) -> str:
    """`all_reduce (train.py:9, called from train.py:38)`."""
    name = last.name or "a collective"
    if caller is None or caller == last.where:
        return f"{name}{words.at(last.where)}"
    return f"{name} ({words.place(last.where)}, called from {words.place(caller)})"


def _of_every_step(view: RankView) -> bool:
    """DDP's own collectives, in backward and in forward: no record says where they were called before."""
    return any(now.op in ("gradients", "buffers") or Within.BUFFERS in now.within for now in view.threads)


def _may_follow(case: Case, rank: int) -> bool:
    """The others may come to the place of `rank` yet: it has left a loop that they are in, or is steps ahead.

    Where the ledgers part in an earlier step, what each rank does now only follows from that.
    """
    view, found = case.ranks[rank], parting(case)
    at = view.step.step
    if found is not None and at is not None and found.divergence.step < at:
        return True
    behind = any(at is not None and other.step.step is not None and other.step.step < at for other in case)
    return behind or has_left_inner_loop(case, view) or any(other.over and not other.raised for other in case)


def _once_more(case: Case, lasts: dict[int, Last]) -> Finding | None:
    """One rank alone repeated a call within its step, against the order of all its earlier steps."""
    again = [rank for rank in lasts if _repeats(case.ranks[rank])]
    if len(again) != 1 or _may_follow(case, again[0]):
        return None
    view, last = case.ranks[again[0]], lasts[again[0]]
    what = f"{last.name or 'a collective'}{words.at(last.where)}"
    return _found(
        case,
        view,
        last.where,
        f"{words.ranks([view.rank], capital=True)} called {what} once more than usual in {words.step(view.step)}; the"
        " call met another call of the other ranks.",
        f"in all its recorded steps before, rank {view.rank} made that call once less",
        fix="never repeat a step on one rank alone once it has communicated: let all ranks vote on a retry",
    )


def _repeats(view: RankView) -> bool:
    """The last call of its present step stands where, in all recorded steps before, another one or none came."""
    steps: dict[int, list[Site]] = {}
    for call in view.reading.calls if view.reading is not None else ():
        if call.step is not None and (place := site(call)) is not None:
            steps.setdefault(call.step, []).append(place)
    present = steps.pop(view.step.step, []) if view.step.step is not None else []
    whole = list(steps.values())[1:]  # the ring may have lost the beginning of the oldest
    if not present or len(whole) < 2 or any(other != whole[0] for other in whole):
        return False
    usual, done = whole[0], len(present) - 1
    return present[:done] == usual[:done] and present[done] in usual[:done] and present[done] not in usual[done:]


def _found(case: Case, view: RankView, where: Frame | None, summary: str, why: str, fix: str = "") -> Finding:
    others = tuple(rank for rank in case.ranks if rank != view.rank)
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        summary,
        fix=fix,
        culprits=(view.culprit(where),),
        victims=others,
        step=view.step,
        evidence=(why, *_ends(case)),
        details=_came_of_it(case),
        status=Status.FAILED,
    )


def _ends(case: Case) -> tuple[str, ...]:
    """The endings, those that a line of output explains first."""
    ends = sorted(endings_of(case).items(), key=lambda item: (item[1].word is None, item[0]))
    return tuple(f"rank {rank} {told(case.ranks[rank], end)}" for rank, end in ends[: words.SHOWN])


def _came_of_it(case: Case) -> tuple[str, ...]:
    ended = [rank for rank, end in endings_of(case).items() if _by_backend(end)]
    return (
        (f"{case.name(ended, capital=True)} {told(case.ranks[ended[0]], endings_of(case)[ended[0]])}.",)
        if ended
        else ()
    )


# ------------------------------------------------------------------------------------------ no reason to be seen


def never_enqueued(case: Case) -> Finding | None:
    """torch's NCCL watchdog ended ranks that waited: awaited were those that had never enqueued the collective.

    Which ranks kept the others waiting is likely then, though why they did is not known.
    """
    found = next(((view, word) for view in case for word in words_of(view) if _tells_work(word)), None)
    if found is None:
        return None
    view, word = found
    absent = _absent(case, view, word)
    aborted_ranks = [rank for rank, end in endings_of(case).items() if _by_backend(end) and rank not in absent]
    limit = f" within {words.duration(word.timeout_s)}" if word.timeout_s is not None else ""
    where = words.at(case.usual_place(absent))
    never = f"; {case.name(absent)} never called it{where}" if absent else "; which rank it waited for is not known"
    return Finding(
        "undetermined",
        Certainty.LIKELY if absent else Certainty.UNDETERMINED,
        f"torch's NCCL watchdog ended {case.name(aborted_ranks or [view.rank])}, because {word.op or 'collective'}"
        f" {word.seq} did not complete{limit}{never}.",
        fix="look at what these ranks did instead, at the time of the call" if absent else "",
        culprits=tuple(case.ranks[rank].culprit() for rank in absent),
        victims=tuple(rank for rank in case.ranks if rank not in absent),
        step=case.furthest_step(aborted_ranks or [view.rank]),
        evidence=(f"rank {view.rank} wrote: {word.line}",),
        status=Status.FAILED,
    )


def _tells_work(word: LastWord) -> bool:
    return word.kind is Kind.WATCHDOG and word.seq is not None


def _absent(case: Case, view: RankView, word: LastWord) -> list[int]:
    """Members that had not enqueued that number, by their boards. None where the group is not told apart."""
    named = word.group.partition("(")[0]
    groups = [group for group in case.ledger.groups_of(view.rank) if named in ("", group.name)]
    if len(groups) != 1 or word.seq is None:
        return []
    issued = {rank: groups[0].issued(rank) for rank in groups[0].members}
    return sorted(rank for rank, count in issued.items() if rank in case.ranks and (count or 0) < word.seq)


def reason_not_known(case: Case) -> Finding | None:
    """A backend ended ranks, or connections broke, and nothing that is recorded says why: nobody is blamed."""
    ends = endings_of(case)
    if case.absent or not brought_down(case) or any(view.finished for view in case) or _ended_from_outside(case):
        return None
    first = min(ends, key=lambda rank: (ends[rank].why is not Why.BACKEND, ends[rank].why is not Why.PEER, rank))
    view = case.ranks[first]
    last = last_call(case, view)
    inside = f" in {last.name or 'a collective'}{words.at(last.where)}" if last is not None else ""
    when = words.step(view.step)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{words.ranks([first], capital=True)} {told(view, ends[first])}{inside}{f', {when}' if when else ''}; the"
        " reason is not known: a call of any member of the group can be the cause.",
        fix="read the last lines of every rank's output; compare what the ranks call in this step",
        victims=tuple(case.ranks),
        step=view.step if when else StepName(),
        evidence=_ends(case),
        status=Status.FAILED,
    )


def _ended_from_outside(case: Case) -> bool:
    """A rank was gone by SIGTERM before any other failed: the others lost it, and no backend ended anything."""
    ends = endings_of(case)
    if any(end.why is Why.BACKEND for end in ends.values()):
        return False
    lost = [error.at for rank, end in ends.items() if end.why is Why.PEER and (error := case.ranks[rank].exception)]
    asked = [death_time(case.ranks[rank]) for rank, end in ends.items() if end.why is Why.LAUNCHER]
    return bool(asked) and min(asked) <= min(lost, default=0.0)


GONE: tuple[Rule, ...] = (extra_call,)
LAST: tuple[Rule, ...] = (never_enqueued, reason_not_known)
