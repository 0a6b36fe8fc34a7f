"""A departure from the common order of calls, as the finding that it makes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Frame, Wait

from .counts import Odd
from .departure import Departure
from .finding import Finding, alone_cause, wait_edges
from .follow import Chain
from .history import Histories
from .matching import shape
from .model import Call, Communicator, Queues
from .names import apart, at, named, ranks
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
    members = {rank for root in chain.roots for rank in (*root.waiting, *root.awaited)}
    for group in queues.communicators:
        departure = histories.departure(group) if members & set(group.members) else None
        if departure is None or _is_theirs(departure):
            continue
        if departure.majority and departure.kind is not Kind.OTHER:
            victims = tuple(sorted(members - set(departure.ranks)))
            return finding(departure, victims, wait_edges(chain.roots[0], departure.ranks))
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
    if departure is None or _is_theirs(departure) or not _tells(departure, root):
        return None
    victims = tuple(sorted({*root.waiting, *root.awaited, *root.calls} - set(departure.ranks)))
    waits = wait_edges(root, departure.ranks)
    if departure.number == root.number and departure.kind is Kind.SKIPPED:
        usual = apart(departure.own, departure.usual)[1]  # the line that is told, and not that of a helper
        waits = tuple(replace(edge, where=usual or edge.where) for edge in waits)
    return finding(departure, victims, waits)


def _tells(departure: Departure, root: Stuck) -> bool:
    """A mere pairing of different calls, without a majority or a habit, is left to the rules for mismatches.

    So is a call among coalesced ones: they share a number, and those behind them are paired as before.
    """
    if departure.number == root.number and departure.bundled:
        return False
    if departure.stayed and departure.majority:
        return True
    if departure.kind is Kind.OTHER:
        return departure.number < root.number and bool(departure.majority or departure.habit)
    return bool(departure.majority or departure.habit or departure.agreeing)


def finding(departure: Departure, victims: tuple[int, ...], waits: tuple[Wait, ...] = ()) -> Finding:
    """What a departure says, and how certain: proven where the majority and the ranks' own habit agree."""
    certainty = Certainty.PROVEN if _is_sure(departure) else Certainty.LIKELY
    rare = departure.by_most and departure.habit < ENOUGH  # most ranks may be done with it
    if departure.lone or rare or _is_thin(departure) or _may_be_layers(departure):
        certainty = Certainty.UNDETERMINED
    if not (departure.majority or departure.habit):
        return _either(departure, victims, waits)
    if departure.early and departure.kind is not Kind.OTHER:
        return _early(departure, victims, waits)
    summary, cause = _of_run(departure) if departure.run else _said(departure)
    own, usual = apart(departure.own, departure.usual)
    where = usual or own if departure.kind is Kind.SKIPPED and not departure.stayed else own
    return Finding(
        cause,
        certainty,
        summary,
        culprits=tuple((rank, where) for rank in departure.ranks),
        victims=victims,
        evidence=tuple(_witnesses(departure)),
        waits=waits,
        left_out=departure.usual if cause == "skipped-collective" and not departure.begun_again else None,
        departure=departure,
        alternatives=_or_else(departure),
        fix=AS_OFTEN if departure.run else _IN_ORDER if departure.kind is Kind.MOVED else "",
    )


def _or_else(departure: Departure) -> tuple[Alternative, ...]:
    return (*_first_of_all(departure), *_or_the_other(departure))


def _first_of_all(departure: Departure) -> tuple[Alternative, ...]:
    """What looks the same: a round that is missing at the end of a loop may be missing in its middle, and so on."""
    if departure.by_most:
        said = f"most ranks did alike: {ranks(departure.against)} may have made a call too many"
        return (Alternative("rank-local-decision", Certainty.UNDETERMINED, said),)
    if departure.synchronises and departure.turn_less:
        said = f"{ranks(departure.ranks)} may have left these calls out within a turn"
        return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)
    if departure.stayed:
        said = f"{ranks(departure.ranks)} may have left that call out, and have begun what comes behind it"
        return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)
    if departure.kind is Kind.EXTRA and departure.again:
        said = f"{ranks(departure.ranks)} may have made these calls alone, and not as a round of the loop"
        return (Alternative(alone_cause(departure.ranks), Certainty.UNDETERMINED, said),)
    if departure.twice and not departure.ended:
        said = f"{ranks(departure.ranks)} may have made {shape(departure.own)} once more, and left nothing out"
        return (Alternative(alone_cause(departure.ranks), Certainty.UNDETERMINED, said),)
    if departure.lone:
        said = f"the calls of {ranks(departure.ranks)} from there on may come after the end of their loop"
        return (Alternative("uneven-steps", Certainty.UNDETERMINED, said),)
    if departure.only_one_behind:
        said = f"{ranks(departure.ranks)} may make that call later than the others, and not leave it out"
        return (Alternative("collective-mismatch", Certainty.UNDETERMINED, said),)
    if not departure.ended:
        return ()
    said = f"{ranks(departure.ranks)} may have left out an earlier round, and not the last one"
    return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)


