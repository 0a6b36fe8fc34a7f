"""All have come, but they do not fit: different calls under one number, circles over groups and peers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..frames import user_frame
from ..ledger import Group, family
from ..records import Certainty, Collective, Frame, Status, StepName
from . import words
from .case import FROM_ROOT, TO_ROOT, Blocked, Case, what
from .finding import Finding, Rule
from .sites import ASKED, site, sites_of
from .witness import Kind, Witness

# Kinds in which every member must bring the same number of elements.
SAME_SIZE = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "gather"})
EARLIER = 128  # calls before a meeting that are compared: as many as a rank tells of each group
# The recorder names threads as the system does: those of the autograd engine, and the main one by the program.
UNNAMED = re.compile(r"|pt_autograd_\d+|python[\d.]*")
_SHORT_DTYPE = {"float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32"}


# ------------------------------------------------------------------------------------------ different calls


@dataclass(frozen=True)
class Shape:
    """What a call must share with its partners."""

    kind: str
    dtype: str = ""
    elements: int | None = None
    root: int | None = None

    def __str__(self) -> str:
        size = "" if self.elements is None else f" of {words.plural(self.elements, 'element')}"
        end = "" if self.root is None else f" {'from' if self.kind in FROM_ROOT else 'to'} rank {self.root}"
        return f"{self.kind}{size}{f' ({self.dtype})' if self.dtype else ''}{end}"


def shape(call: Collective) -> Shape:
    """What `call` must share with its partners, as far as it was recorded."""
    kind = family(call.op)
    dtype = call.dtypes[0].lower().removeprefix("torch.") if call.dtypes and kind in SAME_SIZE else ""
    elements = sum(math.prod(size) for size in call.sizes) if call.sizes and kind in SAME_SIZE else None
    root = call.peer if kind in (*FROM_ROOT, *TO_ROOT) else None
    return Shape(kind, _SHORT_DTYPE.get(dtype, dtype), elements, root)


def collective_mismatch(case: Case) -> Finding | None:
    """Members of a group met under one number with different operations, types or sizes."""
    for group, seq in _meetings(case):
        calls = {rank: call for rank in group.members if (call := case.ledger.call(rank, group.name, seq)) is not None}
        if len(differing(calls)) > 1:
            return _crossed_threads(case, group, seq, calls) or _mismatch(case, group, seq, calls)
    return None


def _crossed_threads(case: Case, group: Group, seq: int, calls: dict[int, Collective]) -> Finding | None:
    """The calls that met come from different threads, and on each rank both of these threads use the group."""
    threads = {call.thread_name for call in calls.values() if not UNNAMED.fullmatch(call.thread_name)}
    users = {rank: _threads_of(case, rank, group) for rank in calls}
    if len(threads) < 2 or not all(threads <= names for names in users.values()):
        return None
    met = [
        f"{case.name([rank])} calls {shape(call)} in thread {call.thread_name!r}{words.at(_where(case, rank, calls))}"
        for rank, call in list(calls.items())[:4]
    ]
    ended = any(case.ranks[rank].dead or case.ranks[rank].raised for rank in calls if rank in case.ranks)
    return Finding(
        "concurrent-collectives",
        Certainty.LIKELY,
        f"Threads {words.listed(sorted(map(repr, threads)))} of each rank use one process group at the same time, and"
        f" their calls met in another order on each: {words.listed(met)}.",
        culprits=tuple(case.ranks[rank].culprit(_where(case, rank, calls)) for rank in calls if rank in case.ranks),
        victims=(),
        step=next((case.ranks[rank].step for rank in calls if rank in case.ranks), StepName()),
        evidence=(
            f"collective {seq} of group {group.name}: {words.listed(met)}",
            f"on {case.name(calls)}, threads {words.listed(sorted(map(repr, threads)))} have issued calls in it",
        ),
        status=Status.FAILED if ended else None,
        awaited=tuple(calls),
    )


def _threads_of(case: Case, rank: int, group: Group) -> set[str]:
    return {call.thread_name for call in case.ledger.calls(rank).values() if call.group == group.name}


def _meetings(case: Case) -> Iterator[tuple[Group, int]]:
    """Numbers at which ranks wait, or at which ranks have ended; each once."""
    seen = {}
    for entry in case.blocked.values():
        if entry.group is not None and entry.seq:
            seen[id(entry.group), entry.seq] = entry.group
    for view in case:
        if view.dead or view.raised:
            seen.update(
                {(id(group), group.issued(view.rank) or 0): group for group in case.ledger.groups_of(view.rank)}
            )
    for (_, seq), group in seen.items():
        if seq > 0:
            yield group, seq


def differing(calls: dict[int, Collective]) -> dict[Shape, list[int]]:
    """Ranks by what they called; what is not known of one counts as equal to any."""
    shapes = {rank: shape(call) for rank, call in calls.items()}
    kinds = _sides({rank: replace(one, root=None) for rank, one in shapes.items() if one.kind})
    if len({one.kind for one in kinds}) > 1:
        return kinds
    roots = _sides({rank: one for rank, one in shapes.items() if one.root is not None})
    if len({one.root for one in roots}) > 1:
        return roots
    complete = {rank: one for rank, one in shapes.items() if one.elements is not None and one.dtype}
    sizes = _sides({rank: replace(one, root=None) for rank, one in complete.items()})
    return sizes if len(sizes) > 1 else {}


def _sides(shapes: dict[int, Shape]) -> dict[Shape, list[int]]:
    sides: dict[Shape, list[int]] = {}
    for rank, one in shapes.items():
        sides.setdefault(one, []).append(rank)
    return sides


def _fix(sides: dict[Shape, list[int]]) -> str:
    if len({one.kind for one in sides}) > 1:
        return "call the same operation on every rank at this point: what decides must be the same on all of them"
    if len({one.root for one in sides}) > 1:
        return "agree on the root: choose it from what is the same on every rank, or broadcast the choice from rank 0"
    return ""  # as the catalogue says


def _mismatch(case: Case, group: Group, seq: int, calls: dict[int, Collective]) -> Finding:
    sides = differing(calls)
    outvoted, unlike = _odd_ones(sides, len(group.members)), _unlike_before(case, calls)
    odd = outvoted or unlike or sorted(rank for ranks in sides.values() for rank in ranks)
    witnesses = _witnesses(case, outvoted, unlike, sides)
    if outvoted and _same_until(case, group, seq, calls, outvoted):
        witnesses += (Witness(Kind.PLACE, "all calls of that group before it are alike on every rank"),)
    texts = [
        f"{case.name(ranks)} {words.verb(len(ranks), 'calls', 'call')} {side}{words.at(_where(case, ranks[0], calls))}"
        for side, ranks in sorted(sides.items(), key=lambda item: (len(item[1]), item[1]))
    ]
    ended = [rank for rank in calls if rank in case.ranks and (case.ranks[rank].dead or case.ranks[rank].raised)]
    step = next((case.ranks[rank].step for rank in odd or calls if rank in case.ranks), StepName())
    details = (f"{case.name(ended, capital=True)} ended because of it.",) if ended else ()
    return Finding(
        "collective-mismatch",
        case.weigh(witnesses) if witnesses and not ended else Certainty.LIKELY,
        f"The ranks call different collectives at the same point: {words.listed(texts)}.",
        fix=_fix(sides),
        culprits=tuple(case.ranks[rank].culprit(_where(case, rank, calls)) for rank in odd),
        victims=tuple(rank for rank in calls if rank not in odd),
        step=step,
        evidence=(f"collective {seq} of group {group.name}: {words.listed(texts)}",),
        witnesses=witnesses,
        details=details,
        status=Status.FAILED if ended else None,
        awaited=tuple(calls),
    )


def _witnesses(
    case: Case, outvoted: list[int], unlike: list[int], sides: dict[Shape, list[int]]
) -> tuple[Witness, ...]:
    """Most members call the same; and what a rank brings is unlike all that it brought to this call before."""
    heard = []
    if outvoted:
        usual = [rank for ranks in sides.values() for rank in ranks if rank not in outvoted]
        heard.append(Witness(Kind.MAJORITY, f"most members call the same: {case.name(usual)}"))
    if unlike:
        says = f"{case.name(unlike)} alone called otherwise than ever before, or from a new line"
        heard.append(Witness(Kind.HABIT, says, agrees=not outvoted or set(unlike) == set(outvoted)))
    return tuple(heard)


def _same_until(case: Case, group: Group, seq: int, calls: dict[int, Collective], outvoted: list[int]) -> bool:
    """Nothing before it differs, all are in one function, and no outvoted rank has made its call before elsewhere.

    Then the ranks are at one point of the program; else some may be a call ahead, and rather have left one out.
    """
    sites, places = sites_of(case), [_where(case, rank, calls) for rank in calls]
    if len({(place.file, place.function) for place in places if place is not None}) > 1:
        return False
    lines = {rank: words.place(_where(case, rank, calls)) for rank in calls}
    usual = {line for rank, line in lines.items() if rank not in outvoted}
    if any(lines[rank] not in usual and sites.used(rank, calls[rank]) for rank in outvoted):
        return False
    asked = [*outvoted[:ASKED], *[rank for rank in calls if rank not in outvoted][:ASKED]]
    for earlier in range(max(seq - EARLIER, 1), seq):
        made = {rank: call for rank in asked if (call := case.ledger.call(rank, group.name, earlier)) is not None}
        if len({site(call) for call in made.values()}) > 1 or len(differing(made)) > 1:
            return False
    return True


def _odd_ones(sides: dict[Shape, list[int]], members: int) -> list[int]:
    """Who differs from more than half of the group's members; nobody where there is no such half."""
    largest = max(sides.values(), key=len)
    if 2 * len(largest) <= members:
        return []
    return sorted(rank for ranks in sides.values() if ranks is not largest for rank in ranks)


