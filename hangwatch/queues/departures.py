"""A departure from the common order of calls, as the finding that it makes."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Wait

from . import either_way
from .counts import Odd
from .departure import Departure
from .departure_words import or_else, said, witnesses
from .finding import Finding, alone_cause, wait_edges
from .follow import Chain
from .history import Histories
from .matching import shape
from .model import Communicator, Queues
from .names import at, ranks, say, telling_line
from .readings import ENOUGH, Kind
from .stuck import Kind as Stands
from .stuck import Stuck
from .turns import OFTEN

AGREED = 3  # calls behind the place that agree again: no chance, where other ranks or rounds tell that very place, too
_NO_LAYERS = 16  # turns of a loop; models have fewer layers that each make one call of a kind, or their calls differ
_IN_ORDER = "make these calls in one order on every rank: from one thread, and in no order that a rank finds for itself"
AS_OFTEN = "call it as often on every rank: as many batches, layers or turns on each, or vote on when to stop"


def departed(queues: Queues, chain: Chain, histories: Histories) -> Finding | None:
    """A departure in a group of a circle, else in another group of its ranks: a small group may not show one."""
    for root in chain.roots:
        if (found := departed_in(root, histories)) is not None:
            return found
    members = chain.involved
    for group in queues.communicators:
        departure = histories.departure(group) if members & set(group.members) else None
        if departure is None or _is_theirs(departure):
            continue
        if departure.majority and departure.kind is not Kind.OTHER:
            victims = tuple(sorted(members - set(departure.ranks)))
            return finding(_with_line(departure, histories), victims, wait_edges(chain.roots[0], departure.ranks))
    return None


def _is_theirs(departure: Departure) -> bool:
    """Whether a call that seems to be added is the others' own, made from another line, and earlier than theirs.

    It fits the one under its number, and no rank has made a call of that group behind it: nothing there is mispaired.
    """
    if departure.kind is not Kind.EXTRA or departure.count > 1:
        return False
    last = {lane.enqueued for lane in departure.group.lanes.values()}
    return last == {departure.number} and shape(departure.own) == shape(departure.usual)


def departed_in(root: Stuck, histories: Histories) -> Finding | None:
    """The finding where ranks of the stuck call's group left the common order of calls before, or with it."""
    departure = histories.departure(root.group)
    departure = either_way.settled(departure, root, histories.queues) if departure is not None else None
    if departure is None or _is_theirs(departure) or not _tells(departure, root):
        return None
    departure = _with_line(departure, histories)
    victims = tuple(sorted({*root.waiting, *root.awaited, *root.calls} - set(departure.ranks)))
    waits = wait_edges(root, departure.ranks)
    if departure.number == root.number and departure.kind is Kind.SKIPPED:
        usual = departure.lines[1]  # the line that is told, and not that of a helper
        waits = tuple(replace(edge, where=usual or edge.where) for edge in waits)
    return finding(departure, victims, waits)


def _with_line(departure: Departure, histories: Histories) -> Departure:
    if departure.kind is not Kind.EXTRA:
        return departure
    return replace(departure, line=telling_line(departure.own, histories.queues.calls))


def _tells(departure: Departure, root: Stuck) -> bool:
    """A mere pairing of different calls, without a majority or a habit, is left to the rules for mismatches.

    So is a call among coalesced ones: they share a number, and those behind them are paired as before.
    """
    if departure.number == root.number and departure.bundled:
        return False
    if departure.stayed and departure.majority:
        return True
    if departure.kind is Kind.OTHER and departure.instead:
        apart = departure.number < root.number or not departure.at_one_line
        return apart and bool(departure.majority or departure.habit)
    if departure.kind is Kind.OTHER:
        return departure.number < root.number and bool(departure.majority or departure.habit)
    return bool(departure.majority or departure.habit or departure.agreeing)


def finding(departure: Departure, victims: tuple[int, ...], waits: tuple[Wait, ...] = ()) -> Finding:
    """What a departure says, and how certain: proven where the majority and the ranks' own habit agree."""
    certainty = Certainty.PROVEN if _is_sure(departure) else Certainty.LIKELY
    rare = departure.by_most and departure.habit < ENOUGH  # most ranks may be done with it
    doubtful = either_way.is_open(departure)
    if departure.lone or rare or doubtful or _is_thin(departure) or _may_be_layers(departure):
        certainty = Certainty.UNDETERMINED
    if not (departure.majority or departure.habit):
        return _either(departure, victims, waits)
    if departure.early and departure.kind is not Kind.OTHER:
        return _early(departure, victims, waits)
    summary, cause = said(departure)
    own, usual = departure.lines
    where = usual or own if departure.kind is Kind.SKIPPED and not departure.stayed else own
    return Finding(
        cause,
        certainty,
        summary + (either_way.doubt(departure) if doubtful else ""),
        culprits=tuple((rank, where) for rank in departure.ranks),
        victims=victims,
        evidence=tuple(witnesses(departure)),
        waits=waits,
        left_out=departure.usual if cause == "skipped-collective" and not departure.begun_again else None,
        departure=departure,
        alternatives=or_else(departure),
        fix=AS_OFTEN if departure.run or doubtful else _IN_ORDER if departure.kind is Kind.MOVED else "",
    )


