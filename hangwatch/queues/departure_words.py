"""The words for a departure from the common order of calls: what it was, what tells it, and what else it may be."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Frame

from . import either_way
from .departure import Departure
from .finding import alone_cause
from .matching import shape
from .model import Call
from .names import named, ranks
from .readings import Kind


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
    return zip((departure.own, departure.usual), departure.lines, strict=True)


def said(departure: Departure) -> tuple[str, str]:
    """The sentence and the cause."""
    if departure.run:
        return _of_run(departure)
    if departure.kind is Kind.SKIPPED and departure.unplaced:
        return _of_unplaced(departure)
    group, number = departure.group, departure.number
    own, usual = map(words.at, departure.lines)
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
        told = (
            f"{who} began again after {words.plural(departure.count, 'call')} of {group.title}, from"
            f" {named(departure.own, number, group)}{own} on, where the others call {shape(departure.usual)}{usual}:"
            " what comes behind these calls was left out, as by an error that is caught."
        )
        return told, "skipped-collective"
    if departure.kind is Kind.EXTRA:
        return _said_of_extra(departure)
    if departure.kind is Kind.MOVED:
        told = (
            f"{who} made {words.plural(departure.count, 'call')} of {group.title} in another order, from number"
            f" {number} on: {shape(departure.own)}{own} there, where the others call {shape(departure.usual)}{usual}."
        )
        return told, "collective-mismatch"
    if departure.instead:
        return either_way.said(departure)
    told = (
        f"{who} called {shape(departure.own)}{own} as number {number} of {group.title}, where the others"
        f" call {shape(departure.usual)}{usual}."
    )
    if departure.lone:
        return f"{told} No other call of theirs has come from there.", alone_cause(departure.ranks)
    return told, "collective-mismatch"


def _said_of_extra(departure: Departure) -> tuple[str, str]:
    """A round more than the others made, or a call that they do not make."""
    group, who = departure.group, ranks(departure.ranks, capital=True)
    own, usual = map(words.at, departure.lines)
    first = f"{named(departure.own, departure.number, group)}{own}"
    others = f"where the others call {shape(departure.usual)}{usual}"
    if departure.again:
        calls = words.plural(departure.count, "call")
        told = f"{who} made {calls} of {group.title} once more, from {first} on, {others}: a round more than they made."
        return told, "uneven-steps"
    return f"{who} alone called {first}, {others}: every later call is mispaired.", alone_cause(departure.ranks)


def _said_of_cadence(departure: Departure) -> str:
    """Ranks that came to the calls of the gradients after another number of turns of the loop before them."""
    who, place = ranks(departure.ranks, capital=True), f"number {departure.number} of {departure.group.title}"
    own, usual = shape(departure.own), shape(departure.usual)
    turn = f"a turn of {words.plural(departure.count, 'call')}"
    if departure.turn_less:
        return f"{who} went on to the gradients' {own} {turn} earlier than the others, which call {usual} as {place}."
    return f"{who} made {turn} more, from {own} on, where the others went on to the gradients' {usual} as {place}."


def _said_of_skipped(departure: Departure) -> tuple[str, str]:
    own, usual = map(words.at, departure.lines)
    after = "more of it between others" if departure.scattered else "after it"
    more = f" and {words.plural(departure.count - 1, 'call')} {after}" if departure.count > 1 else ""
    missing = named(departure.usual, departure.number, departure.group)
    if departure.count == 1 and not departure.ended and departure.since < departure.number:
        missing = f"one of {departure.usual.op} {departure.since}-{departure.number} of {departure.group.title}"
    told = (
        f"{ranks(departure.ranks, capital=True)} left out {missing}{usual}{more}, and called"
        f" {shape(departure.own)}{own} in its place"
    )
    if departure.ended:
        left = words.verb(len(departure.ranks), "it has", "they have")
        return f"{told}: {left} left the loop earlier.", "uneven-steps"
    return f"{told}: every later call is mispaired.", "skipped-collective"


def _of_unplaced(departure: Departure) -> tuple[str, str]:
    """Calls like the one that is missing are all that is recorded before: any of them, or an older one, may lack."""
    own, usual = (f"{shape(call)}{words.at(each)}" for call, each in _both(departure))
    told = (
        f"{ranks(departure.ranks, capital=True)} made {words.plural(departure.count, 'call')} of {usual} too few, and"
        f" which one is no longer on record: as number {departure.number} of {departure.group.title}"
        f" {words.verb(len(departure.ranks), 'it calls', 'they call')} {own}, where the others call {usual}."
    )
    return told, "skipped-collective"


def habit_of(departure: Departure) -> str:
    """The sentence on what the ranks did in earlier rounds."""
    return f"in earlier rounds {ranks(departure.ranks)} called {_usual(departure)} there too"


def _usual(departure: Departure) -> str:
    return f"{shape(departure.usual)}{words.at(departure.lines[1])}"


def witnesses(departure: Departure) -> Iterable[str]:
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


# ------------------------------------------------------------------------------------------ what else it may be


def or_else(departure: Departure) -> tuple[Alternative, ...]:
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
    if departure.reduces_more:
        who = ranks(departure.ranks)
        said = f"{who} may have reduced gradients in micro-batches in which the others did not (no_sync)"
        return (Alternative("gradient-sync-mismatch", Certainty.UNDETERMINED, said),)
    if departure.kind is Kind.EXTRA and departure.again:
        said = f"{ranks(departure.ranks)} may have made these calls alone, and not as a round of the loop"
        return (Alternative(alone_cause(departure.ranks), Certainty.UNDETERMINED, said),)
    if either_way.is_open(departure) or (departure.twice and not departure.ended):
        return (*either_way.alternatives(departure), *_or_later(departure))
    if departure.lone:
        said = f"the calls of {ranks(departure.ranks)} from there on may come after the end of their loop"
        return (Alternative("uneven-steps", Certainty.UNDETERMINED, said),)
    if departure.unplaced:
        said = f"{ranks(departure.ranks)} may have left the loop of these calls earlier, and have left none out"
        return (Alternative("uneven-steps", Certainty.UNDETERMINED, said),)
    if departure.only_one_behind or not departure.ended:
        return _or_later(departure)
    said = f"{ranks(departure.ranks)} may have left out an earlier round, and not the last one"
    return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)


def _or_later(departure: Departure) -> tuple[Alternative, ...]:
    if not departure.only_one_behind:
        return ()
    said = f"{ranks(departure.ranks)} may make that call later than the others, and not leave it out"
    return (Alternative("collective-mismatch", Certainty.UNDETERMINED, said),)


def _or_the_other(departure: Departure) -> tuple[Alternative, ...]:
    """A turn of a loop that was made once more, and what comes between two turns left out: calls alone do not tell."""
    who, calls = ranks(departure.ranks), words.plural(departure.instead, "call")
    told = departure.twice or either_way.is_open(departure)
    settled = told or departure.by_most or departure.stayed or departure.ended or departure.begun_again
    if settled or not departure.instead:
        return ()
    if departure.kind is Kind.EXTRA:
        said = f"{who} may have left out {calls} there instead, and have made none once more"
        return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)
    said = f"{who} may have made {calls} more, as turns of a loop before it, and have left nothing out"
    return (Alternative("uneven-steps", Certainty.UNDETERMINED, said),)
