"""Sentences of evidence that say what ranks have done until then: their steps, their batches and their calls."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

from hangwatch.model import StepEntry

from .acts import Peer
from .calls import Issued
from .claim import (
    CALL,
    COUNTS,
    OP,
    PLACE,
    RANKS,
    Job,
    claim,
    counted,
    in_group,
    is_by_gradients,
    is_named,
    is_step,
    made,
    places,
    under,
    until,
)
from .lives import Life

NAME = r"(a collective|[a-z_]+)"
NO_OTHER = r"no other rank has ever called"
ENDS = {" so far": "", " and left the loop": "left"}  # else the loader was exhausted


# -------------------------------------------------------------- steps and batches


@claim(rf"{RANKS} began (\d+) steps?")
def began(job: Job, ranks: str, count: str) -> bool:
    return all(len(life.steps) == int(count) for life in job.named(ranks))


@claim(
    rf"{RANKS} drew (\d+) batch(?:es)? in epoch (\d+)"
    r"( so far| and left the loop| and (?:its loader was|their loaders were) then exhausted)"
)
def drew(job: Job, ranks: str, count: str, epoch: str, end: str) -> bool:
    return all((int(epoch), int(count), ENDS.get(end, "exhausted")) in life.drawn for life in job.named(ranks))


@claim(rf"{RANKS} made (\d+) forwards? more than any other rank, in as many steps")
def more_forwards(job: Job, ranks: str, more: str) -> bool:
    mine = job.named(ranks)[0]
    theirs = max(life.forwards for life in job.lives if life is not mine)
    return mine.forwards - theirs == int(more)


@claim(rf"{RANKS} synchronised in no recorded step up to that one")
def never_synchronised(job: Job, ranks: str) -> bool:
    for life in job.named(ranks):
        steps = {step.step for step in until(life, job.step, through=True) if step in life.recorded}
        if any(is_by_gradients(call) and call.step in steps for call in life.calls):
            return False
    return True


# -------------------------------------------------------------- how many calls


@claim(COUNTS)
def issued_in(job: Job, step: str, parts: str, group: str) -> bool:
    """A rank that failed in a call has come to it, too."""
    for ranks, count in re.findall(rf"{RANKS} issued (\d+)", parts):
        for life in job.named(ranks):
            numbers = {each.step for each in life.steps if is_step(each, step)}
            found = len(in_group(life, group, numbers))
            if int(count) not in (found, found + (life.failed_in == group)):
                return False
    return True


_RECORDED = r"that is recorded(?: and ends (an|no) epoch)?"


@claim(rf"{RANKS} issued ([\d, or]+) in every earlier step {_RECORDED}(?: \(the first (\d) apart\))?")
def issued_before(job: Job, ranks: str, counts: str, ends: str | None, apart: str | None) -> bool:
    allowed = {int(count) for count in re.findall(r"\d+", counts)}
    return all(
        len(in_group(life, job.group, {step.step})) in allowed
        for life in job.named(ranks)
        for step in until(life, job.step)
        if step.step >= int(apart or 0) and step in life.recorded
        if ends is None or _ends_epoch(life, step) == (ends == "an")
    )


def _ends_epoch(life: Life, step: StepEntry) -> bool:
    return any(before == step and before.epoch != after.epoch for before, after in pairwise(life.steps))


@claim(rf"{RANKS} made (\d+) (sends?|receives?) with {RANKS}, which made (\d+) (sends?|receives?) with it")
def messages(job: Job, ranks: str, sent: str, verb: str, other: str, theirs: str, answer: str) -> bool:
    first, second = job.named(ranks)[0], job.named(other)[0]
    return (_messages(first, second, verb), _messages(second, first, answer)) == (int(sent), int(theirs))


def _messages(life: Life, other: Life, verb: str) -> int:
    op = "send" if verb.startswith("send") else "recv"
    return sum(isinstance(call.act, Peer) and (call.act.peer, call.act.op) == (other.number, op) for call in life.calls)


# -------------------------------------------------------------- from where


@claim(rf"{NO_OTHER} {NAME} (?:at {PLACE}|in \w+ \({PLACE}\))")
def never_at(job: Job, op: str, place: str | None, inner: str | None) -> bool:
    return not any(True for life in job.others for _ in made(life, op, place or inner or ""))


@claim(rf"{NO_OTHER} {NAME} at {PLACE} from {PLACE}")
def never_from(job: Job, op: str, place: str, caller: str) -> bool:
    calls = (call for life in job.others for call in made(life, op, place))
    return not any(caller in places(call) for call in calls)


@claim(rf"{RANKS} never called from there")
def never_called_there(job: Job, ranks: str) -> bool:
    return job.there is None or not any(True for life in job.named(ranks) for _ in made(life, *job.there))


@claim(rf"no rank has an earlier collective from {PLACE} on its board")
def none_earlier(job: Job, place: str) -> bool:
    """On a board is what Python code has called; of each rank its last call is not an earlier one."""
    return not any(
        call is not life.calls[-1] and call.complete and getattr(call.act, "via", "") == "python"
        for life in job.lives
        for call in made(replace(life, calls=life.on_board), "a collective", place)
    )


@claim(rf"(.*) had been made in earlier steps(?:, by {RANKS} too)?")
def made_before(job: Job, calls: str, ranks: str | None) -> bool:
    named = re.findall(CALL, calls)
    lives = job.named(ranks) if ranks else []
    return all(any(call.step < life.step for call in made(life, *each)) for each in named for life in lives)


@claim(rf"in no earlier step had a rank made {CALL}, or so many of them")
def new_to_all(job: Job, op: str, place: str) -> bool:
    """In no step before was it made as often as in that one by a rank that made it most."""
    now = {each.step for life in job.lives for each in life.steps if is_step(each, job.step)}
    counts = [_by_step(life, op, place) for life in job.lives if life.on_record]
    most = max((found.get(step, 0) for found in counts for step in now), default=0)
    first = min(now, default=0)
    return not any(count >= most for found in counts for step, count in found.items() if step < first and most)


def _by_step(life: Life, op: str, place: str) -> dict[int, int]:
    found: dict[int, int] = {}
    for call in made(life, op, place):
        found[call.step] = found.get(call.step, 0) + 1
    return found


# -------------------------------------------------------------- in which order


@claim(rf"{CALL} of {RANKS} was number (\d+) of its step in group (\S+), and number .*")
def number_in_step(job: Job, op: str, place: str, ranks: str, number: str, group: str) -> bool:
    for life in job.named(ranks):
        calls = in_group(life, group, {life.step})[int(number) - 1 : int(number)]
        if not any(is_named(call, op) and place in places(call) for call in calls):
            return False
    return True


@claim(r"collective (\d+) of group (\S+): (.*)")
def calls_of_number(job: Job, number: str, group: str, parts: str) -> bool:
    found = re.findall(
        rf"{RANKS} calls? {OP}(?: of ([\d,]+) elements?)?[^.]*?(?: in thread '\w+')?(?: \({PLACE}\))?"
        r"(?=, rank| and rank|$)",
        parts,
    )
    return bool(found) and all(
        _is_that(under(life, group, int(number)), op, size, place)
        for ranks, op, size, place in found
        for life in job.named(ranks)
    )


def _is_that(call: Issued | None, op: str, size: str, place: str) -> bool:
    if call is None or not is_named(call, op):
        return False
    return (not size or call.act.size == int(size.replace(",", ""))) and (not place or place in places(call))


@claim(rf"number (\d+) of group (\S+) is another call on {RANKS} than on {RANKS}")
def another_call(job: Job, number: str, group: str, ranks: str, others: str) -> bool:
    mine, theirs = ([under(life, group, int(number)) for life in job.named(side)] for side in (ranks, others))
    return not any(
        one is None or two is None or (one.act.op, one.act.site) == (two.act.op, two.act.site)
        for one in mine
        for two in theirs
    )


@claim(rf"{RANKS} issued .*, and only then {CALL}, which {RANKS} issued as number (\d+) already")
def only_then(job: Job, ranks: str, op: str, place: str, others: str, number: str) -> bool:
    """The others have that call under that number, and these ranks have another one there."""
    theirs = [call for life in job.named(others) for call in made(life, op, place) if call.seq == int(number)]
    mine = [call for life in job.named(ranks) for call in life.calls if counted(call) and call.seq == int(number)]
    points = {(call.act.op, call.act.site) for call in theirs}
    return bool(points) and any((call.act.op, call.act.site) not in points for call in mine)


@claim(rf"on (?:all ranks|{RANKS}), every earlier call at {PLACE} came right after one at {PLACE}")
def came_after(job: Job, ranks: str | None, later: str, earlier: str) -> bool:
    """Of the collectives that the training has issued, in the steps before; nothing is said of the first of all."""
    for life in job.named(ranks) if ranks else job.lives:
        calls = [call for call in life.calls if counted(call) and call.thread.main and call.complete]
        for one, two in pairwise(calls):
            if later in places(two) and two.step < life.step and earlier not in places(one):
                return False
    return True
