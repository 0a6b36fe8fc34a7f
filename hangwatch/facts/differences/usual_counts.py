"""What most ranks did in a step, and what ranks did in the steps before it: whether few issued too little, or others
too much.

The witnesses agree where the few have skipped a call, and speak against it where the many made one too many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from hangwatch import words
from hangwatch.facts.call_site import Site
from hangwatch.facts.calls.call_sites import HABIT, sites_of
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Divergence
from hangwatch.ranks.ledger import Step
from hangwatch.ranks.paces import WARM_UP
from hangwatch.ranks.sides import spread


def by_majority(case: Case, divergence: Divergence, few: tuple[int, ...], many: tuple[int, ...]) -> Witness | None:
    if len(few) == len(many):
        return None
    return Witness(Kind.MAJORITY, agree(case, divergence, max(few, many, key=len)), agrees=len(many) > len(few))


def agree(case: Case, divergence: Divergence, ranks: tuple[int, ...]) -> str:
    alike = len({divergence.counts[rank] for rank in ranks}) == 1  # else they are in that step still
    return f"most ranks {'agree' if alike else 'issued more'} in that step: {case.name(ranks)}"


def by_habit(case: Case, divergence: Divergence, few: tuple[int, ...], many: tuple[int, ...]) -> Witness | None:
    """What either side did in all of its earlier steps; as the watch remembers it, where the rings have forgotten.

    Steps need not be alike (two models in turn, a log now and then): fewer or more than any step had before are unusual
    too.
    """
    fewest, most = divergence.counts[few[0]], divergence.counts[many[0]]
    before = [_counts_before(case, divergence, ranks) for ranks in (few, many)]
    remembered = before == [set(), set()] and len(few) == len(many)
    if remembered:
        before = [{most} if divergence.short else set(), {fewest} if divergence.more else set()]
    known = before[0] | before[1]
    skipped = before[0] == {most} or (most in before[0] and fewest < min(known))
    added = before[1] == {fewest} or (fewest in before[1] and most > max(known))
    if skipped == added:
        return None
    ranks, usual = (few, before[0]) if skipped else (many, before[1])
    count = words.either(str(each) for each in sorted(usual)[: words.SHOWN])
    when = "most of the steps before" if remembered else f"every earlier step {_recorded(case, divergence, ranks)}"
    if not remembered and _began_otherwise(case, divergence, ranks, usual):
        when += f" (the first {WARM_UP} apart)"
    return Witness(Kind.HABIT, f"{case.name(ranks)} issued {count} in {when}", agrees=skipped)


def by_repetition(case: Case, divergence: Divergence, few: tuple[int, ...], many: tuple[int, ...]) -> Witness | None:
    """What was due in that step where the numbers of the steps before repeat: every few steps, or in every epoch."""
    rows = {_row_before(case, divergence, rank) for rank in spread((*few, *many))}  # most ranks have the same
    found = {_due(*row) for row in rows}
    interval, due = found.pop() if len(found) == 1 else (0, 0)
    fewest, most = divergence.counts[few[0]], divergence.counts[many[0]]
    if not interval or due not in (fewest, most):
        return None
    were = words.verb(due, "was", "were")
    text = f"the numbers of all steps before repeat every {words.plural(interval, 'step')}, and {due} {were} due"
    return Witness(Kind.HABIT, text, agrees=due == most)


def _row_before(case: Case, divergence: Divergence, rank: int) -> tuple[tuple[int, ...], int]:
    """How many `rank` issued in each step before, and how many batches the last whole epoch had (0: not known)."""
    steps = _settled(list(_before(case.ledger.steps(rank), divergence)))
    last = (step.batch for step in steps if divergence.epoch and step.epoch == divergence.epoch - 1)
    batches = 1 + max((batch for batch in last if batch is not None), default=-1)
    return tuple(step.counts.get(divergence.group, 0) for step in steps), batches


def _due(counts: tuple[int, ...], batches: int) -> tuple[int, int]:
    """After how many steps the numbers repeat, and the one that was due; (0, 0) where they do not.

    One that is unlike most others has come again, a whole interval long or at the same batches of two epochs: of
    numbers that are all alike, or of a few that happen to be, nothing could be told.
    """
    usual = Counter(counts).most_common(1)[0][0] if counts else 0
    for interval in sorted({*range(2, len(counts) // 2 + 1), *([batches] if batches > 1 else [])}):
        alike = all(one == other for one, other in zip(counts, counts[interval:], strict=False))
        if alike and any(count != usual for count in counts[interval:]):
            return interval, counts[-interval]
    return 0, 0


def _recorded(case: Case, divergence: Divergence, ranks: tuple[int, ...]) -> str:
    """Which of the earlier steps the habit is made of."""
    before = [step for rank in spread(ranks) for step in _before(case.ledger.steps(rank), divergence)]
    such = list(like(case, divergence, before))
    kind = f" and ends {'an' if such[0].ends_epoch else 'no'} epoch" if len(such) < len(before) else ""
    return f"that is recorded{kind}"


def _began_otherwise(case: Case, divergence: Divergence, ranks: tuple[int, ...], usual: set[int]) -> bool:
    """One of `ranks` issued another number in one of its first steps, of which the habit is not made."""
    before = (step for rank in spread(ranks) for step in _before(case.ledger.steps(rank), divergence))
    return any(step.counts.get(divergence.group, 0) not in usual for step in like(case, divergence, before))


def _counts_before(case: Case, divergence: Divergence, ranks: tuple[int, ...]) -> set[int]:
    """How many each of `ranks` issued in its steps before that one; empty where too few of them are recorded."""
    found: set[int] = set()
    for rank in spread(ranks):
        steps = _settled(list(like(case, divergence, _before(case.ledger.steps(rank), divergence))))
        if len(steps) < HABIT:
            return set()
        found.update(step.counts.get(divergence.group, 0) for step in steps)
    return found


def _settled(steps: list[Step]) -> list[Step]:
    """Without the first of all steps, where enough are left."""
    settled = [step for step in steps if step.step >= WARM_UP]
    return settled if len(settled) >= HABIT else steps


def like(case: Case, divergence: Divergence, steps: Iterable[Step]) -> Iterator[Step]:
    """Those that end an epoch, as that step does, or that do not: ranks evaluate and save between two epochs."""
    at = (divergence.epoch, divergence.batch, divergence.step)
    known = (step for rank in spread(divergence.counts) for step in case.ledger.steps(rank))
    ends = any(step.ends_epoch for step in known if (step.epoch, step.batch, step.step) == at)
    return (step for step in steps if step.ends_epoch == ends)


def _before(steps: Sequence[Step], divergence: Divergence) -> Iterator[Step]:
    named = divergence.epoch is not None and divergence.batch is not None
    for step in steps:
        here = (step.epoch, step.batch) == (divergence.epoch, divergence.batch) if named else False
        if here or (not named and step.step >= divergence.step):
            return
        yield step


def comes_and_goes(case: Case, divergence: Divergence, ranks: tuple[int, ...], places: Iterable[Site]) -> bool:
    """In some of their earlier steps `ranks` called from there, and in some they did not."""
    wanted = set(places)
    before = (
        not wanted.isdisjoint(made)
        for rank in spread(ranks)
        for step, made in sites_of(case).by_step(rank).items()
        if step < divergence.step
    )
    return len(set(before)) > 1
