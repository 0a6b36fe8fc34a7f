"""Ledgers that differ between epochs or at the ends of loops: ranks that ran out of data, or left the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..activity import Doing
from ..ledger import Step
from ..records import LoaderFacts, Phase, StepName
from . import words
from .case import Case, RankView, once
from .finding import Finding, Rule
from .sites import sites_of
from .view import OVER
from .witness import Kind, Witness

_JOIN = "torch/distributed/algorithms/join.py"
_FIX_IN_JOIN = (
    "Join stands in for DDP's own collectives alone: take the loop's other ones out of it, or give every rank the same"
    " number of batches: DistributedSampler(..., drop_last=True)"
)


@dataclass(frozen=True)
class Drawn:
    """What one rank drew in one epoch of the training loader."""

    count: int
    ended: bool  # the loop over it has ended
    exhausted: bool  # because there was no more data


@dataclass(frozen=True)
class Uneven:
    """An epoch in which ranks drew different numbers of batches."""

    epoch: int
    drawn: Mapping[int, Drawn]
    short: tuple[int, ...]  # ended with fewer batches than others have drawn

    @property
    def fewest(self) -> int:
        return Counter(self.drawn[rank].count for rank in self.short).most_common(1)[0][0]

    @property
    def most(self) -> int:
        return max(drawn.count for drawn in self.drawn.values())


def drawn_by_epoch(loader: LoaderFacts, *, came_down: bool = False, past: bool = False) -> dict[int, Drawn]:
    """What a rank drew in each epoch that its records still know, the present one included.

    A loop that counts draws exactly as many batches as the loader has, never asks for one more, and may keep the
    iterator: then the length says that the data was exhausted, once the rank is `past` the work on its last batch.
    A rank that `came_down` has left its loop with an error on its way out: that says nothing of the loop.
    """
    exhausted = loader.exhausted or ((loader.left or past) and _all_of_it(loader, loader.drawn))
    ended = exhausted or loader.left
    finished = list(loader.drawn_per_epoch)
    flags = list(loader.exhausted_per_epoch) + [True] * (len(finished) - len(loader.exhausted_per_epoch))
    # An epoch that has ended may be listed among the finished ones already, or only when the next one begins.
    listed = ended and bool(finished) and finished[-1] == loader.drawn and len(finished) > loader.epoch - _lost(loader)
    first = loader.epoch + (1 if listed else 0) - len(finished)
    found = {
        first + index: Drawn(count, True, known or _all_of_it(loader, count))
        for index, (count, known) in enumerate(zip(finished, flags, strict=False))
    }
    found[loader.epoch] = Drawn(loader.drawn, ended and (exhausted or not came_down), exhausted)
    return {epoch: drawn for epoch, drawn in found.items() if epoch >= 0}


def _all_of_it(loader: LoaderFacts, drawn: int) -> bool:
    return loader.length is not None and 0 < loader.length <= drawn


KEPT_EPOCHS = 64
PAST_LAST_BATCH = frozenset({Phase.OPTIMIZER, Phase.EVAL, Phase.BETWEEN, Phase.DESTROYING, *OVER})


def _lost(loader: LoaderFacts) -> int:
    """Finished epochs that are no longer listed, when the list is full."""
    return max(loader.epoch + 1 - KEPT_EPOCHS, 0) if len(loader.drawn_per_epoch) >= KEPT_EPOCHS else 0


@once
def first_uneven(case: Case) -> Uneven | None:
    """The first epoch that ended on some ranks with fewer batches than others have drawn in it."""
    loaders = {view.rank: view.loader for view in case if view.loader is not None and view.loader.epoch >= 0}
    down = {view.rank for view in case if view.raised or (view.dead and not view.finished)}
    table = {
        rank: drawn_by_epoch(loader, came_down=rank in down, past=case.ranks[rank].phase in PAST_LAST_BATCH)
        for rank, loader in loaders.items()
    }
    for epoch in sorted({epoch for counts in table.values() for epoch in counts}):
        drawn = {rank: counts[epoch] for rank, counts in table.items() if epoch in counts}
        short = tuple(sorted(rank for rank, entry in drawn.items() if _is_short(entry, drawn.values())))
        if short and not _joined(case, epoch, drawn) and not have_met_again(case, {r: r in short for r in drawn}):
            return Uneven(epoch, drawn, short)
    return None


def _is_short(mine: Drawn, everyone: Iterable[Drawn]) -> bool:
    """It ended with fewer than others drew, or left in the middle of a batch that others still work on."""
    if not mine.ended:
        return False
    further = any(other.count > mine.count for other in everyone)
    return further or (not mine.exhausted and any(not other.ended and other.count == mine.count for other in everyone))


def _joined(case: Case, epoch: int, drawn: Iterable[int]) -> bool:
    """The ranks had issued the same numbers when the next epoch began: `Join` made up for the missing batches."""
    begun = {}
    for rank in drawn:
        reading = case.ranks[rank].reading
        entry = next((e for e in reading.steps if e.epoch == epoch + 1), None) if reading is not None else None
        if entry is not None:
            begun[rank] = tuple(sorted(entry.issued.items()))
    return len(begun) > 1 and len(begun) == len(list(drawn)) and len(set(begun.values())) == 1


def have_met_again(case: Case, sides: Mapping[int, int]) -> bool:
    """Ranks of several sides stand in one and the same call behind their loops, and wait for somebody at work.

    What one side has left out or done too often is made up for. `Join` does so: who has no more data makes the calls of
    those who have, all of them in its last step. Within a loop it means nothing: there steps may meet crosswise.
    """
    if not any(view.rank not in case.blocked and not view.dead and not view.over for view in case):
        return False
    places: dict[object, set[int]] = {}
    for rank, side in sides.items():
        inside = case.blocked.get(rank)
        if inside is None or inside.group is None or inside.seq is None or inside.where is None:
            continue
        loader = case.ranks[rank].loader
        if loader is not None and (loader.exhausted or loader.left):
            place = (inside.group.name, inside.seq, inside.where.file, inside.where.line)
            places.setdefault(place, set()).add(side)
    return any(len(found) > 1 for found in places.values())


# ------------------------------------------------------------------------------------------ the rules


def uneven_steps(case: Case) -> Finding | None:
    """Some ranks ran out of data in an epoch in which others drew more."""
    uneven = first_uneven(case)
    if uneven is None or not all(uneven.drawn[rank].exhausted for rank in uneven.short) or not _matters(case, uneven):
        return None
    culprits = uneven.short
    first = case.ranks[culprits[0]]
    now = {view.loader.epoch for view in case if view.loader is not None}
    late = max(now) > uneven.epoch
    where = case.usual_place(culprits)
    after = " and has left the loop" if len(culprits) == 1 else " and have left the loop"
    tail = f"; later batches met crosswise until epoch {max(now)}" if late else f"{after}{words.at(where)}"
    one = len(culprits) == 1
    return Finding(
        "uneven-steps",
        case.weigh(witnesses := _as_facts(case, uneven)),
        f"{case.name(culprits, capital=True)} ran out of data: {'it' if one else 'they'} drew {uneven.fewest} of"
        f" {words.plural(_total(case, uneven), 'batch')} in epoch {uneven.epoch}{tail}.",
        fix=_FIX_IN_JOIN if any(_in_join(case.ranks[rank]) for rank in culprits) else "",
        culprits=tuple(case.ranks[rank].culprit() for rank in culprits),
        step=StepName(uneven.epoch, uneven.fewest, _step_of(first, uneven)),
        witnesses=witnesses,
        awaited=culprits,
    )


def _in_join(view: RankView) -> bool:
    """It has left the loop, and does in `Join` what DDP would do."""
    return any(frame.file.endswith(_JOIN) for stack in view.evidence.stacks if stack.main for frame in stack.frames)


def _matters(case: Case, uneven: Uneven) -> bool:
    """Somebody waits who is not among the short, or the short ones wait for the others' next epoch."""
    return bool(case.blocked) or any(rank in case.gone for rank in uneven.short)


