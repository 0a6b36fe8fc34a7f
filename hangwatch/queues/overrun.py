"""Few ranks that go on with a loop where every earlier round had left it, and all others have left it there now."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch import words
from hangwatch.model import Alternative, Certainty

from .finding import Finding, collective, wait_edges
from .history import Histories
from .matching import shape
from .model import Call
from .names import apart, at, ranks
from .readings import due
from .stuck import Stuck


def overrun(root: Stuck, histories: Histories) -> Finding | None:
    """The ranks that wait in one more turn of a loop; None where the others do not stand at the end of theirs."""
    orders = histories.all_groups
    few = 2 * len(root.waiting) <= len(root.group.members)
    if root.peers or not few or not all(each.done for rank in root.awaited for each in orders.calls(rank)[-1:]):
        return None
    own = {rank: [each.token for each in orders.until(rank, root.order.get(rank))] for rank in root.waiting}
    usual = {_left_by(tokens) for tokens in own.values()}
    behind = {due([each.token for each in orders.calls(rank)]) for rank in root.awaited}
    called = {each[0] for each in (*usual, *behind) if each is not None}
    if None in usual or None in behind or len(called) != 1:
        return None
    times = min(each[1] for each in usual if each is not None)
    return _found(root, histories.call_of(called.pop()), times)


def _left_by(tokens: Sequence[int]) -> tuple[int, int] | None:
    """The call to which every earlier round had gone on, where the last call is of the turns before it; and how often.

    A call that had not come since the loop was entered is no turn of it.
    """
    *before, own = tokens or [-1]
    usual = due(before)
    if usual is None or usual[0] == own or usual[0] not in before:
        return None
    return usual if own in before[len(before) - before[::-1].index(usual[0]) :] else None


def _found(root: Stuck, usual: Call, times: int) -> Finding:
    call = root.calls.get(root.waiting[0]) or usual
    own, other = (words.at(each) for each in apart(call, usual))
    who, awaited = ranks(root.waiting), ranks(root.awaited)
    return Finding(
        "uneven-steps",
        Certainty.LIKELY if 2 * len(root.waiting) < len(root.group.members) else Certainty.UNDETERMINED,
        f"{ranks(root.waiting, capital=True)} went on with {collective(root)}{own} where"
        f" {words.verb(len(root.waiting), 'it', 'they')} had gone on to {shape(usual)}{other} each time before, and"
        f" {awaited} {words.verb(len(root.awaited), 'stands', 'stand')} there: a turn more than the others made.",
        culprits=root.at_lines(root.waiting),
        victims=root.awaited,
        evidence=(
            f"{words.plural(times, 'earlier round')} of {who} went on to {shape(usual)}{at(usual)} there",
            f"so did those of {awaited}, which completed all that they enqueued before it",
        ),
        alternatives=(
            Alternative("undetermined", Certainty.UNDETERMINED, f"{awaited} may come to that turn too, late"),
        ),
        waits=wait_edges(root),
        passing=True,
    )