def _or_the_other(departure: Departure) -> tuple[Alternative, ...]:
    """A turn of a loop that was made once more, and what comes between two turns left out: calls alone do not tell."""
    who, calls = ranks(departure.ranks), words.plural(departure.instead, "call")
    settled = departure.twice or departure.by_most or departure.stayed or departure.ended or departure.begun_again
    if settled or not departure.instead:
        return ()
    if departure.kind is Kind.EXTRA:
        said = f"{who} may have left out {calls} there instead, and have made none once more"
        return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)
    said = f"{who} may have made {calls} more, as turns of a loop before it, and have left nothing out"
    return (Alternative("uneven-steps", Certainty.UNDETERMINED, said),)


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
    texts = [
        f"{ranks(who)} {words.verb(len(who), 'calls', 'call')} {shape(call)}{at(call)}" for who, call in departure.sides
    ]
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


def _of_run(departure: Departure) -> tuple[str, str]:
    """The sentence and the cause where one side left a run of calls that the other one continued."""
    who, others = ranks(departure.ranks, capital=True), ranks(departure.against)
    own, usual = (f"{shape(call)}{words.at(each)}" for call, each in _both(departure))
    # Equal calls that were paired one call too early look as they should.
    mispaired = (
        f"that shows at number {departure.number} of {departure.group.title}; calls before it may be mispaired too."
    )
    if departure.kind is Kind.SKIPPED:
        fewer = f"{who} made fewer calls of {usual} than {others}, and went on to {own}: {mispaired}"
        return fewer, "skipped-collective"
    more = f"{who} made more calls of {own} than {others}, which went on to {usual}: {mispaired}"
    return more, alone_cause(departure.ranks)


def _both(departure: Departure) -> Iterable[tuple[Call, Frame | None]]:
    """The own call and the usual one, each with the line by which it is told apart."""
    return zip((departure.own, departure.usual), apart(departure.own, departure.usual), strict=True)


def _early(departure: Departure, victims: tuple[int, ...], waits: tuple[Wait, ...]) -> Finding:
    """The orders are shifted from the first recorded call on: which call it was is not known, only which ranks."""
    fewer = departure.kind is Kind.SKIPPED
    witnesses = tuple(_witnesses(departure))
    return _of_unknown_calls(
        departure.group,
        departure.ranks,
        -departure.count if fewer else departure.count,
        "before what is recorded",
        witnesses,
        victims,
        waits,
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
    witnesses: tuple[str, ...],
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
        evidence=witnesses,
        waits=waits,
        fix="make that call on every rank alike; with more calls on record (TORCH_FR_BUFFER_SIZE) its line may be seen",
    )


