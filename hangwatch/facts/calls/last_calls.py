"""The call in which each rank stood at its end: by its last stack, the error that ended it, or its board."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.call_site import Path, Site, comes_before, recorded_site, same, site_of
from hangwatch.facts.calls.skip_paths import reached_by_all
from hangwatch.facts.case import Case, once
from hangwatch.facts.rank_end import Ending, Why, aborted, ending, failed_in_torch, told
from hangwatch.model import Collective, Frame
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import name_of, user_frame

LIBRARY = re.compile(r"/torch/distributed/checkpoint/(state_dict|state_dict_saver|state_dict_loader)\.py$")
_REDISTRIBUTES = re.compile(r"/torch/distributed/tensor/_redistribute\.py$")
_WRAPPERS = re.compile(r"/torch/distributed/(c10d_logger|checkpoint/(logger|utils))\.py$")  # of functions of torch


@once
def endings_of(case: Case) -> dict[int, Ending]:
    """The endings of all ranks that have ended in the middle of their work, or are failing."""
    return {view.rank: ending(view) for view in case if view.failed}


def brought_down(case: Case) -> bool:
    """No rank is known to have ended by a fault of its own: the backend ended one, or one lost another one.

    The backend may end one that has come to the end of its program as well: the launcher ends the others then.
    """
    ends = endings_of(case)
    unsaid = {rank for rank, end in ends.items() if _aborted_unsaid(case.ranks[rank], end)}
    own = [rank for rank, end in ends.items() if end.why is Why.ITSELF and rank not in unsaid]
    if not all(failed_in_torch(case.ranks[rank]) for rank in own):
        return False
    at_its_end = bool(ends) and any(view.finished and aborted(view) for view in case)
    return at_its_end or bool(unsaid) or any(end.of_another for end in ends.values())


def _aborted_unsaid(view: RankView, end: Ending) -> bool:
    """It was aborted, and nobody says why: its backend does so."""
    return end.why is Why.ITSELF and aborted(view) and not view.raised and end.word is None


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
    frames, op, name = frames_at_end(view)
    if not frames:
        return None
    name = library_call(frames) or name
    call = newest(case, view.rank)
    if call is not None and same(recorded_site(call), site_of("", frames)):
        return Last(site_of(call.op, frames), frames, name or call.op, call)
    return Last(site_of(op, frames), frames, name or op or entered(frames))


def last_calls(case: Case) -> dict[int, Last]:
    return {view.rank: last for view in case if (last := last_call(case, view)) is not None}


def may_be_ahead(view: RankView, here: Path, others: Iterable[Path]) -> bool:
    """Others stood before the call of `view` in the source, and nothing counts in how many turns they went by it."""
    return view.step.step is None and any(comes_before(there, here) for there in others)


def may_have_come_first(case: Case, rank: int, lasts: dict[int, Last]) -> bool:
    """`may_be_ahead` by the calls in which ranks ended."""
    others = (last.site.lines for other, last in lasts.items() if other != rank)
    return rank in lasts and may_be_ahead(case.ranks[rank], lasts[rank].site.lines, others)


def is_early_at(case: Case, view: RankView, here: Path, others: Mapping[int, Path]) -> bool:
    """No condition leads to the call of `view`, and others stood before that, in no later step: they come there too."""
    at = view.step.step
    later = any(
        at is not None and step is not None and step > at for step in (case.ranks[rank].step.step for rank in others)
    )
    return not later and reached_by_all(case, view) and any(comes_before(there, here) for there in others.values())


def library_call(frames: tuple[Frame, ...]) -> str:
    """The function of torch that the user called and that communicates by itself, such as get_model_state_dict."""
    called = next(_called(frames), None)
    return name_of(called.function) if called is not None and LIBRARY.search(called.file) else ""


def entered(frames: tuple[Frame, ...]) -> str:
    """The function that the user's code called, for calls that no operation's name stands for."""
    return next((name_of(frame.function) for frame in _called(frames)), "")


def _called(frames: tuple[Frame, ...]) -> Iterator[Frame]:
    """What the user's line called, and what that called, outermost first."""
    where = user_frame(frames)
    depth = frames.index(where) if where is not None else 0
    return (frame for frame in frames[:depth][::-1] if not _WRAPPERS.search(frame.file))


def frames_at_end(view: RankView) -> tuple[tuple[Frame, ...], str, str]:
    threads = [(stack, now) for stack, now in zip(view.evidence.stacks, view.threads, strict=True) if now.in_collective]
    if threads:
        stack, now = next((each for each in threads if each[1].main), threads[0])
        return stack.frames, now.op, now.call
    if view.dead and (frames := _redistributing(view)):
        return frames, "", ""
    error = view.exception
    if error is not None and error.fatal and failed_in_torch(view):
        return error.frames, "", ""
    return (), "", ""


def _redistributing(view: RankView) -> tuple[Frame, ...]:
    """The main thread's last stack, within the collectives that a DTensor's redistribution makes from C++ code.

    A backend's own thread aborts the process, while the main thread is on its way from one of these calls to the next.
    """
    stacks = (stack.frames for stack in view.evidence.stacks if stack.main)
    return next((each for each in stacks if any(_REDISTRIBUTES.search(frame.file) for frame in each)), ())


def newest(case: Case, rank: int) -> Collective | None:
    calls = case.ledger.calls(rank).values()
    return max(calls, key=lambda call: (call.at or 0.0, call.seq), default=None)


def end_sentences(case: Case) -> tuple[str, ...]:
    """The endings, those that a line of output explains first."""
    ends = sorted(endings_of(case).items(), key=lambda item: (item[1].word is None, item[0]))
    return tuple(f"rank {rank} {told(case.ranks[rank], end)}" for rank, end in ends[: words.SHOWN])
