"""An error on one rank: recorded, or shown by a wait below `except` or `finally`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import call_at
from hangwatch.facts.calls.last_calls import brought_down
from hangwatch.facts.calls.shifted_calls import Shifted, shifted
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import drawn_words, first_uneven, loop_of_the_others, now_at
from hangwatch.facts.differences.caught_errors import last_caught
from hangwatch.facts.processes.gathered_errors import gathered
from hangwatch.facts.processes.leaving import awaited_threads, keeps_its_process
from hangwatch.facts.processes.loader_errors import as_raised, loader_error
from hangwatch.facts.processes.locks import held_lock
from hangwatch.facts.processes.own_code import tries_again
from hangwatch.facts.processes.process_end import STOPPED_BY_A_PERSON
from hangwatch.facts.rank_end import error_at, follows
from hangwatch.model import Certainty, ExceptionFacts, Frame, Phase, Status
from hangwatch.ranks.issuers import MAIN
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.turns import left_after_fewer_turns
from hangwatch.stacks.activity import Doing, Within
from hangwatch.stacks.frames import origin, user_frame

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+")


def exception_on_one_rank(case: Case) -> Finding | None:
    """A rank raised an error of its own, and no longer takes part."""
    raised = [(view, found) for view in case if (found := own_error(view)) is not None]
    if not any(error.fatal for _, error in raised) and 2 * len(raised) > len(case.ranks):
        raised = []  # what most ranks handle at the same time is how the program works, e.g. main() below an except
    told = case.blocked or any(
        error.fatal or (not view.over and _waits_for_its_thread(view, error)) for view, error in raised
    )
    if raised and told:
        _, error = min(raised, key=lambda pair: (pair[1].at or float("inf"), pair[0].rank))
        if failed := {rank: text for rank, text in gathered(error).items() if rank in case.ranks}:
            return _gathered(case, failed, error)
        alike = [other.rank for other, each in raised if _is_alike(each, error)]
        if len(alike) == len(case.ranks) > 1:
            return _of_all(case, alike, error)
        same = [other for other, each in raised if _is_alike(each, error) and _text(each) == _text(error)]
        return _recorded(case, same, error, [other.rank for other, _ in raised if other not in same])
    return _hidden(case)


def _is_alike(one: ExceptionFacts, other: ExceptionFacts) -> bool:
    return one.type == other.type and user_frame(one.frames) == user_frame(other.frames)


def _text(error: ExceptionFacts) -> str:
    """Its message without what is each rank's own: numbers and addresses."""
    return _NUMBERS.sub("#", error.message)


def _gathered(case: Case, failed: Mapping[int, str], error: ExceptionFacts) -> Finding:
    """Each of these ranks failed by itself in its part of a call, and torch raised that on all of them."""
    where, text = user_frame(error.frames), words.shortened(next(iter(failed.values())), words.LONGEST)
    others = [rank for rank in case.ranks if rank not in failed]
    everywhere = f"; torch raised it on {case.name(others)} as well" if others else ""
    return Finding(
        "exception-on-one-rank",
        Certainty.PROVEN,
        f"{case.name(failed, capital=True)} failed with {text.removesuffix('.')}{words.at(where)}{everywhere}.",
        fix=f"mend what raised it there{words.at(where)}",
        culprits=case.culprits(failed, where),
        victims=tuple(others),
        step=case.furthest_step(case.ranks),
        evidence=tuple(
            f"torch gathered from rank {rank}: {words.shortened(text, words.LONGEST)}"
            for rank, text in list(failed.items())[: words.SHOWN]
        ),
        status=case.failed_status,
    )


def _of_all(case: Case, ranks: list[int], error: ExceptionFacts) -> Finding:
    """No rank is alone with the error, and which one came to it first says nothing.

    The program fails there, or calls were mispaired before and gave each rank what was meant for another call.
    """
    text = error_at(error)
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} raised {text}: the program fails there on each of them, or what they had"
        " received before was not what was sent for that call.",
        fix="read the error; where it tells of a shape or value that no rank has by itself, look for a collective that"
        " one rank skipped or made alone before",
        victims=(),
        step=case.furthest_step(ranks),
        evidence=tuple(f"rank {rank} recorded {error.type} there" for rank in ranks[: words.SHOWN]),
        status=case.failed_status,
        awaited=tuple(ranks),
    )


def own_error(view: RankView) -> ExceptionFacts | None:
    """The exception that keeps this rank from taking part; None for one that follows from another rank's end."""
    error = view.exception
    if error is None or error.type in STOPPED_BY_A_PERSON or follows(error):
        return None
    return as_raised(error) if error.fatal or _is_pending(view, error) else None


def _is_pending(view: RankView, error: ExceptionFacts) -> bool:
    """It is the user's, and the rank has done nothing since it was seen: it is being handled while the rank waits."""
    own = any(origin(frame.file) in ("user", "package") for frame in error.frames)
    return (
        own
        and not _is_retried(view, error)
        and view.reading is not None
        and (not view.progressed_since(error) or _waits_for_its_thread(view, error))
    )


