"""The first step in which the ranks' ledgers part: who left the common path there, and how.

Numbers alone cannot tell a rank that skipped a call from one that made a call too many: both leave one with fewer and
one with more. What tells them apart is the majority, what a rank did in its own earlier steps, and whether the call
sites in question had ever been used before.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from ..records import Bypass, Divergence, StepName
from . import words
from .case import Case, once
from .loops import first_uneven, has_left_inner_loop, have_met_again
from .sites import Site, sites_of
from .ways import ways_past


class Left(StrEnum):
    """How somebody left the common path."""

    SKIPPED = "skipped"  # too few calls
    EXTRA = "extra"  # calls that nobody else makes
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Parting:
    """The first step in which the ranks' ledgers part: who left the path there, and how.

    `sure` is true where a majority of the ranks says so. `call` names the calls in question where they are known, and
    `ways` are those past them, by the source.
    """

    divergence: Divergence
    how: Left
    who: tuple[int, ...] = ()
    sure: bool = False
    call: str = ""
    ways: tuple[Bypass, ...] = ()

    @property
    def step(self) -> StepName:
        return StepName(self.divergence.epoch, self.divergence.batch, self.divergence.step)

    @property
    def when(self) -> str:
        """`in epoch 0, batch 7 (step 7)`, or `before` it where nobody looked at the very step."""
        return f"{'in' if self.divergence.exact else 'some time before'} {words.step(self.step)}"


@once
def parting(case: Case) -> Parting | None:
    """Where the ledgers part for the first time, unless the end of a loop explains it."""
    uneven = first_uneven(case)
    late: set[int] = set()  # their later steps are other ones than those of the same number elsewhere
    for divergence in case.divergences:
        if have_met_again(case, divergence.counts):
            continue
        if uneven is not None and not _before_loop_end(divergence, uneven.epoch, uneven.fewest):
            continue
        if _counted_late(case, divergence):
            late.update(divergence.more)
        elif late.isdisjoint(divergence.counts) and not _left_loop(case, divergence):
            return _judged(case, divergence)
    return None


def _before_loop_end(divergence: Divergence, epoch: int, batch: int) -> bool:
    """It happened before the step that the short ranks lacked."""
    if divergence.epoch is None or divergence.batch is None:
        return False
    return (divergence.epoch, divergence.batch) < (epoch, batch - 1)


def _left_loop(case: Case, divergence: Divergence) -> bool:
    """The surplus is the call in which ranks stand now, behind a loop that they have left."""
    most = max(divergence.counts.values())
    longest = [case.ranks[rank] for rank, count in divergence.counts.items() if count == most and rank in case.ranks]
    last = [view for view in longest if view.step.step == divergence.step]
    return bool(last) and len(last) == len(longest) and all(has_left_inner_loop(case, view) for view in last)


def _counted_late(case: Case, divergence: Divergence) -> bool:
    """No call is missing: a step of somebody holds several turns of the loop, for he ended none of them.

    Steps without a DataLoader end in optimizer.step(). Who leaves it out once makes all calls of two turns in one step,
    and the others make just as many, in two steps: all are complete, or there are several kinds, each twice.
    """
    if divergence.epoch is not None or not _several_turns(case, divergence):
        return False
    group = case.ledger.group(divergence.more[0], divergence.group)
    heads = [group.heads.get(rank) for rank in divergence.counts] if group is not None else []
    level = len({(head.issued, head.completed) for head in heads if head is not None}) == 1
    complete = all(head is not None and head.issued == head.completed for head in heads)
    kinds = sites_of(case).inside(divergence.more[0], divergence.group, divergence.step)
    return (bool(heads) and level and complete) or (kinds is not None and len(kinds[0]) > 1)


def _several_turns(case: Case, divergence: Divergence) -> bool:
    """Those with more calls than usual made exactly what the others make in a turn, twice or three times..."""
    if divergence.short or not divergence.more or not divergence.exact:
        return False
    sites = sites_of(case)
    fewest = min(divergence.counts, key=lambda rank: divergence.counts[rank])
    usual = sites.inside(fewest, divergence.group, divergence.step)
    for rank in divergence.more:
        long = sites.inside(rank, divergence.group, divergence.step)
        times, rest = divmod(divergence.counts[rank], max(divergence.counts[fewest], 1))
        if long is None or usual is None or times < 2 or rest or not usual[0]:
            return False
        if long[0] != Counter({place: times * count for place, count in usual[0].items()}):
            return False
    return True


def _judged(case: Case, divergence: Divergence) -> Parting:
    counts = Counter(divergence.counts.values())
    (norm, times) = counts.most_common(1)[0]
    short = tuple(sorted(rank for rank, count in divergence.counts.items() if count < norm))
    more = tuple(sorted(rank for rank, count in divergence.counts.items() if count > norm))
    ends = (min(divergence.counts.items(), key=_count), max(divergence.counts.items(), key=_count))
    by_sites, call, ways = Left.UNKNOWN, "", tuple[Bypass, ...]()
    if divergence.exact:
        by_sites, call, ways = _by_sites(case, divergence, ends[0][0], ends[1][0])
    if 2 * times > counts.total():
        how = Left.SKIPPED if short else Left.EXTRA
        return Parting(divergence, how, short or more, sure=True, call=call, ways=ways)
    if by_sites is Left.UNKNOWN or _several_turns(case, divergence):
        return _by_habit(divergence)
    count = ends[0][1] if by_sites is Left.SKIPPED else ends[1][1]
    who = tuple(sorted(rank for rank, issued in divergence.counts.items() if issued == count))
    return Parting(divergence, by_sites, who if len(set(counts)) == 2 else (), call=call, ways=ways)


def repeated(case: Case, found: Parting, rank: int) -> str:
    """What `rank` called too often in that step, where all of it comes from lines that others use as well; else ""."""
    counts, sites = found.divergence.counts, sites_of(case)
    other = min(counts, key=lambda each: counts[each])
    mine, theirs = (sites.inside(each, found.divergence.group, found.divergence.step) for each in (rank, other))
    if theirs is None or mine is None or not found.divergence.exact:
        return ""
    surplus = _by_line(mine[0]) - _by_line(theirs[0])
    known = _by_line(theirs[0]).keys() | _by_line(Counter(theirs[1])).keys()
    alike = surplus.total() == counts[rank] - counts[other] and surplus.keys() <= known
    if len(surplus) != 1 or not alike:
        return ""
    return sites.named(rank, *next(iter(surplus.items())))


def _by_line(places: Counter[Site]) -> Counter[Site]:
    """The same, by the innermost of the user's lines alone."""
    found: Counter[Site] = Counter()
    for (kind, path), times in places.items():
        found[kind, path[:1]] += times
    return found


