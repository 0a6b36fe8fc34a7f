"""Orders that part so that calls left out explain all that is recorded as well as calls that were added.

In a loop, a call that is left out and the rest of a round that is made once more leave the same calls behind them. How
the records end may tell: the rank that lacks the last call has made fewer, and the one that alone waits in it, more.
"""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .departure import Departure
from .finding import alone_cause
from .matching import shape
from .model import Queues
from .names import ranks
from .readings import Kind
from .stuck import Kind as Stands
from .stuck import Stuck


def is_open(one: Departure) -> bool:
    """Whether as few calls, left out or added, explain all of it, so that neither is more likely."""
    if one.by_end:
        return False
    tied = one.kind is Kind.OTHER and one.instead > 0
    new_to_two = one.kind is Kind.EXTRA and not (one.majority or one.repeated or one.again or one.lone)
    return tied or (one.twice and one.count == 1 and not one.ended) or new_to_two or (one.early and one.instead > 0)


def settled(one: Departure, root: Stuck, queues: Queues) -> Departure:
    """The departure as the stuck call tells it, where all calls between the two were complete; else as it was.

    Of live ranks more is known than their calls, and other rules weigh both readings by that.
    """
    if queues.live:
        return replace(one, instead=0 if one.kind is Kind.OTHER else one.instead, by_end=True)
    told = root.kind is Stands.ABSENT and root.group is one.group and root.number > one.number
    if not (told and one.instead and is_open(one) and (one.majority or one.habit)):
        return one
    own = set(one.ranks)
    if not own <= set(root.awaited) and own != set(root.waiting):
        return one
    kind, tied = (Kind.SKIPPED if own <= set(root.awaited) else Kind.EXTRA), one.kind is Kind.OTHER
    count, instead = (one.count, one.instead) if one.kind is kind and not tied else (one.instead, one.count)
    return replace(one, kind=kind, count=count, instead=one.instead if tied else instead, twice=False, by_end=True)


def said(one: Departure) -> tuple[str, str]:
    """The sentence and the cause where a call of the others is missing, or the one before it was made once more."""
    group, calls = one.group, words.plural(one.instead, "call")
    own, usual = (f"{shape(call)}{words.at(line)}" for call, line in zip((one.own, one.usual), one.lines, strict=True))
    told = (
        f"{ranks(one.ranks, capital=True)} called {own} as number {one.number} of {group.title}, where the others call"
        f" {usual}: {words.verb(len(one.ranks), 'it', 'they')} left out {calls} there, or made {calls} once more."
    )
    return told, "skipped-collective"


def doubt(one: Departure) -> str:
    """What is added to the sentence on one of two readings."""
    if one.kind is Kind.OTHER:
        return " The records fit both."
    who = ranks(one.ranks if one.kind is not Kind.EXTRA else one.against)
    other = f"{who} left it out" if one.kind is Kind.EXTRA else f"{who} made {_what(one)} once more"
    return f" Or {other}: the records fit both."


def alternatives(one: Departure) -> tuple[Alternative, ...]:
    """The other reading."""
    if one.kind is Kind.EXTRA:
        said = f"{ranks(one.against)} may have left out {_what(one)}"
        return (Alternative("skipped-collective", Certainty.UNDETERMINED, said),)
    said = f"{ranks(one.ranks)} may have made {_what(one)} once more, and left nothing out"
    return (Alternative(alone_cause(one.ranks), Certainty.UNDETERMINED, said),)


def _what(one: Departure) -> str:
    return f"{shape(one.own)}{words.at(one.lines[0])}"
