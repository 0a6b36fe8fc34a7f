"""What a node tells the dashboard every second, from its ranks' readings. Pure functions; nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from hangwatch import words
from hangwatch.model import GroupBeat, GroupHead, LoaderBeat, LoaderFacts, RankBeat, Reading
from hangwatch.ranks.ledger import is_numbered
from hangwatch.settings import Settings
from hangwatch.wire import members
from hangwatch_agent.roster.patience import patience_with
from hangwatch_agent.roster.rank_states import RankState

LONGEST = 300  # characters of a text that a rank chose
_LOADER = tuple(entry.name for entry in fields(LoaderBeat))


def rank_messages(
    rank_states: Sequence[RankState], now: float, settings: Settings, growth: float = 1.0
) -> tuple[RankBeat, ...]:
    """The ranks whose number is known, one each: of two that claim one rank, the living or newer one."""
    found = {
        each.reading.identity.rank: _beat(each, now, settings, growth)
        for each in sorted(rank_states, key=lambda each: (each.alive, each.reading.identity.started_at))
        if each.reading.identity.rank is not None
    }
    return tuple(found[rank] for rank in sorted(found))


def _beat(rank_state: RankState, now: float, settings: Settings, growth: float) -> RankBeat:
    reading = rank_state.reading
    assert reading.identity.rank is not None
    exception = reading.exception
    return RankBeat(
        rank=reading.identity.rank,
        pid=reading.identity.pid,
        phase=reading.phase,
        phase_at=reading.phase_at,
        progress=reading.progress,
        ticker_at=reading.ticker_at,
        still_s=max(0.0, now - rank_state.moved_at),
        patience_s=patience_with(rank_state, settings, growth),
        waiting_for=waiting_for(reading)[:LONGEST],
        heads=tuple(_head(head) for head in reading.heads),
        loaders=tuple(_loader(loader) for loader in reading.loaders),
        times=reading.times,
        exception=f"{exception.type}: {exception.message}"[:LONGEST] if exception and exception.fatal else "",
        process_state=rank_state.state,
        blocked=rank_state.blocked,
        detached=reading.detached,
    )


def waiting_for(reading: Reading) -> str:
    """What a rank is inside of, in words: "all_reduce 12 of group 0", "a batch of loader 1"; "" for nothing.

    Where it has entered nothing, that is the first collective that is not complete, as the verdict has it.
    """
    if entered := words.inside(reading.open_calls, reading.loaders):
        return entered
    for head in reading.heads:
        first = max(head.completed, 0) + 1
        if first <= head.issued:
            return f"{_op(reading, head.name, first)} {first} of group {head.name}"
    return ""


def _op(reading: Reading, group: str, seq: int) -> str:
    """The operation of a collective; "collective" for one that C++ code issued, or that the board's ring has lost."""
    known = (call.op for call in reading.calls if (call.group, call.seq) == (group, seq) and is_numbered(call))
    return next(known, "collective")


def _head(head: GroupHead) -> GroupBeat:
    return GroupBeat(members.identifier(head.name, head.members), head.issued, head.completed, head.sent, head.received)


def _loader(loader: LoaderFacts) -> LoaderBeat:
    return LoaderBeat(**{name: getattr(loader, name) for name in _LOADER})
