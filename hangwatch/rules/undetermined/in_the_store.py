"""Ranks that wait for a key of a store, or gave up on it: the rank that did not set it is not known."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hangwatch import words
from hangwatch.facts.calls.last_calls import brought_down, end_sentences, last_calls
from hangwatch.facts.case import Case
from hangwatch.facts.differences.caught_errors import all_caught
from hangwatch.facts.processes.own_code import awaited_views, status_of
from hangwatch.facts.processes.store_keys import key_evidence, shared_key, who_sets
from hangwatch.facts.processes.store_waits import ended_past, gone_past, polls_store, store_ports, waits_for_key
from hangwatch.facts.rank_end import gave_up_on_key, key_words
from hangwatch.model import Certainty, Frame, Status, StoreKey
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame

_FIX = "set the key on every way through the program, and wait for it with a timeout of its own"
_EQUAL = re.compile(r"[!=]=")
_FIX_OF_COUNT = (
    "print what the key holds: a count may have passed the one value that ends the loop, as where a rank added to it"
    " twice (ask with < or >=, and add once), or a rank has not added to it; wait with a timeout of its own"
)


def waits_for_a_key(case: Case) -> Finding | None:
    """Every awaited rank is in `get` or `wait` of the store, so none of them is to blame for what it waits for."""
    views = awaited_views(case) or [
        view for view in case if not (view.dead or view.over or view.rank in case.blocked)
    ]  # of the root of a broadcast it is not known for whom it waits
    ports = store_ports(case)
    waiting_for_key = [view for view in views if waits_for_key(view, ports)]
    asking = [view for view in views if view not in waiting_for_key and polls_store(view)]
    if not views or len(views) < len(case.awaited()) or len(waiting_for_key) + len(asking) < len(views):
        return None
    ranks = tuple(view.rank for view in views)
    others = case.victims(ranks)
    waiting = (
        f"; {case.wait_words(others)} for {words.verb(len(ranks), 'it', 'them')}{words.at(case.usual_place(others))}"
    )
    key = shared_key(case, views)
    setting = who_sets(case, key) if key is not None else ""
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{words.capital('; '.join(_waits(case, asking, waiting_for_key)))}"
        f"{f'; {setting}' if setting else ''}{waiting if others else ''}.",
        fix=_fix(key, asking),
        victims=tuple(case.ranks),
        step=views[0].step,
        evidence=(
            *(key_evidence(case, key) if key is not None else ()),
            *(_stands(case, view) for view in views[: words.SHOWN]),
            *_passed(case, views),
            *_set_none(case),
            *_caught_alone(case, asking),
        ),
        status=status_of(case, views),
        awaited=ranks,
    )


def _fix(key: StoreKey | None, asking: list[RankView]) -> str:
    if asking and _EQUAL.search(_until(asking)):
        return _FIX_OF_COUNT
    caught = [each.swallows for each in key.setters if each.swallows is not None] if key is not None else []
    if not caught:
        return _FIX
    return (
        f"see whether an error was caught at {words.place(caught[0])}: raise it again there, or set the key there, too;"
        " wait for it with a timeout of its own"
    )


def gave_up_on_a_key(case: Case) -> Finding | None:
    """Ranks failed because a key was not set in time, and no rank had failed before them."""
    failed = sorted(((error.at, view) for view in case if (error := view.exception) and error.fatal), key=_first)
    views = [view for _, view in failed if gave_up_on_key(view) is not None]
    if not views or views[0] is not failed[0][1] or not brought_down(case):
        return None
    first, missing = views[0], gave_up_on_key(views[0])
    assert missing is not None
    assert first.exception is not None
    ranks = [view.rank for view in views if gave_up_on_key(view) == missing]
    past = ended_past(case, first)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(ranks, capital=True)} waited {words.duration(missing.timeout_s)} for {key_words(missing)}"
        f"{words.at(user_frame(first.exception.frames))}, which no rank had set, and gave up.",
        fix=_FIX,
        victims=tuple(case.ranks),
        step=first.step,
        evidence=(*end_sentences(case), *_ended_past(case, past)),
        status=Status.FAILED,
        awaited=past,
    )


def _first(failed: tuple[float, RankView]) -> tuple[float, int]:
    at, view = failed
    return at, view.rank


def _waits(case: Case, asking: list[RankView], waiting: list[RankView]) -> Iterator[str]:
    """What ranks that ask again and again do, and what those do that wait in one call."""
    if asking:
        one, until = len(asking) == 1, _until(asking)
        lacks = f"what {'it finds' if one else 'they find'} there does not end `{until}`"
        if not until:
            lacks = f"{'has' if one else 'have'} not found there what another rank has to set"
        yield (
            f"{_who(case, asking)} {'asks' if one else 'ask'} a store again and again{_named(case, asking, 'for ')}"
            f"{words.at(asking[0].where)}, and {lacks}"
        )
    if waiting:
        wait, at = words.verb(len(waiting), "waits", "wait"), words.at(waiting[0].where)
        key = _named(case, waiting) or " a key"
        yield f"{_who(case, waiting)} {wait} for{key} of a store{at}, which no rank has set yet"


def _until(asking: list[RankView]) -> str:
    """The condition of the loop in which they ask, where the source shows one: `while store.add(key, 0) != ranks`."""
    loop = asking[0].now.loop
    ways = loop.ways_out if loop is not None else ()
    return ways[0].text if len(ways) == 1 and loop is not None and ways[0].where == loop.where else ""


def _named(case: Case, views: list[RankView], before: str = "") -> str:
    """` the key 'manifest'`, where the source shows it, and it is one."""
    key = shared_key(case, views)
    return f" {before}the key {key.key!r}" if key is not None else ""


def _who(case: Case, views: list[RankView]) -> str:
    return case.name([view.rank for view in views])


def _stands(case: Case, view: RankView) -> str:
    """With the line itself, which may say what the key is."""
    call = f": `{line}`" if (line := case.text_of(view.where)) else ""
    return f"rank {view.rank} stands in {view.where.function if view.where else '?'}{words.at(view.where)}{call}"


def _passed(case: Case, views: list[RankView]) -> tuple[str, ...]:
    past = tuple(sorted({rank for view in views for rank in gone_past(case, view)}))
    stand = case.say(past, "is", "are")
    return (_may_have_set_it(stand, case.usual_place(past)),) if past else ()


def _caught_alone(case: Case, asking: list[RankView]) -> tuple[str, ...]:
    """The last error that a rank caught which asks: it may have set less there than it should, or more."""
    last = {view.rank: errors[-1] for view in asking if (errors := all_caught(view))}
    return tuple(
        f"rank {rank} caught {words.error(error)}{words.at(user_frame(error.frames))} before"
        for rank, error in list(last.items())[: words.SHOWN]
    )


def _set_none(case: Case) -> tuple[str, ...]:
    """The ranks that have come to their end: what they have not set by now, they never will."""
    ended = [view.rank for view in case if view.finished]
    have = words.verb(len(ended), "has", "have")
    return (f"{case.name(ended)} {have} ended, and can set no key any more",) if ended else ()


def _ended_past(case: Case, past: tuple[int, ...]) -> tuple[str, ...]:
    return (_may_have_set_it(f"{case.name(past)} ended", last_calls(case)[past[0]].where),) if past else ()


def _may_have_set_it(stand: str, where: Frame | None) -> str:
    return f"{stand} on a later line{words.at(where)}, and may have had to set it"
