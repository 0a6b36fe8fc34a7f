"""Ranks that ran out of data: their loaders held fewer batches than those of other ranks."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.call_site import call_at
from hangwatch.facts.calls.joined import joined_too_early
from hangwatch.facts.case import Case
from hangwatch.facts.data.batches import (
    Uneven,
    at_its_loader,
    drawn_words,
    first_uneven,
    forwards,
    now_at,
    resumed_earlier,
    runs_below_a_package,
)
from hangwatch.facts.data.loaders import look_words, sampler_words
from hangwatch.facts.differences.other_loaders import uneven_elsewhere, uneven_still
from hangwatch.facts.differences.parting import counted, parting
from hangwatch.facts.loops.epochs import ended_epochs
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import EPOCHS_KEPT, Certainty, LoaderFacts, StepName
from hangwatch.ranks.joined import JOIN
from hangwatch.ranks.ledger import Step
from hangwatch.ranks.sides import by_value, odd_of
from hangwatch.ranks.view import RankView
from hangwatch.rules.another_loop import FIX, ended_the_loop
from hangwatch.rules.finding import Finding
from hangwatch.rules.resumed import FIX_RESUMED, resumed_later
from hangwatch.rules.turns import left_after_fewer_turns
from hangwatch.stacks.frames import user_frame

_FIX_IN_JOIN = (
    "Join stands in for DDP's own collectives alone: take the loop's other ones out of it, or give every rank the same"
    " number of batches: DistributedSampler(..., drop_last=True)"
)


# Where DDP makes none of the calls: Join stands in for nothing there.
_FIX_SIZES = (
    "use one batch size on every rank, or give each rank a share of the samples that fits its own, and as many batches"
    " for each optimizer step"
)
_OF_A_STREAM = (
    "a dataset that is a stream divides itself, so agree on the smallest count first (all_reduce of it with"
    " op=dist.ReduceOp.MIN) and end each rank's share there, or repeat samples up to the largest one"
)


def uneven_steps(case: Case) -> Finding | None:
    """Some ranks ran out of data in an epoch in which others drew more."""
    uneven = first_uneven(case)
    if uneven is None or not all(uneven.drawn[rank].exhausted for rank in uneven.short) or not _matters(case, uneven):
        return None
    culprits = short = uneven.short
    first = case.ranks[culprits[0]]
    now = {view.loader.epoch for view in case if view.loader is not None}
    late = max(now) > uneven.epoch
    where = case.usual_place(short)
    loop = words.at(first.loader.where) if first.loader is not None else ""
    after = " and has left the loop" if len(short) == 1 else " and have left the loop"
    tail = (
        f"; the calls of later batches were mispaired until epoch {max(now)}"
        if late
        else f"{after}{loop}{now_at(case, short, where)}"
    )
    one = len(short) == 1
    total = f"{'' if _is_total(case, uneven) else 'at least '}{words.plural(_total(case, uneven), 'batch')}"
    sizes, resumed = _batch_sizes(case, uneven), resumed_earlier(case, uneven)
    witnesses = _as_facts(case, uneven)
    if resumed and len(resumed) < len(short):
        culprits = resumed
        witnesses = (*witnesses, Witness(Kind.MAJORITY, f"most ranks resumed at a later batch: {case.name(short)}"))
    return Finding(
        "uneven-steps",
        case.weigh(witnesses) if culprits is short else Certainty.LIKELY,
        f"{case.name(short, capital=True)} ran out of data: {'it' if one else 'they'} drew {_as_many(uneven)} of"
        f" {total} in epoch {uneven.epoch}{resumed_later(case, uneven)}{tail}.",
        fix=FIX_RESUMED if resumed else _fix(case, culprits, sizes),
        culprits=case.culprits_at(culprits, at_its_loader),
        step=StepName(uneven.epoch, uneven.fewest, _step_of(first, uneven)),
        evidence=(*((sizes,) if sizes else ()), *sampler_words(case, short), *look_words(case)),
        witnesses=witnesses,
        awaited=short,
    )


def uneven_epochs(case: Case) -> Finding | None:
    """Some ranks are through with a loop over epochs that others go on in, and by its source it ends at its end only.

    Where it begins may differ as well as where it ends: which side is at fault the fewer ranks tell, if anything does.
    """
    found = ended_epochs(case)
    if found is None or found.at_one_end or found.closed is None:
        return None
    odd, others = odd_of(found.left, found.others), case.name(found.others)
    first, loop = case.ranks[found.left[0]], words.place(found.closed)
    most = max(found.left, found.others, key=len)
    by_majority = Witness(Kind.MAJORITY, f"most ranks made as many epochs: {case.name(most)}")
    return Finding(
        "uneven-steps",
        Certainty.LIKELY,
        f"The ranks make different numbers of turns in the loop at {loop}: {case.name(found.left)} ended it after epoch"
        f" {found.epoch}{now_at(case, found.left, first.where)}; {others} went on to epoch {found.last}.",
        fix="begin and end the loop over the epochs alike on all ranks: broadcast the epoch from which to go on",
        culprits=case.culprits(odd, found.closed),
        victims=case.victims(odd),
        step=StepName(found.epoch + 1, 0, None if first.step.step is None else first.step.step + 1),
        evidence=(f"the loop at {loop} has no break and no return", f"{others} began epoch {found.last}"),
        witnesses=(by_majority,) if len(odd) < len(most) else (),
        awaited=found.left,
    )


def _as_many(uneven: Uneven) -> str:
    """`33`, or `33 to 36` where the short ranks differ among themselves."""
    counts = sorted(uneven.drawn[rank].count for rank in uneven.short)
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _batch_sizes(case: Case, uneven: Uneven) -> str:
    """The ranks' batch sizes, where those of the short ranks are larger than those of all others."""
    loaders = {rank: case.ranks[rank].loader for rank in uneven.drawn}
    sizes = {rank: loader.batch_size for rank, loader in loaders.items() if loader is not None and loader.batch_size}
    short = [sizes[rank] for rank in uneven.short if rank in sizes]
    others = [size for rank, size in sizes.items() if rank not in uneven.short]
    if len(sizes) < len(loaders) or not others or min(short) <= max(others):
        return ""
    told = (f"{size} on {case.name(ranks)}" for size, ranks in by_value(sizes).items())
    return f"the batch sizes of the loaders differ: {words.listed(told)}"