def _is_sure(departure: Departure) -> bool:
    """Whether majority, habit and the calls behind the place agree, and nothing else may look the same."""
    if (
        departure.ended
        or departure.stayed
        or departure.synchronises
        or departure.twice
        or departure.instead
        or departure.counted is not None
        or not departure.sited
        or not departure.went_on
        or (departure.kind is Kind.EXTRA and departure.repeated)
    ):
        return False
    return bool(departure.majority and departure.habit >= OFTEN and departure.agreeing >= AGREED)


def _is_thin(departure: Departure) -> bool:
    """Ranks of other groups tell who left the order; what it left is not told by a few calls without their lines.

    Nor is it where a call made once more explains it as well: without lines that is any call of its kind.
    """
    by_others = bool(departure.beside) and departure.counted is None
    few = by_others and departure.agreeing < AGREED
    return not departure.sited and (few or departure.twice)


def _may_be_layers(departure: Departure) -> bool:
    """A short loop whose lines are not known may be the layers of one step, of which one was left out."""
    of_loop = (departure.ended and departure.count == 1) or departure.stayed
    return bool(of_loop) and not departure.sited and departure.rounds < _NO_LAYERS


def _either(departure: Departure, victims: tuple[int, ...], waits: tuple[Wait, ...]) -> Finding:
    """Nothing tells which side left the order: neither is the majority, and neither did otherwise before."""
    group, number = departure.group, departure.number
    texts = [f"{say(who, 'calls', 'call')} {shape(call)}{at(call)}" for who, call in departure.sides]
    sides = departure.sides[:1] if departure.few else departure.sides
    blamed = {rank: call.where for who, call in sides for rank in who}
    return Finding(
        "collective-mismatch",
        Certainty.UNDETERMINED,
        f"The order of calls parts at number {number} of {group.title}: {words.listed(texts)};"
        " nothing tells which of them left a call out, or added one.",
        culprits=tuple(blamed.items()),
        victims=tuple(rank for rank in victims if rank not in blamed),
        evidence=tuple(texts),
        waits=waits,
        departure=departure,
        fix=AS_OFTEN if departure.kind is not Kind.OTHER or shape(departure.own) == shape(departure.usual) else "",
    )


def _early(departure: Departure, victims: tuple[int, ...], waits: tuple[Wait, ...]) -> Finding:
    """The orders are shifted from the first recorded call on: which call it was is not known, only which ranks."""
    fewer = departure.kind is Kind.SKIPPED
    found = _of_unknown_calls(
        departure.group,
        departure.ranks,
        -departure.count if fewer else departure.count,
        "before what is recorded",
        tuple(witnesses(departure)),
        victims,
        waits,
    )
    if not departure.instead:
        return found
    other = f"{'added' if fewer else 'left out'} {words.plural(departure.instead, 'call')} instead"
    cause = alone_cause(departure.ranks) if fewer else "skipped-collective"
    settled = not either_way.is_open(departure)
    return replace(
        found,
        certainty=found.certainty if settled else Certainty.UNDETERMINED,
        alternatives=(Alternative(cause, Certainty.UNDETERMINED, f"{ranks(departure.ranks)} may have {other}"),),
    )


def odd_one(root: Stuck, histories: Histories) -> Odd | None:
    """The rank of a stuck collective's group whose number of calls is another one than that of other groups' ranks.

    Where calls do not fit under one number, their order with those of other groups is not what parted them.
    """
    return None if root.peers else histories.counted.odd(root.group, settled=root.kind is not Stands.MISMATCH)


def by_count(root: Stuck, odd: Odd, members: set[int]) -> Finding:
    """Calls that look all alike tell no order, and their number tells who left one out."""
    who = (odd.rank,)
    victims = tuple(sorted(members - {odd.rank}))
    when, more = f"before {odd.at}", odd.made - odd.usual
    return _of_unknown_calls(root.group, who, more, when, (str(odd),), victims, wait_edges(root, who))


def _of_unknown_calls(
    group: Communicator,
    who: tuple[int, ...],
    more: int,  # calls that they made than others; less than 0 for fewer
    when: str,
    evidence: tuple[str, ...],
    victims: tuple[int, ...],
    waits: tuple[Wait, ...],
) -> Finding:
    made = f"{'left out' if more < 0 else 'added'} {words.plural(abs(more), 'call')}"
    return Finding(
        "skipped-collective" if more < 0 else alone_cause(who),
        Certainty.LIKELY,
        f"{ranks(who, capital=True)} {made} of {group.title} {when}: every later call of that group is mispaired.",
        culprits=tuple((rank, None) for rank in who),
        victims=victims,
        evidence=evidence,
        waits=waits,
        fix="make that call on every rank alike; with more calls on record (TORCH_FR_BUFFER_SIZE) its line may be seen",
    )