def _waits_for_its_thread(view: RankView, error: ExceptionFacts) -> bool:
    """The error ended a thread, and the rank waits for what only its own process could have given: a lock, a queue."""
    ended = error.thread not in ("", MAIN, *(stack.name for stack in view.evidence.stacks))
    return ended and view.sleeps_privately and not view.now.in_collective and bool(view.evidence.stacks)


def _is_retried(view: RankView, error: ExceptionFacts) -> bool:
    """It waits for a lock, or pauses in the function that raised the error."""
    return held_lock(view) is not None or tries_again(view, error)


def _handles(view: RankView) -> bool:
    """It stands in an except block, or in the finally of a loop that had not ended."""
    if view.now.block == "except":
        return True
    loader = view.loader
    unfinished = loader is not None and not loader.exhausted and not loader.left
    return view.now.block == "finally" and ((unfinished and not view.now.in_loop) or left_its_forward(view))


def left_its_forward(view: RankView) -> bool:
    """Its model's forward has begun and not returned, and its thread is in a call elsewhere: an error went through it.

    Of a call on its board the frames between the user's lines are not known, and with them whether forward is one.
    """
    stack = next((stack for stack in view.evidence.stacks if stack.main), None)
    if view.phase is not Phase.FORWARD or stack is None or stack.source == "board":
        return False
    return view.now.in_collective and not {Within.FORWARD, Within.BACKWARD, Within.BUFFERS} & view.now.within


def caught_in_forward(case: Case) -> Finding | None:
    """The forward of few ranks failed, and they went on to a later call; the others came from that forward to backward.

    Where all have come to that call, its number says so: it is lower on the ranks that left out backward.
    """
    views = [view for view in case if left_its_forward(view)]
    others = [view for view in case if view not in views]
    if not views or len(views) > len(others) or not case.in_trouble:
        return None
    ranks, found = tuple(view.rank for view in views), shifted(case)
    came_early = found is not None and found.ranks == ranks
    returned = all(_returned_from_it(other, views[0]) for other in others)
    if not came_early and (case.blocked or not returned):
        return None  # a rank that lives, and has begun no backward yet, may have returned from its forward
    names, rest = case.name(ranks), case.name([other.rank for other in others])
    call = f"{views[0].now.call or 'a collective'}{words.at(views[0].where)}"
    went = f"{'it' if len(views) == 1 else 'they'} went on to {call} without backward"
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"An error left the forward of {names} and was caught: {went}, which {rest} called.",
        culprits=case.culprits_at(ranks, _where_raised),
        victims=tuple(other.rank for other in others),
        step=views[0].step,
        evidence=(
            *(f"rank {view.rank} recorded {error}" for view in views if (error := _recorded_last(view))),
            f"the last forward of {names} began and did not return{f'; that of {rest} returned' if returned else ''}",
            *(_numbers(case, found) if came_early and found is not None else ()),
        ),
        status=case.failed_status,
    )


def _where_raised(view: RankView) -> Frame | None:
    error = last_caught(view)
    return user_frame(error.frames) if error is not None else None


def _recorded_last(view: RankView) -> str:
    error = last_caught(view)
    return error_at(error) if error is not None else ""


def _returned_from_it(other: RankView, view: RankView) -> bool:
    """It has begun as many forwards, and is in the backward that follows."""
    if view.reading is None or other.reading is None or other.phase is not Phase.BACKWARD:
        return False
    return other.reading.progress.forwards == view.reading.progress.forwards


def _numbers(case: Case, found: Shifted) -> tuple[str, ...]:
    where = f"{call_at(found.call)} was number {found.call.seq}"
    on = f"on {case.name(found.ranks)}, and {found.call.seq + found.missing} on {case.name(found.others)}"
    return (f"{where} of group {found.group.name} {on}; the time before, it had one number on all of them",)


def left_with_a_loader_error(case: Case) -> Finding | None:
    """A DataLoader of few ranks raised an error, and they have drawn no batch since: it took them out of their loop."""
    found = [(view, error) for view in case if (error := loader_error(view)) is not None]
    if not found or 2 * len(found) > len(case.ranks) or not case.in_trouble:
        return None
    if case.any_rank_failed and not brought_down(case):
        return None  # a rank ended by an error of its own
    view, error = found[0]
    told = _recorded(case, [view], error, [])
    what = f"rank {view.rank} has drawn no batch since{_of_batches(view)}"
    return replace(
        told,
        culprits=tuple(each.culprit(user_frame(raised.frames)) for each, raised in found),
        evidence=(*told.evidence, what),
        status=case.failed_status,
    )


def _of_batches(view: RankView) -> str:
    loader = view.loader
    if loader is None or not loader.length:
        return ""
    return f": it had drawn {loader.drawn} of {words.plural(loader.length, 'batch')}"