def _fix(case: Case, culprits: tuple[int, ...], sizes: str) -> str:
    if any(_in_join(case.ranks[rank]) for rank in culprits):
        return _FIX_IN_JOIN
    if sizes:
        return _FIX_SIZES
    if not any(map(forwards, case)):
        return FIX
    streamed, of_package = any(_streams(case.ranks[rank]) for rank in culprits), runs_below_a_package(case, culprits)
    if not streamed and not of_package:
        return ""
    same = _OF_A_STREAM if streamed else "DistributedSampler(..., drop_last=True), or pad the last one"
    join = "" if of_package else ", or wrap the loop in `with Join([model]):`"
    return f"give every rank the same number of batches: {same}{join}"


def _streams(view: RankView) -> bool:
    """Its dataset is an iterable one, which no sampler divides among the ranks: it does so itself."""
    loader = view.loader
    return loader is not None and bool(loader.dataset) and not loader.sampler and loader.dataset_length is None


def _in_join(view: RankView) -> bool:
    """It has left the loop, and `Join` makes DDP's calls for it."""
    return any(frame.file.endswith(JOIN) for stack in view.evidence.stacks if stack.main for frame in stack.frames)


def _matters(case: Case, uneven: Uneven) -> bool:
    """A rank waits in a call, or a short one is gone, or about to be, before the others are.

    Short ones that take part by `Join` wait as they are meant to, for the next batch of the others.
    """
    gone = any(rank in case.gone or case.ranks[rank].ended_well for rank in uneven.short)
    short = {*uneven.short}
    waits = any(rank not in short or not _in_join(case.ranks[rank]) for rank in case.blocked)
    return waits or (gone and not all(view.ended_well for view in case))


def _total(case: Case, uneven: Uneven) -> int:
    """The batches that the ranks should have drawn; a loader that is left with data says nothing of that."""
    if any(each.beside for each in uneven.drawn.values()):
        return uneven.most
    lengths = [
        view.loader.length or 0
        for view in case
        if view.loader is not None and view.rank not in uneven.short and view.loader.epoch == uneven.epoch
    ]
    return max(uneven.most, max(lengths, default=0))


def _is_total(case: Case, uneven: Uneven) -> bool:
    """The end of the epoch is known: some rank has come to it, or its loader has a length."""
    others = [rank for rank in uneven.drawn if rank not in uneven.short]
    if any(uneven.drawn[rank].exhausted or uneven.drawn[rank].beside for rank in others):
        return True
    return any((loader := case.ranks[rank].loader) is not None and loader.length for rank in others)


def _step_of(view: RankView, uneven: Uneven) -> int | None:
    """The index of the step that the rank lacked, where its ledger still holds the one before."""
    before = (uneven.epoch, uneven.fewest - 1)
    return next((each.step + 1 for each in view.evidence.board_steps if (each.epoch, each.batch) == before), None)


