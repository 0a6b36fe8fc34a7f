"""Ranks that left the loop over their data, or stopped after an epoch, with data left."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import (
    Uneven,
    at_its_loader,
    drawn_words,
    first_uneven,
    forwards,
    has_left_loop,
    is_fed,
    loop_of_the_others,
    now_at,
    runs_below_a_package,
    worked_on,
)
from hangwatch.facts.data.early_ends import ended_early
from hangwatch.facts.loops.epochs import EndedEpochs, are_over, ended_epochs
from hangwatch.facts.loops.switches import ending
from hangwatch.facts.loops.ways_out import ways_out, ways_out_of_outer
from hangwatch.facts.processes.ended_ahead import are_ahead
from hangwatch.facts.processes.process_end import ended_before_others, ended_for, how_it_ended, last_place
from hangwatch.facts.rank_end import Why
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, LoopFacts, Status, StepName
from hangwatch.ranks.view import RankView
from hangwatch.rules.another_loop import ended_the_loop
from hangwatch.rules.finding import Finding
from hangwatch.rules.resumed import FIX_RESUMED, resumed_later
from hangwatch.rules.turns import left_after_fewer_turns
from hangwatch.stacks.frames import user_frame


def early_exit(case: Case) -> Finding | None:
    """A rank left a loop whose data was not exhausted, while others went on in it."""
    uneven = first_uneven(case)
    if uneven is None or not case.in_trouble:
        return None
    left = uneven.left_with_data
    if not left or len(left) == len(uneven.drawn):
        return None
    loop = loop_of_the_others(case, left)
    if loop is not None and loop.swallows is not None and not loop.leaves:
        return None  # the source shows no way out but an error
    its = "its" if len(left) == 1 else "their"
    where = case.usual_place(left)
    first = case.ranks[left[0]]
    resumed = resumed_later(case, uneven)
    witnesses, or_error = _left_with_data(case, uneven, left), _by_an_error(case, left)
    return Finding(
        "early-exit",
        Certainty.LIKELY if or_error else case.weigh(witnesses),
        f"{case.name(left, capital=True)} left the training loop after"
        f" {_until_then(first, uneven, its)}{resumed}{now_at(case, left, where)}; the others went on.",
        fix=FIX_RESUMED if resumed else "",
        culprits=case.culprits_at(left, at_its_loader),
        step=first.step if is_fed(first, uneven) else _batch_left(first, uneven),
        evidence=_ways_out_of(case, left, loop),
        witnesses=witnesses,
        details=(f"{or_error[0].upper()}{or_error[1:]}.",) if or_error else (),
    )


def _until_then(view: RankView, uneven: Uneven, its: str) -> str:
    if is_fed(view, uneven):
        return words.plural(forwards(view), "forward")
    count = words.plural(worked_on(view, uneven), "batch")
    return f"{count} of epoch {uneven.epoch}, before {its} data was exhausted"


def _left_with_data(case: Case, uneven: Uneven, left: tuple[int, ...]) -> tuple[Witness, ...]:
    """That data was left is a fact where the loader has a length; else an iterator that was dropped speaks for it."""
    loaders = {rank: loader for rank in left if (loader := case.ranks[rank].loader) is not None}
    known = all(loader.length and uneven.drawn[rank].count < loader.length for rank, loader in loaders.items())
    kind = Kind.FACT if loaders and known else Kind.HABIT
    return tuple(Witness(kind, sentence) for sentence in drawn_words(case, uneven))


def _ways_out_of(case: Case, left: tuple[int, ...], loop: LoopFacts | None) -> tuple[str, ...]:
    """How the loop over the data can be left, where that is the one in which the others stand."""
    drawn = [
        view.loader.where for view in case.views(left) if view.loader is not None and view.loader.where is not None
    ]
    if loop is None or not any(place.source_line == loop.where.source_line for place in drawn):
        return ()
    return ways_out(replace(loop, exits=(), skips=()))


def _by_an_error(case: Case, left: tuple[int, ...]) -> str:
    """An error that was caught outside of the loop leaves no trace, and takes a rank out of it as well."""
    loop = loop_of_the_others(case, left)
    if loop is not None and loop.swallows is not None:
        return f"an error would have ended it as well, and be caught at {words.place(loop.swallows)}"
    if runs_below_a_package(case, left):
        return "the loop is a package's: whether an error ended it cannot be read in the source"
    return ""


def _batch_left(view: RankView, uneven: Uneven) -> StepName:
    """The first batch that it did not train on: the last one that it drew, if the others work on that one too."""
    count = worked_on(view, uneven)
    batch = count if uneven.most > uneven.drawn[view.rank].count else max(count - 1, 0)
    steps = view.evidence.board_steps
    last = next((entry.step for entry in steps if (entry.epoch, entry.batch) == (uneven.epoch, count - 1)), None)
    return StepName(uneven.epoch, batch, None if last is None else last + batch - (count - 1))


def ended_its_epoch_early(case: Case) -> Finding | None:
    """A rank is in a call of the end of an epoch, with data left, while the others are in those of a step."""
    left = ended_early(case)
    loaders = [view.loader for view in case.views(left) if view.loader is not None]
    if not loaders:
        return None
    first, one = case.ranks[left[0]], len(left) == 1
    others = [rank for rank in case.blocked if rank not in left]
    return Finding(
        "early-exit",
        Certainty.LIKELY,
        f"{case.name(left, capital=True)} left epoch {loaders[0].epoch} after"
        f" {words.plural(loaders[0].drawn, 'batch')} of {loaders[0].length}, and {'is' if one else 'are'} in a call of"
        f" its end{words.at(first.where)}; {case.wait_words(others)} in a step{words.at(case.usual_place(others))}.",
        culprits=case.culprits(left),
        victims=tuple(others),
        step=first.step,
        evidence=(f"in all epochs on record, ranks called from {words.place(first.where)} in the last step alone",),
    )


def stopped_after_epoch(case: Case) -> Finding | None:
    """A rank left the loop over epochs after the same batches as all, while others began the next epoch."""
    found = ended_epochs(case)
    if found is None or found.at_one_end or found.closed is not None:
        return None
    first = case.ranks[found.left[0]]
    others = case.name(found.others)
    went_on, began = (
        (f"went on to epoch {found.last}", f"began epoch {found.last}")
        if found.last > found.epoch
        else (
            f"{words.verb(len(found.others), 'is', 'are')} still in the trainer's loop",
            "drew all batches of that epoch as well",
        )
    )
    ends = ending(case, found.left, found.others)
    switch = (f"{ends.told} ends that loop",) if ends is not None else ()
    did = "stopped training" if has_left_loop(case, first) else "left the loop over the epochs"
    return Finding(
        "early-exit",
        case.weigh(witnesses := _ended_its_epochs(case, found)),
        f"{case.name(found.left, capital=True)} {did} after epoch"
        f" {found.epoch}{now_at(case, found.left, first.where)}; {others} {went_on}.",
        culprits=case.culprits_at(found.left, at_its_loader),
        step=StepName(found.epoch + 1, 0, None if first.step.step is None else first.step.step + 1),
        evidence=(f"{others} {began}", *switch, *ways_out_of_outer(found.loop)),
        witnesses=witnesses,
    )


def _ended_its_epochs(case: Case, found: EndedEpochs) -> tuple[Witness, ...]:
    """Only a rank whose training is over has ended it for certain; one that stands outside of the loop may return."""
    kind = Kind.FACT if are_over(case, found.left) else Kind.SOURCE
    return (Witness(kind, f"{case.name(found.left)} ended epoch {found.epoch} and began no other"),)


def fewer_steps(case: Case) -> Finding | None:
    """A rank made fewer steps than the others, and the source of its loop shows where it can be left."""
    return left_after_fewer_turns(case, "early-exit")


def ended_alone(case: Case) -> Finding | None:
    """The fewer ranks ended their program as they should, and the others failed for want of them in a common call.

    What most ranks still do is the common way, so those that ended have left it; of two halves that cannot be said.
    """
    found = ended_before_others(case)
    if found is None or len(found[0]) >= len(found[1]) or len(case.ranks) < case.size:
        return None
    ended, failed = found
    if any(ended_for(case.ranks[rank]) is Why.ITSELF for rank in failed) or are_ahead(case, ended, failed):
        return None
    error = next((error for rank in failed if (error := case.ranks[rank].exception) is not None), None)
    where = words.at(user_frame(error.frames)) if error is not None else ""
    code = ", with exit code 0," if all(view.exit_code == 0 for view in case.views(ended)) else ""
    return Finding(
        "early-exit",
        Certainty.LIKELY,
        f"{case.name(ended, capital=True)} ended {'its' if len(ended) == 1 else 'their'} program{code}"
        f" while {case.name(failed)} still called collectives{where}: they failed for want of {case.name(ended)}.",
        culprits=case.culprits_at(ended, last_place),
        victims=tuple(failed),
        step=case.furthest_step(failed),
        evidence=tuple(how_it_ended(view) for view in case.views((*ended, *failed))[: words.SHOWN]),
        witnesses=(Witness(Kind.MAJORITY, f"most ranks had not ended: {case.name(failed)}"),),
        status=Status.FAILED,
    )


def left_another_loop(case: Case) -> Finding | None:
    """Ranks left the loop over another loader, such as a validation's, with data left in it."""
    return ended_the_loop(case, "early-exit")
