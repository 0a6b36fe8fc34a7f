"""A rank's order of calls beside that of its own earlier rounds: a stage of a pipeline shares it with no other rank."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .all_groups import AllGroups, IssuedCall
from .readings import due

_CONTEXTS = (4, 16, 64)  # calls from which the next one is known: more microbatches need more of them
_ALWAYS = 2  # earlier rounds that went on alike, without an exception
_LAST_CALLS = 96  # calls before the one that waits: an earlier change of order went well


@dataclass(frozen=True, slots=True)
class Break:
    """Where a rank went on to `own` and had gone on to `usual` in every earlier round."""

    rank: int
    own: IssuedCall
    usual: IssuedCall


def the_one(orders: AllGroups, ranks: Iterable[int], until: dict[int, int]) -> Break | None:
    """The only one of these ranks that broke its own order lately; None where that is none, or several."""
    found = [each for rank in ranks if (each := _last_break(rank, orders.until(rank, until.get(rank)))) is not None]
    return found[0] if len(found) == 1 else None


def left_out(orders: AllGroups, rank: int, token: int) -> tuple[IssuedCall, int] | None:
    """What a rank called in place of that call, which was due by each earlier round, and how often; None if it was not.

    Only behind the last such call that is complete. A rank that makes such a call behind it was only later, unless a
    whole round lies before that one. One that makes the call before it once more has not gone on to what comes behind
    that call, unless its rounds begin with such a one.
    """
    calls = orders.calls(rank)
    tokens = [each.token for each in calls]
    since = max((place for place, each in enumerate(calls) if each.token == token and each.done), default=len(calls))
    for place in range(since + 1, min(len(tokens), since + _LAST_CALLS)):
        always, times = due(tokens[:place]) or (-1, 0)
        if always == token != tokens[place]:
            if tokens[place] == tokens[place - 1] and (token, tokens[place]) not in set(pairwise(tokens[:place])):
                return None
            return (calls[place], times) if _is_round(tokens[since + 1 : place], tokens[place:], token) else None
    return None


def _is_round(before: list[int], behind: list[int], token: int) -> bool:
    """Whether the calls behind the place, up to the next one of that token, are as many as those before it; or none."""
    return token not in behind or behind[: behind.index(token)] == before


def _last_break(rank: int, calls: Sequence[IssuedCall]) -> Break | None:
    """The last one behind the last collective that is complete: until then, sends and receives went well.

    Only those are compared: a report comes between them in few rounds.
    """
    met = max((each.order for each in calls if each.done and not each.pair), default=-1)
    calls = [each for each in calls if each.pair]
    tokens = [each.token for each in calls]
    since = max(bisect_left(calls, met, key=lambda each: each.order), len(calls) - _LAST_CALLS)
    broken: Break | None = None
    for length in _CONTEXTS:
        place, usual = _unlike_before(tokens, length, since)
        if place is not None and (broken is None or calls[place].order > broken.own.order):
            broken = Break(rank, calls[place], calls[usual])
    return broken


def _unlike_before(tokens: list[int], length: int, since: int) -> tuple[int | None, int]:
    """The last place where the calls before it are followed by another one than ever else, and a place of that one."""
    behind: dict[tuple[int, ...], Counter[int]] = {}
    contexts = [tuple(tokens[place - length : place]) for place in range(length, len(tokens))]
    for place, context in enumerate(contexts, length):
        behind.setdefault(context, Counter())[tokens[place]] += 1
    for place in range(len(tokens) - 1, max(length, since) - 1, -1):
        known = behind[contexts[place - length]]
        usual = next((token for token in known if token != tokens[place]), None)
        if usual is not None and len(known) == 2 and known[tokens[place]] == 1 and known[usual] >= _ALWAYS:
            return place, tokens.index(usual)
    return None, 0