def _as_facts(case: Case, uneven: Uneven) -> tuple[Witness, ...]:
    """What the loaders of torch say; they settle nothing where the ranks compared iterate at different lines."""
    inferred = any(uneven.drawn[rank].beside for rank in uneven.short)  # from counts that go together
    found = [Witness(Kind.HABIT if inferred else Kind.FACT, sentence) for sentence in drawn_words(case, uneven)]
    lines = {loader.where for rank in uneven.drawn if (loader := case.ranks[rank].loader) is not None and loader.where}
    if len(lines) > 1:
        places = words.listed(sorted(map(words.place, lines)))
        found.append(Witness(Kind.PLACE, f"the ranks iterate over loaders at different lines: {places}", agrees=False))
    return tuple(found)


def outside_of_join(case: Case) -> Finding | None:
    """Ranks ran out of inputs within torch's Join, and others made a call for which it does not stand in."""
    found = joined_too_early(case)
    if found is None or not case.in_trouble:
        return None
    names, one = case.name(found.ranks), len(found.ranks) == 1
    block, where = user_frame(found.stand_in.frames), user_frame(found.call.frames)
    call = call_at(found.call)
    pair = f"is {call} on {case.name(found.others[:1])}, and one of Join's on {names}"
    return Finding(
        "uneven-steps",
        Certainty.LIKELY,
        f"{case.name(found.ranks, capital=True)} ran out of inputs, and Join{words.at(block)} makes DDP's calls for"
        f" {'it' if one else 'them'} since; it does not make {call}, which {case.name(found.others)} called.",
        fix=_FIX_IN_JOIN,
        culprits=case.culprits(found.ranks, where),
        victims=found.others,
        step=case.furthest_step(found.ranks),
        evidence=(f"collective {found.call.seq} of group {found.group.name} {pair}",),
        status=case.failed_status,
    )


def without_any_batch(case: Case) -> Finding | None:
    """Ranks whose loop begins one epoch after another, none of which has a batch, while others wait for them."""
    dry = {view.rank: view.loader for view in case if view.loader is not None and view.loader.gives_nothing}
    if not dry or not case.victims(dry):
        return None
    rank, loader = next(iter(dry.items()))
    one, waiting = len(dry) == 1, case.victims(dry)
    of = f", of {loader.dataset}," if loader.dataset else ""
    empty = f"rank {rank} has begun {loader.epoch + 1} epochs with it, and none of the last {EPOCHS_KEPT} had a batch"
    return Finding(
        "uneven-steps",
        Certainty.LIKELY,
        f"{case.name(dry, capital=True)} {'has' if one else 'have'} no data: {'its' if one else 'their'}"
        f" loader{of} gives no batch, and the loop{words.at(loader.where)} begins it again and again;"
        f" {case.wait_words(waiting)} for {words.verb(len(dry), 'it', 'them')}{words.at(case.usual_place(waiting))}.",
        fix="give each rank data: at least as many shards or files as ranks (times loader workers), or divide the"
        " samples and not the files; let a loop over steps raise where an epoch had no batch",
        culprits=case.culprits_at(dry, at_its_loader),
        step=case.furthest_step(tuple(dry)),
        witnesses=(Witness(Kind.FACT, empty),),
        awaited=tuple(dry),
    )


def uneven_validation(case: Case) -> Finding | None:
    """Ranks ran out of another loader than the training one, in whose loop all the others still are."""
    found = uneven_still(case)
    return _of_validation(case, *found) if found is not None and case.in_trouble else None


def uneven_other_loader(case: Case) -> Finding | None:
    """Ranks drew fewer batches than others from a loader that all have exhausted, and issued fewer collectives."""
    found, apart = uneven_elsewhere(case), parting(case)
    if found is None or apart is None or not case.in_trouble:
        return None
    return replace(
        _of_validation(case, *found),
        step=apart.step,
        evidence=(counted(case, apart),),
        status=case.failed_status,
    )


def _of_validation(case: Case, uneven: Uneven, loader: LoaderFacts) -> Finding:
    one, last = len(uneven.short) == 1, case.furthest_step(uneven.short)
    return Finding(
        "uneven-steps",
        case.weigh(witnesses := tuple(Witness(Kind.FACT, each) for each in drawn_words(case, uneven))),
        f"{case.name(uneven.short, capital=True)} ran out of data in the loop at"
        f" {words.place(loader.where)}{_which(case, uneven.short[0], loader)}:"
        f" {'it' if one else 'they'} drew {_as_many(uneven)} {'batch' if uneven.fewest == 1 else 'batches'} there,"
        f" and the others {uneven.most}{'' if all(each.ended for each in uneven.drawn.values()) else ' so far'}.",
        fix=FIX,
        culprits=case.culprits(uneven.short, loader.where),
        step=last,
        witnesses=witnesses,
    )