def _total(case: Case, uneven: Uneven) -> int:
    lengths = [
        view.loader.length or 0
        for view in case
        if view.loader is not None and view.rank not in uneven.short and view.loader.epoch == uneven.epoch
    ]
    return max(uneven.most, max(lengths, default=0))


def _step_of(view: RankView, uneven: Uneven) -> int | None:
    """The index of the step that the rank lacked, where its ledger still holds the one before."""
    if view.reading is None:
        return None
    before = next(
        (e for e in view.reading.steps if e.epoch == uneven.epoch and e.batch == uneven.fewest - 1),
        None,
    )
    return None if before is None else before.step + 1


def _as_facts(case: Case, uneven: Uneven) -> tuple[Witness, ...]:
    """What the loaders of torch say; they settle nothing where the ranks compared iterate at different lines."""
    found = [Witness(Kind.FACT, sentence) for sentence in _evidence(case, uneven)]
    lines = {loader.where for rank in uneven.drawn if (loader := case.ranks[rank].loader) is not None and loader.where}
    if len(lines) > 1:
        places = words.listed(sorted(map(words.place, lines)))
        found.append(Witness(Kind.PLACE, f"the ranks iterate over loaders at different lines: {places}", agrees=False))
    return tuple(found)


def _evidence(case: Case, uneven: Uneven) -> tuple[str, ...]:
    by_count: dict[tuple[int, bool, bool], list[int]] = {}
    for rank, drawn in uneven.drawn.items():
        by_count.setdefault((drawn.count, drawn.ended, drawn.exhausted), []).append(rank)
    sentences = []
    for (count, ended, exhausted), ranks in sorted(by_count.items()):
        end = " and its loader was then exhausted" if exhausted else " and left the loop" if ended else " so far"
        sentences.append(f"{case.name(ranks)} drew {words.plural(count, 'batch')} in epoch {uneven.epoch}{end}")
    return tuple(sentences)