def _count(item: tuple[int, int]) -> int:
    return item[1]


def _by_sites(case: Case, divergence: Divergence, short: int, long: int) -> tuple[Left, str, tuple[Bypass, ...]]:
    """What the call sites of that step say: did one leave out what was always called, or one call what never was?

    Then the calls in question, and the ways past them.
    """
    sites = sites_of(case)
    theirs = sites.inside(long, divergence.group, divergence.step)
    mine = sites.inside(short, divergence.group, divergence.step)
    if theirs is None or not theirs[0] or not theirs[1]:
        return Left.UNKNOWN, "", ()
    surplus = theirs[0] - (mine[0] if mine is not None else Counter())
    known = theirs[1] | (mine[1] if mine is not None else set())
    call, ways = "", tuple[Bypass, ...]()
    if len(surplus) == 1 and mine is not None and (mine[0] or not divergence.counts[short]):
        (place, times), *_ = surplus.items()
        call = sites.named(long, place, times)
        ways = ways_past(case, place, 1 if sites.in_backward(long, place) else times)
    used = [place in known for place in surplus]
    if used and all(used):
        return Left.SKIPPED, call, ways
    return (Left.EXTRA if used and not any(used) else Left.UNKNOWN), call, ways


def _by_habit(divergence: Divergence) -> Parting:
    """What the ranks usually did until then, as the watch has remembered it."""
    if divergence.short and not divergence.more:
        return Parting(divergence, Left.SKIPPED, divergence.short)
    if divergence.more and not divergence.short:
        return Parting(divergence, Left.EXTRA, divergence.more)
    return Parting(divergence, Left.UNKNOWN)


def counted(case: Case, found: Parting) -> str:
    """`in epoch 1, batch 12 (step 212), rank 3 issued 2 and ranks 0-2 issued 3 collectives in group 0`."""
    by_count: dict[int, list[int]] = {}
    for rank, count in sorted(found.divergence.counts.items()):
        by_count.setdefault(count, []).append(rank)
    parts = [f"{case.name(ranks)} issued {count}" for count, ranks in sorted(by_count.items())[:4]]
    when = "in" if found.divergence.exact else "in all steps before"
    return f"{when} {words.step(found.step)}, {words.listed(parts)} collectives in group {found.divergence.group}"
