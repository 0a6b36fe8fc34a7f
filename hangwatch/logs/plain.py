"""Logs in which no line tells of a hang or a failure: what was read, and what they tell besides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hangwatch import words
from hangwatch.stacks.frames import user_frame

from . import rendezvous
from .model import Logs, Raised

_WANTED = "if the job stood still, give the logs of all ranks and of the launcher, and the flight recorder's dumps too"
_SHOWN = 3


def sentences(paths: Iterable[Path], logs: Logs, earlier: str) -> tuple[str, ...]:
    """What to say of such logs; `earlier` is the verdict on the attempt before the last one, "" where there is none."""
    counts = [logs.unused[path] for path in paths]
    which = "this log" if len(counts) == 1 else f"these {len(counts)} logs"
    if earlier and not any(counts):
        return (*attempt_before(earlier), f"{which} {words.verb(len(counts), 'ends', 'end')} there; {_WANTED}")
    if earlier:
        which = f"the last attempt of {which}"
    first = f"nothing of a hang or failure is in {which} ({words.plural(sum(counts), 'line')} read); {_WANTED}"
    told = (*_tracebacks(logs), *interrupted(logs), *rendezvous.lost_stores(logs))
    return (first, *attempt_before(earlier), *told)


def attempt_before(earlier: str) -> tuple[str, ...]:
    """The verdict on the attempt that the launcher's last restart followed."""
    return (f"the attempt before the last restart failed: {earlier}",) if earlier else ()


def _tracebacks(logs: Logs) -> Iterator[str]:
    """Tracebacks of which no launcher says that a process failed."""
    for rank, raised in list(logs.raised.items())[-_SHOWN:]:
        yield f"a traceback of {words.ranks([rank])} is in it, and no line tells whether that ended it: {told(raised)}"
    for raised in list(logs.nameless)[-_SHOWN:]:
        yield f"a traceback is in it, and no line tells whether that ended a process: {told(raised)}"


def interrupted(logs: Logs) -> Iterator[str]:
    """Where ranks stood when a person ended them: that may have been for a hang."""
    places: dict[str, list[int]] = {}
    for rank, (_, stacks) in sorted(logs.stacks.items()):
        if stacks[0].source == "error" and (where := user_frame(stacks[0].frames)) is not None:
            places.setdefault(words.place(where), []).append(rank)
    if places:
        told = words.listed(f"{words.ranks(ranks)} at {place}" for place, ranks in list(places.items())[:_SHOWN])
        yield f"a person ended it (KeyboardInterrupt); then there {words.verb(len(logs.stacks), 'was', 'were')} {told}"


def caught(logs: Logs) -> Iterator[str]:
    """Exceptions behind which the job went on."""
    for rank, raised in [each for each in {**logs.caught, **logs.raised}.items() if each[1].went_on][:_SHOWN]:
        yield f"{words.ranks([rank])} raised {told(raised)}, and the job went on behind that"
    for raised in [each for each in logs.nameless if each.went_on][:_SHOWN]:
        yield f"a process raised {told(raised)}, and the job went on behind that"


def told(raised: Raised) -> str:
    """ValueError: bad (train.py:9)"""
    return f"{words.command(raised.text, 200)}{words.at(raised.where)}"