def uneven_validation(case: Case) -> Finding | None:
    """Ranks ran out of another loader than the training one, in whose loop all the others still are."""
    for index in sorted({loader.index for view in case for loader in _others(view)}):
        loaders = {view.rank: each for view in case for each in _others(view) if each.index == index}
        epoch = max((loader.epoch for loader in loaders.values()), default=-1)
        drawn = {rank: counts for rank, each in loaders.items() if (counts := _drawn_in(each, case.ranks[rank], epoch))}
        short = tuple(sorted(rank for rank, entry in drawn.items() if entry.exhausted))
        longer = [entry for entry in drawn.values() if not entry.ended]
        if short and longer and len(short) + len(longer) == len(drawn) == len(case.ranks):
            uneven = Uneven(epoch, drawn, short)
            if uneven.fewest < min(entry.count for entry in longer) and (case.blocked or case.came_down):
                return _of_validation(case, uneven, loaders[short[0]])
    return None


def _others(view: RankView) -> tuple[LoaderFacts, ...]:
    return tuple(each for each in (view.reading.loaders if view.reading is not None else ()) if not each.training)


def _drawn_in(loader: LoaderFacts, view: RankView, epoch: int) -> Drawn | None:
    return drawn_by_epoch(loader, came_down=view.raised or (view.dead and not view.finished)).get(epoch)


def _of_validation(case: Case, uneven: Uneven, loader: LoaderFacts) -> Finding:
    one, last = len(uneven.short) == 1, case.furthest_step(uneven.short)
    return Finding(
        "uneven-steps",
        case.weigh(witnesses := tuple(Witness(Kind.FACT, each) for each in _evidence(case, uneven))),
        f"{case.name(uneven.short, capital=True)} ran out of data in the loop at {words.place(loader.where)}:"
        f" {'it' if one else 'they'} drew {words.plural(uneven.fewest, 'batch')} there, and the others"
        f" {uneven.most} so far.",
        culprits=tuple(case.ranks[rank].culprit() for rank in uneven.short),
        step=last,
        witnesses=witnesses,
        awaited=uneven.short,
    )


def early_exit(case: Case) -> Finding | None:
    """A rank left a loop whose data was not exhausted, while others went on in it."""
    uneven = first_uneven(case)
    if uneven is None or not (case.blocked or case.came_down):
        return None
    left = tuple(rank for rank in uneven.short if not uneven.drawn[rank].exhausted)
    if not left or len(left) == len(uneven.drawn):
        return None
    one = len(left) == 1
    where = case.usual_place(left)
    count = words.plural(uneven.drawn[left[0]].count, "batch")
    return Finding(
        "early-exit",
        case.weigh(witnesses := _left_with_data(case, uneven, left)),
        f"{case.name(left, capital=True)} left the training loop after {count}"
        f" of epoch {uneven.epoch}, before {'its' if one else 'their'} data was exhausted"
        f"{now_at(case, left[0], where)}; the others went on.",
        culprits=tuple(case.ranks[rank].culprit() for rank in left),
        step=_batch_left(case.ranks[left[0]], uneven),
        witnesses=witnesses,
        awaited=left,
    )


def _left_with_data(case: Case, uneven: Uneven, left: tuple[int, ...]) -> tuple[Witness, ...]:
    """That data was left is a fact where the loader has a length; else an iterator that was dropped speaks for it."""
    loaders = {rank: loader for rank in left if (loader := case.ranks[rank].loader) is not None}
    known = all(loader.length and uneven.drawn[rank].count < loader.length for rank, loader in loaders.items())
    kind = Kind.FACT if loaders and known else Kind.HABIT
    return tuple(Witness(kind, sentence) for sentence in _evidence(case, uneven))


def _batch_left(view: RankView, uneven: Uneven) -> StepName:
    """The first batch that it did not train on: the last one that it drew, if the others work on that one too."""
    count = uneven.drawn[view.rank].count
    batch = count if uneven.most > count else max(count - 1, 0)
    steps = view.reading.steps if view.reading is not None else ()
    last = next((entry.step for entry in steps if (entry.epoch, entry.batch) == (uneven.epoch, count - 1)), None)
    return StepName(uneven.epoch, batch, None if last is None else last + batch - (count - 1))


def now_at(case: Case, rank: int, where: object) -> str:
    """Where a rank is that has left the loop, as the rest of a sentence."""
    view = case.ranks[rank]
    if view.dead:
        return " and has exited"
    if view.over:
        return " and is at its end"
    return f", and is now at {words.place(view.where)}" if where is not None else ""