def _which(case: Case, rank: int, loader: LoaderFacts) -> str:
    """` (of ShardStream)`, its dataset, where other loaders are gone through at that line, as below a `fit`."""
    reading = case.ranks[rank].reading
    others = [each for each in reading.loaders if each.index != loader.index] if reading is not None else []
    alike = any(each.where == loader.where and each.dataset != loader.dataset for each in others)
    return f" (of {loader.dataset})" if alike and loader.dataset else ""


def ended_another_loop(case: Case) -> Finding | None:
    """Ranks went on from a run of equal calls, and all of their data in another loader was fewer batches."""
    return ended_the_loop(case, "uneven-steps")


def batches_discarded(case: Case) -> Finding | None:
    """A rank drew all its batches, but from one of them on it threw all away: no forward, no collective."""
    dry = {view.rank: since for view in case if (since := _dry_since(case, view)) is not None}
    if not dry or len(dry) == len(case.ranks) or not case.blocked:
        return None
    culprits = tuple(dry)
    since = dry[culprits[0]]
    first = case.ranks[culprits[0]]
    unused = (first.loader.drawn if first.loader is not None else 0) - (since.batch or 0)
    return Finding(
        "uneven-steps",
        case.weigh(witnesses := _threw_away(first, since)),
        f"{case.name(culprits, capital=True)} ran out of usable data: it made no step with its last"
        f" {words.plural(unused, 'batch')} of epoch {since.epoch}, from batch {since.batch} on, and has left the loop"
        f"{words.at(first.where)}.",
        fix="give every rank the same number of usable batches: mask bad samples in the loss instead of dropping them",
        culprits=case.culprits(culprits),
        step=since.name,
        witnesses=witnesses,
    )


def _threw_away(view: RankView, since: Step) -> tuple[Witness, ...]:
    name = words.step(since.name)
    drawn = words.plural((view.step.step or 0) + 1, "batch")
    return (
        Witness(Kind.FACT, f"rank {view.rank} issued no collective in any group from {name} to the end of its loader"),
        Witness(Kind.FACT, f"it drew {drawn} and made {forwards(view)} forwards"),
    )


def _dry_since(case: Case, view: RankView) -> Step | None:
    """The first of at least two last steps without a forward or a collective, if the rank's loader has ended."""
    loader, reading = view.loader, view.reading
    if loader is None or reading is None or not loader.exhausted or not reading.progress.forwards:
        return None
    steps = case.ledger.steps(view.rank)
    wet = max((index for index, step in enumerate(steps[:-1]) if any(step.counts.values())), default=None)
    if wet is None or len(steps) - wet - 1 < 2 or steps[wet + 1].epoch != loader.epoch:
        return None
    unused = len(steps) - wet - 1
    begun = (view.step.step if view.step.step is not None else -1) + 1
    return steps[wet + 1] if begun - reading.progress.forwards >= unused - 1 else None


def fewer_steps(case: Case) -> Finding | None:
    """A rank made fewer steps than the others, and the source of its loop shows no other way out."""
    return left_after_fewer_turns(case, "uneven-steps", of_few=True)


def began_at_other_epochs(case: Case) -> Finding | None:
    """Ranks have done fewer epochs than others, and come to the same last one: they began later."""
    found = ended_epochs(case)
    if found is None or not found.at_one_end:
        return None
    began = words.listed(f"{case.name(ranks)} with epoch {first}" for first, ranks in by_value(found.first).items())
    left, one = case.name(found.left), len(found.left) == 1
    return Finding(
        "uneven-steps",
        Certainty.LIKELY,
        f"The ranks began with different epochs, {began}: {left} {'has' if one else 'have'} done"
        f" {'its' if one else 'their'} last one{now_at(case, found.left, case.usual_place(found.left))}, and"
        f" {case.say(found.others, 'has', 'have')} not.",
        fix="let one rank choose the checkpoint from which all ranks resume, and broadcast its epoch",
        culprits=case.culprits_at(found.began_otherwise, at_its_loader),
        step=case.furthest_step(found.left),
        witnesses=(Witness(Kind.FACT, f"by the epochs of their samplers, {began}"),),
        awaited=found.left,
    )
