"""Ledgers that differ between epochs or at the ends of loops: ranks that ran out of data, or left the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..records import Certainty, LoaderFacts, StepName
from ..stacks import Doing
from . import words
from .case import Case, RankView
from .finding import Finding, Rule
from .sites import Sites


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


def drawn_by_epoch(loader: LoaderFacts) -> dict[int, Drawn]:
    """What a rank drew in each epoch that its records still know, the present one included."""
    ended = loader.exhausted or loader.left
    finished = list(loader.drawn_per_epoch)
    flags = list(loader.exhausted_per_epoch) + [True] * (len(finished) - len(loader.exhausted_per_epoch))
    # An epoch that has ended may be listed among the finished ones already, or only when the next one begins.
    listed = ended and bool(finished) and finished[-1] == loader.drawn and len(finished) > loader.epoch - _lost(loader)
    first = loader.epoch + (1 if listed else 0) - len(finished)
    found = {
        first + index: Drawn(count, True, exhausted)
        for index, (count, exhausted) in enumerate(zip(finished, flags, strict=False))
    }
    found[loader.epoch] = Drawn(loader.drawn, ended, loader.exhausted)
    return {epoch: drawn for epoch, drawn in found.items() if epoch >= 0}


KEPT_EPOCHS = 64


def _lost(loader: LoaderFacts) -> int:
    """Finished epochs that are no longer listed, when the list is full."""
    return max(loader.epoch + 1 - KEPT_EPOCHS, 0) if len(loader.drawn_per_epoch) >= KEPT_EPOCHS else 0


def first_uneven(case: Case) -> Uneven | None:
    """The first epoch that ended on some ranks with fewer batches than others have drawn in it."""
    loaders = {view.rank: view.loader for view in case if view.loader is not None and view.loader.epoch >= 0}
    table = {rank: drawn_by_epoch(loader) for rank, loader in loaders.items()}
    for epoch in sorted({epoch for counts in table.values() for epoch in counts}):
        drawn = {rank: counts[epoch] for rank, counts in table.items() if epoch in counts}
        most = max(entry.count for entry in drawn.values())
        short = tuple(sorted(rank for rank, entry in drawn.items() if entry.ended and entry.count < most))
        if short and not _joined(case, epoch, drawn):
            return Uneven(epoch, drawn, short)
    return None


def _joined(case: Case, epoch: int, drawn: Iterable[int]) -> bool:
    """The ranks had issued the same numbers when the next epoch began: `Join` made up for the missing batches."""
    begun = {}
    for rank in drawn:
        reading = case.ranks[rank].reading
        entry = next((e for e in reading.steps if e.epoch == epoch + 1), None) if reading is not None else None
        if entry is not None:
            begun[rank] = tuple(sorted(entry.issued.items()))
    return len(begun) > 1 and len(begun) == len(list(drawn)) and len(set(begun.values())) == 1


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
        case.certainty(),
        f"{case.name(culprits, capital=True)} ran out of data: {'it' if one else 'they'} drew {uneven.fewest} of"
        f" {words.plural(_total(case, uneven), 'batch')} in epoch {uneven.epoch}{tail}.",
        culprits=tuple(case.ranks[rank].culprit() for rank in culprits),
        step=StepName(uneven.epoch, uneven.fewest, _step_of(first, uneven)),
        evidence=_evidence(case, uneven),
        awaited=culprits,
    )


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


def _evidence(case: Case, uneven: Uneven) -> tuple[str, ...]:
    by_count: dict[tuple[int, bool, bool], list[int]] = {}
    for rank, drawn in uneven.drawn.items():
        by_count.setdefault((drawn.count, drawn.ended, drawn.exhausted), []).append(rank)
    sentences = []
    for (count, ended, exhausted), ranks in sorted(by_count.items()):
        end = " and its loader was then exhausted" if exhausted else " and left the loop" if ended else " so far"
        sentences.append(f"{case.name(ranks)} drew {words.plural(count, 'batch')} in epoch {uneven.epoch}{end}")
    return tuple(sentences)


def early_exit(case: Case) -> Finding | None:
    """A rank left a loop whose data was not exhausted, while others went on in it."""
    uneven = first_uneven(case)
    if uneven is None or not case.blocked:
        return None
    left = tuple(rank for rank in uneven.short if not uneven.drawn[rank].exhausted)
    if not left or len(left) == len(uneven.drawn):
        return None
    one = len(left) == 1
    where = case.usual_place(left)
    count = words.plural(uneven.drawn[left[0]].count, "batch")
    return Finding(
        "early-exit",
        case.certainty(),
        f"{case.name(left, capital=True)} left the training loop after {count}"
        f" of epoch {uneven.epoch}, before {'its' if one else 'their'} data was exhausted"
        f"{_now_at(case, left[0], where)}; the others went on.",
        culprits=tuple(case.ranks[rank].culprit() for rank in left),
        step=StepName(uneven.epoch, uneven.drawn[left[0]].count, _step_of(case.ranks[left[0]], uneven)),
        evidence=_evidence(case, uneven),
        awaited=left,
    )


def _now_at(case: Case, rank: int, where: object) -> str:
    view = case.ranks[rank]
    if view.dead:
        return " and has exited"
    if view.over:
        return " and is at its end"
    return f", and is now at {words.place(view.where)}" if where is not None else ""


def ended_early(case: Case) -> Finding | None:
    """Without a loader: a rank is past its loop, or at its end, after fewer steps than the others."""
    steps = {view.rank: view.step.step for view in case if view.step.step is not None}
    if len(steps) < 2 or not case.blocked or any(view.loader is not None for view in case):
        return None
    most = max(steps.values())
    short = [rank for rank, count in steps.items() if count < most and has_left_loop(case, case.ranks[rank])]
    others = [rank for rank, count in steps.items() if count == most and rank in case.blocked]
    if not short or not others or any(has_left_loop(case, case.ranks[rank]) for rank in others):
        return None
    first = case.ranks[short[0]]
    count = steps[short[0]] + 1
    return Finding(
        "uneven-steps",
        Certainty.LIKELY,
        f"{case.name(short, capital=True)} made only {words.plural(count, 'step')} and"
        f" {words.verb(len(short), 'has', 'have')} left the loop{_now_at(case, first.rank, first.where)};"
        f" {case.name(others)} {words.verb(len(others), 'is', 'are')} in step {most} already.",
        culprits=tuple(case.ranks[rank].culprit() for rank in short),
        step=StepName(None, None, count),
        evidence=tuple(
            f"rank {rank} began {words.plural(steps[rank] + 1, 'step')}" for rank in sorted(steps)[: words.SHOWN]
        ),
        awaited=tuple(short),
        not_causes=(("early-exit", "whether the loop was left or ran out is not known without a DataLoader"),),
    )


def has_left_loop(case: Case, view: RankView) -> bool:
    """It is at its end, its loader has ended, or it stands outside of every loop where it has never been before."""
    if view.over or view.dead or view.main.doing in (Doing.JOIN_THREADS, Doing.JOIN_CHILD):
        return True
    if view.now.in_loop is not None:
        return not view.now.in_loop
    if view.loader is not None or view.rank not in case.blocked:
        return False
    return view.rank != 0 and not Sites(case).regular(view.rank)


RULES: tuple[Rule, ...] = (uneven_steps, early_exit, ended_early)