def _unlike_before(case: Case, calls: dict[int, Collective]) -> list[int]:
    """Who alone calls from a new place, or brings another size than ever before; nobody where that is not clear."""
    sites = sites_of(case)
    regular = {rank: sites.used(rank, calls[rank]) for rank in calls}
    new = sorted(rank for rank, before in regular.items() if not before)
    if new:
        return new if len(new) < len(calls) and all(len(before) > 1 for before in regular.values() if before) else []
    odd = sorted(rank for rank, before in regular.items() if shape(calls[rank]) not in map(shape, before))
    alike = all(len(set(map(shape, before))) == 1 for before in regular.values())
    return odd if alike and len(odd) < len(calls) else []


def _where(case: Case, rank: int, calls: dict[int, Collective]) -> Frame | None:
    view = case.ranks.get(rank)
    return user_frame(calls[rank].frames) or (view.where if view is not None else None)


# ------------------------------------------------------------------------------------------ circles


def point_to_point_deadlock(case: Case) -> Finding | None:
    """A circle of waits with a send or receive in it, or a receive whose sender waits elsewhere for good."""
    circle = case.graph.cycle(case.deadlocked)
    entries = [case.blocked[rank] for rank in circle]
    if not any(entry.to_a_peer for entry in entries):
        return None
    return _circle(case, "point-to-point-deadlock", entries)


