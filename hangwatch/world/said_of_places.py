"""Sentences of evidence that say where ranks are, for whom they wait, and how they have ended."""

from __future__ import annotations

from hangwatch import words

from .acts import Peer
from .calls import Issued
from .claim import CALL, OP, PLACE, RANKS, STEP, Job, claim, is_named, is_step, lines, places, under
from .lives import Life

DEFAULT = "0"  # the default group's name


@claim(rf"{RANKS} (?:is|are) in {CALL}")
def is_in(job: Job, ranks: str, op: str, place: str) -> bool:
    return all(_in(life, op, place) for life in job.named(ranks))


@claim(rf"{RANKS} stands? at {PLACE} and (?:is|are) in no collective")
def stands_at(job: Job, ranks: str, place: str) -> bool:
    """A wait for its device is in none: what it waits for was called elsewhere."""
    lives = job.named(ranks)
    return all(place in lines(life.stands) and not any(_stands_in(life, call) for call in life.waits) for life in lives)


@claim(rf"{RANKS} waits for its GPU \({PLACE}\)")
def waits_for_device(job: Job, ranks: str, place: str) -> bool:
    return all(life.awaits_device and place in lines(life.stands) for life in job.named(ranks))


@claim(rf"{RANKS} waits? for {RANKS} in {CALL}")
def waits_for(job: Job, ranks: str, awaited: str, op: str, place: str) -> bool:
    whom = {life.number for life in job.named(awaited)}
    return all(any(_may_await(call, whom) for call in _in(life, op, place)) for life in job.named(ranks))


@claim(rf"{RANKS} waits? for {RANKS} in {OP} (\d+) of (?:group (\S+)|the default group)(?: \({PLACE}\))?")
def waits_in_number(job: Job, ranks: str, awaited: str, op: str, number: str, name: str | None, place: str) -> bool:
    """Each of them has that call open, and none of those that it waits for is through it."""
    group = name or DEFAULT
    mine, theirs = ([under(life, group, int(number)) for life in job.named(side)] for side in (ranks, awaited))
    inside = all(call is not None and not call.complete and is_named(call, op) for call in mine)
    return inside and not any(call is not None and call.complete for call in theirs)


@claim(rf"{RANKS} (?:is|are) now at {PLACE}, in {STEP}", rf"{RANKS} ended at {PLACE}, in {STEP}")
def is_now_at(job: Job, ranks: str, place: str, step: str) -> bool:
    """Of several ranks it is told of the first."""
    life = job.named(ranks)[0]
    there = {*lines(life.stands), *life.error_at, *(line for call in life.open for line in places(call))}
    return place in there and any(is_step(each, step) for each in life.steps[-1:])


@claim(rf"the main program of {RANKS} is over(?: \({PLACE}\))?")
def is_over(job: Job, ranks: str, place: str | None) -> bool:
    return all(life.is_over for life in job.named(ranks))


@claim(rf"{RANKS} (?:has|have|had) ended the program")
def has_ended(job: Job, ranks: str) -> bool:
    """It came to its end by itself: a rank that failed has not."""
    return all(life.is_over for life in job.named(ranks))


@claim(rf"{RANKS} had destroyed its process groups")
def destroyed(job: Job, ranks: str) -> bool:
    return all(life.destroyed for life in job.named(ranks))


@claim(rf"pid \d+ of {RANKS} is gone: (.*)", rf"{RANKS} ended: (.*)")
def is_gone(job: Job, ranks: str, how: str) -> bool:
    return all(life.code is not None and words.ended(life.code) == how for life in job.named(ranks))


@claim(rf"pid \d+ of {RANKS} is in state T")
def is_stopped(job: Job, ranks: str) -> bool:
    return all(life.state == "T" for life in job.named(ranks))


@claim(rf"{RANKS} failed with (\w+) \({PLACE}\)", rf"{RANKS} recorded (\w+): .* \({PLACE}\)")
def failed(job: Job, ranks: str, error: str, place: str) -> bool:
    return all(life.error == error and place in life.error_at for life in job.named(ranks))


def _in(life: Life, op: str, place: str) -> list[Issued]:
    """Its waits in such a call: at the place of the call, or of the wait for its handle."""
    there = lines(life.stands)
    return [call for call in life.waits if is_named(call, op) and place in places(call) | there]


def _stands_in(life: Life, call: Issued) -> bool:
    """Not in a wait for its device at the line of that call."""
    return life.stands == call.act.site.frames and not life.awaits_device


def _may_await(call: Issued, whom: set[int]) -> bool:
    return not isinstance(call.act, Peer) or call.act.peer in whom
