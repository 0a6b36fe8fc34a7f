"""What to do about a condition that comes out differently on the ranks, by what it asks for; "" for the usual words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangwatch.model import Bypass
from hangwatch.rules.draws import OF_A_DRAW, drawn_at_random
from hangwatch.source.syntax import CLOCKS, FILES

OF_A_COUNTER = "let the counter begin alike on all ranks: broadcast the step that rank 0 resumes from"
_OF_A_FILE = (
    "let rank 0 look, and broadcast what it found: found = [os.path.exists(path)];"
    " dist.broadcast_object_list(found, src=0); files on a node's own disk then have to be made on each node"
)
_OF_A_CLOCK = "let the clock of rank 0 decide: due = torch.tensor(float(due)); dist.broadcast(due, src=0)"
# What one rank alone is asked for, such as a signal that it got: the mean of it, or rank 0's, would lose that.
OF_A_FLAG = (
    "let all ranks do it as soon as one has to: flag = torch.tensor(float(flag)); dist.all_reduce(flag,"
    " op=dist.ReduceOp.MAX), before the condition"
)
_FLAG = re.compile(r"request|preempt|interrupt|terminat|signal|sigterm|should_(stop|exit|save)|stop_now", re.IGNORECASE)
_FILE = re.compile(rf"\b({'|'.join(sorted(FILES))})\(")
_CLOCK = re.compile(rf"\b({'|'.join(sorted({*CLOCKS, 'elapsed'}))})\b")
_BY_A_NUMBER, _BY_ANOTHER = re.compile(r"% \d"), re.compile(r"% \D")


def advice(ways: Sequence[Bypass]) -> str:
    if ways and all(way.counts for way in ways):
        return of_a_counter(*ways)
    texts = [way.text for way in ways]
    if drawn_at_random(ways):
        return OF_A_DRAW
    if texts and all(map(_FLAG.search, texts)):
        return OF_A_FLAG
    if texts and all(map(_FILE.search, texts)):
        return _OF_A_FILE
    return _OF_A_CLOCK if texts and all(map(_CLOCK.search, texts)) else ""


def of_a_counter(*ways: Bypass) -> str:
    return OF_A_COUNTER if all(map(_is_of_a_number, ways)) else f"{OF_A_COUNTER}, and what it is divided by"


def what_differs(*ways: Bypass) -> str:
    return "a counter" if all(map(_is_of_a_number, ways)) else "a counter or an interval"


def _is_of_a_number(way: Bypass) -> bool:
    """`step % 50 == 0`: the interval is written there, and so the same on all ranks."""
    return bool(_BY_A_NUMBER.search(way.text)) and not _BY_ANOTHER.search(way.text)