def group_order_cycle(case: Case) -> Finding | None:
    """A circle of waits over different groups."""
    circle = case.graph.cycle(case.deadlocked)
    entries = [case.blocked[rank] for rank in circle]
    groups = {entry.group.key for entry in entries if entry.group is not None}
    if len(groups) < 2:
        return None
    return _circle(case, "group-order-cycle", entries)


def _circle(case: Case, cause: str, entries: list[Blocked]) -> Finding:
    """That the ranks are dead is proven; who should have come first is not: all of the circle take part alike."""
    following = [*entries[1:], entries[0]]
    edges = [
        f"rank {entry.rank} waits for rank {other.rank} in {what(entry)}{words.at(entry.where)}"
        for entry, other in zip(entries, following, strict=True)
    ]
    strays = [entry for entry in entries if sites_of(case).strays(entry.rank)]
    alone = len(strays) == 1 and cause == "point-to-point-deadlock"
    guilty = strays if alone else [*entries, *_also_in(case, entries)]
    waits = tuple(case.wait(entry.rank, (other.rank,)) for entry, other in zip(entries, following, strict=True))
    kind = "sends and receives that do not match" if cause.startswith("point") else "collectives of different groups"
    return Finding(
        cause,
        Certainty.LIKELY,
        f"{case.name([entry.rank for entry in entries], capital=True)} wait for each other in a circle, in {kind}:"
        f" {'; '.join(edges[:3])}{'; ...' if len(edges) > 3 else ''}.",
        culprits=tuple(case.ranks[entry.rank].culprit() for entry in guilty),
        victims=tuple(sorted(case.deadlocked - {entry.rank for entry in guilty})),
        step=case.ranks[entries[0].rank].step,
        evidence=(*edges[: words.SHOWN], *_astray(strays)),
        waits=waits,
    )


def _also_in(case: Case, entries: list[Blocked]) -> list[Blocked]:
    """Ranks in the same waits as those of the circle, for which somebody in the circle waits too."""
    needs = [entry.need for entry in entries if entry.need is not None]
    awaited = {rank for need in needs for rank in need.absent} - {entry.rank for entry in entries}
    found = (case.blocked[rank] for rank in sorted(awaited) if rank in case.blocked)
    return [entry for entry in found if entry.need in needs]


def _astray(strays: list[Blocked]) -> tuple[str, ...]:
    if len(strays) != 1:
        return ()
    return (f"rank {strays[0].rank} alone has left the order of calls that it kept in all earlier steps",)


RULES: tuple[Rule, ...] = (collective_mismatch, point_to_point_deadlock, group_order_cycle)


def aborted_by_mismatch(case: Case) -> Finding | None:
    """A rank ended in a collective that it called otherwise than its partners (gloo aborts on different sizes)."""
    if not any((view.dead and not view.finished) or view.raised for view in case):
        return None
    found = collective_mismatch(case)
    return found if found is not None and found.status is Status.FAILED else None


GONE: tuple[Rule, ...] = (aborted_by_mismatch,)