def stopped_after_epoch(case: Case) -> Finding | None:
    """A rank left the loop over epochs after the same batches as all, while others began the next epoch."""
    epochs = {view.rank: view.loader.epoch for view in case if view.loader is not None}
    if not epochs or not case.blocked:
        return None
    last = max(epochs.values())
    left = tuple(rank for rank, epoch in epochs.items() if epoch < last and has_left_loop(case, case.ranks[rank]))
    others = [rank for rank, epoch in epochs.items() if epoch == last]
    if not left or any(has_left_loop(case, case.ranks[rank]) for rank in others):
        return None
    first = case.ranks[left[0]]
    epoch = epochs[left[0]]
    return Finding(
        "early-exit",
        case.weigh(witnesses := _ended_its_epochs(case, left, epoch)),
        f"{case.name(left, capital=True)} stopped training after epoch {epoch}{now_at(case, first.rank, first.where)};"
        f" {case.name(others)} went on to epoch {last}.",
        culprits=tuple(case.ranks[rank].culprit() for rank in left),
        step=StepName(epoch + 1, 0, None if first.step.step is None else first.step.step + 1),
        evidence=(f"{case.name(others)} began epoch {last}",),
        witnesses=witnesses,
        awaited=left,
    )


def _ended_its_epochs(case: Case, left: tuple[int, ...], epoch: int) -> tuple[Witness, ...]:
    """Only a rank whose training is over has ended it for certain; one that stands outside of the loop may return."""
    over = all(case.ranks[rank].over or case.ranks[rank].finished for rank in left)
    kind = Kind.FACT if over else Kind.SOURCE
    return (Witness(kind, f"{case.name(left)} ended epoch {epoch} and began no other"),)


def dried_up(case: Case) -> Finding | None:
    """A rank drew all its batches, but from one of them on it threw all away: no forward, no collective."""
    dry = {view.rank: since for view in case if (since := _dry_since(case, view)) is not None}
    if not dry or len(dry) == len(case.ranks) or not case.blocked:
        return None
    culprits = tuple(dry)
    since = dry[culprits[0]]
    first = case.ranks[culprits[0]]
    name = StepName(since.epoch, since.batch, since.step)
    unused = (first.loader.drawn if first.loader is not None else 0) - (since.batch or 0)
    return Finding(
        "uneven-steps",
        case.weigh(witnesses := _threw_away(first, since)),
        f"{case.name(culprits, capital=True)} ran out of usable data: it made no step with its last"
        f" {words.plural(unused, 'batch')} of epoch {since.epoch}, from batch {since.batch} on, and has left the loop"
        f"{words.at(first.where)}.",
        fix="give every rank the same number of usable batches: mask bad samples in the loss instead of dropping them",
        culprits=tuple(case.ranks[rank].culprit() for rank in culprits),
        step=name,
        witnesses=witnesses,
        awaited=culprits,
    )


def _threw_away(view: RankView, since: Step) -> tuple[Witness, ...]:
    name = words.step(StepName(since.epoch, since.batch, since.step))
    drawn = words.plural((view.step.step or 0) + 1, "batch")
    return (
        Witness(Kind.FACT, f"rank {view.rank} issued no collective in any group from {name} to the end of its loader"),
        Witness(Kind.FACT, f"it drew {drawn} and made {_forwards(view)} forwards"),
    )


def _forwards(view: RankView) -> int:
    return view.reading.progress.forwards if view.reading is not None else 0


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


def has_left_loop(case: Case, view: RankView) -> bool:
    """It is at its end, its loader has ended, or it stands outside of every loop where it has never been before."""
    if view.raised:
        return False  # an error took it out, from wherever it was
    if view.over or view.finished:
        return True
    if view.now.in_loop is not None:
        return not view.now.in_loop
    if view.main.doing in (Doing.JOIN_THREADS, Doing.JOIN_CHILD):
        return True
    if view.loader is not None or view.rank not in case.blocked:
        return False
    return view.rank != 0 and not sites_of(case).regular(view.rank)


def has_left_inner_loop(case: Case, view: RankView) -> bool:
    """`has_left_loop`, or it stands in the loop around the one of the others, where every rank comes."""
    if has_left_loop(case, view):
        return True
    mine = view.now.loop
    if mine is None or view.now.guard != "none" or view.rank not in case.blocked:
        return False
    others = [loop for rank in case.blocked if rank != view.rank and (loop := case.ranks[rank].now.loop) is not None]
    return bool(others) and all(mine.where in loop.outer for loop in others)


DRY: tuple[Rule, ...] = (uneven_validation, dried_up)
RULES: tuple[Rule, ...] = (uneven_steps, early_exit, stopped_after_epoch)