def _said(departure: Departure) -> tuple[str, str]:
    """The sentence and the cause."""
    group, number = departure.group, departure.number
    own, usual = map(words.at, apart(departure.own, departure.usual))
    who = ranks(departure.ranks, capital=True)
    if departure.stayed:
        went = (
            f"{who} went on with {shape(departure.own)}{own} as number {number} of {group.title}, where the others call"
            f" {shape(departure.usual)}{usual}, as after their earlier rounds: a round more than they made."
        )
        return went, "uneven-steps"
    if departure.synchronises:
        return _said_of_cadence(departure), "gradient-sync-mismatch"
    if departure.kind is Kind.SKIPPED:
        return _said_of_skipped(departure)
    if departure.begun_again:
        said = (
            f"{who} began again after {words.plural(departure.count, 'call')} of {group.title}, from"
            f" {named(departure.own, number, group)}{own} on, where the others call {shape(departure.usual)}{usual}:"
            " what comes behind these calls was left out, as by an error that is caught."
        )
        return said, "skipped-collective"
    if departure.kind is Kind.EXTRA and departure.again:
        said = (
            f"{who} made {words.plural(departure.count, 'call')} of {group.title} once more, from"
            f" {named(departure.own, number, group)}{own} on, where the others call {shape(departure.usual)}{usual}:"
            " a round more than they made."
        )
        return said, "uneven-steps"
    if departure.kind is Kind.EXTRA:
        said = (
            f"{who} alone called {named(departure.own, number, group)}{own}, where the others call"
            f" {shape(departure.usual)}{usual}: every later call is mispaired."
        )
        return said, alone_cause(departure.ranks)
    if departure.kind is Kind.MOVED:
        said = (
            f"{who} made {words.plural(departure.count, 'call')} of {group.title} in another order, from number"
            f" {number} on: {shape(departure.own)}{own} there, where the others call"
            f" {shape(departure.usual)}{usual}."
        )
        return said, "collective-mismatch"
    said = (
        f"{who} called {shape(departure.own)}{own} as number {number} of {group.title}, where the others"
        f" call {shape(departure.usual)}{usual}."
    )
    if departure.lone:
        return f"{said} No other call of theirs has come from there.", alone_cause(departure.ranks)
    return said, "collective-mismatch"


def _said_of_cadence(departure: Departure) -> str:
    """Ranks that came to the calls of the gradients after another number of turns of the loop before them."""
    who, place = ranks(departure.ranks, capital=True), f"number {departure.number} of {departure.group.title}"
    own, usual = shape(departure.own), shape(departure.usual)
    turn = f"a turn of {words.plural(departure.count, 'call')}"
    if departure.turn_less:
        return f"{who} went on to the gradients' {own} {turn} earlier than the others, which call {usual} as {place}."
    return f"{who} made {turn} more, from {own} on, where the others went on to the gradients' {usual} as {place}."


def _said_of_skipped(departure: Departure) -> tuple[str, str]:
    own, usual = map(words.at, apart(departure.own, departure.usual))
    after = "more of it between others" if departure.scattered else "after it"
    more = f" and {words.plural(departure.count - 1, 'call')} {after}" if departure.count > 1 else ""
    said = (
        f"{ranks(departure.ranks, capital=True)} left out {named(departure.usual, departure.number, departure.group)}"
        f"{usual}{more}, and called {shape(departure.own)}{own} in its place"
    )
    if departure.ended:
        left = words.verb(len(departure.ranks), "it has", "they have")
        return f"{said}: {left} left the loop earlier.", "uneven-steps"
    return f"{said}: every later call is mispaired.", "skipped-collective"


def habit_of(departure: Departure) -> str:
    """The sentence on what the ranks did in earlier rounds."""
    return f"in earlier rounds {ranks(departure.ranks)} called {_usual(departure)} there too"


def _usual(departure: Departure) -> str:
    return f"{shape(departure.usual)}{words.at(apart(departure.own, departure.usual)[1])}"


def _witnesses(departure: Departure) -> Iterable[str]:
    usual = _usual(departure)
    if departure.counted is not None:
        yield str(departure.counted)
    elif departure.beside:
        yield f"{ranks(departure.beside)}, in other groups, called {usual} in the same place of the same order"
    elif departure.majority:
        yield f"most ranks of {departure.group.title} that came to it call {usual} there"
    if departure.habit:
        yield habit_of(departure)
    if departure.agreeing and not departure.stayed and departure.kind is not Kind.OTHER:
        yield from _behind(departure)


def _behind(departure: Departure) -> Iterable[str]:
    """How the calls behind the place go on as those of the others; those that were moved are counted as agreeing."""
    moved = departure.kind is Kind.MOVED
    calls, agreeing = words.plural(departure.count, "call"), departure.agreeing - departure.count * moved
    change = "fewer" if departure.kind is Kind.SKIPPED else "more"
    where = f"but for {calls} of one kind ({change})" if departure.scattered else f"shifted by {calls} ({change})"
    if agreeing > 0:
        begin = f"behind these {calls}" if moved else where
        are = f"{words.plural(agreeing, 'call')} {words.verb(agreeing, 'is', 'are')}"
        yield f"{begin}, the next {are} as on the others or in earlier rounds"