def _recorded(case: Case, views: list[RankView], error: ExceptionFacts, later: list[int]) -> Finding:
    """The ranks of `views` raised that same error, each by itself; `later` raised others after them."""
    ranks, where, text = tuple(view.rank for view in views), user_frame(error.frames), words.error(error)
    first, it = views[0], words.verb(len(views), "it", "them")
    waiting = case.victims(ranks)
    living = [other for other in case if not other.dead and other.rank not in ranks]
    alone = first if len(views) == 1 and not first.dead else None
    now = f" and is now at {words.place(alone.where)}" if alone is not None and alone.where is not None else ""
    tail = f"; {case.wait_words(waiting)} for {it}" if waiting else ""
    thread = "" if error.thread in ("", MAIN) else f" in thread {error.thread!r}"
    kept = next((kept for view in views if (kept := _kept_by_a_thread(view))), "")
    return Finding(
        "exception-on-one-rank",
        Certainty.PROVEN if error.fatal else Certainty.LIKELY,
        f"{case.name(ranks, capital=True)} raised {text}{words.at(where)}{thread}{now}{tail}.{kept}",
        fix="mend the error, and end that thread in a finally block, or make it a daemon" if kept else _fix(error),
        culprits=case.culprits(ranks, where),
        victims=waiting,
        step=first.step,
        evidence=tuple(
            f"rank {view.rank} recorded {error_at(own_error(view) or error)}" for view in views[: words.SHOWN]
        ),
        details=(f"{case.name(later, capital=True)} raised errors after {it}.",) if later else (),
        status=Status.FAILED if first.dead and len(waiting) < len(living) else None,
    )


def _fix(error: ExceptionFacts) -> str:
    """ "" for the usual words, which are for an error that was caught, while its rank went on."""
    if error.thread not in ("", MAIN):
        return (
            "mend the error; let an error of that thread end the process (as by os._exit(1) in a threading.excepthook):"
            " the launcher then ends all ranks"
        )
    return f"mend what raised it{words.at(user_frame(error.frames))}" if error.fatal else ""


def _kept_by_a_thread(view: RankView) -> str:
    """A thread keeps the process of a rank whose main program has failed, so that its launcher learns of no end."""
    threads = awaited_threads(view) if view.main.doing is Doing.JOIN_THREADS and not view.dead else []
    if not threads or (len(threads) > 1 and not view.lasting_threads):
        return ""  # of several it is not known which are no daemons, unless the rank itself says so
    return f" The process of rank {view.rank} has not ended: {keeps_its_process(threads[0])}."


def _hidden(case: Case) -> Finding | None:
    """Nothing was recorded, but a rank waits where only an error leads, and the others do not."""
    hiding = [view for view in case if view.rank in case.blocked and _handles(view)]
    if not hiding or 2 * len(hiding) > len(case.blocked) or len(hiding) == len(case.ranks):
        return None
    culprits = [view.rank for view in hiding]
    first = hiding[0]
    victims = case.victims(culprits)
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.say(culprits, 'handles', 'handle', capital=True)} an error: it waits in"
        f" {first.now.call or 'a collective'}{words.at(first.where)} inside {_block(first)};"
        f" {case.wait_words(victims)} elsewhere{words.at(case.usual_place(victims))}.",
        culprits=case.culprits(culprits),
        victims=victims,
        step=first.step,
        evidence=tuple(
            f"rank {view.rank} stands in {_block(view)} at {words.place(view.where)}" for view in hiding[:8]
        ),
    )


def _block(view: RankView) -> str:
    return "an except block" if view.now.block == "except" else "a finally block, before its work had ended"


def caught_around_its_loop(case: Case) -> Finding | None:
    """A rank left a loop with data left, and the source shows no way out of it but an error that is caught."""
    uneven = first_uneven(case)
    if uneven is None or not case.in_trouble:
        return None
    left = uneven.left_with_data
    loop = loop_of_the_others(case, left)
    if not left or len(left) == len(uneven.drawn) or loop is None or loop.swallows is None or loop.leaves:
        return None
    count = words.plural(uneven.drawn[left[0]].count, "batch")
    first = case.ranks[left[0]]
    return Finding(
        "exception-on-one-rank",
        Certainty.LIKELY,
        f"{case.name(left, capital=True)} left the training loop after {count} of epoch {uneven.epoch}"
        f"{now_at(case, left, first.where)}: an error, caught at {words.place(loop.swallows)}, is the only other way"
        " out of it; the others went on.",
        culprits=case.culprits(left),
        step=first.step,
        evidence=(*drawn_words(case, uneven), f"the loop at {words.place(loop.where)} has no break and no return"),
    )


def swallowed(case: Case) -> Finding | None:
    """A rank made fewer steps than the others, and the source shows where an error would be swallowed."""
    return left_after_fewer_turns(case, "exception-on-one-rank")
