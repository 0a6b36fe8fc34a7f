"""What a node tells the dashboard every second, from its ranks' readings. Pure functions; nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from hangwatch.model import GroupBeat, GroupHead, LoaderBeat, LoaderFacts, RankBeat, Reading
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
    """What a rank is inside of, in words: "all_reduce 12 of group 0", "a batch of loader 1"; else nothing."""
    for call in reading.open_calls:
        return (
            f"{call.op} {call.seq} of group {call.group}" if call.peer is None else f"{call.op} with rank {call.peer}"
        )
    for loader in reading.loaders:
        if loader.inside_next:
            return f"a batch of loader {loader.index}"
    for head in reading.heads:
        if head.issued > max(head.completed, 0):
            return f"collective {head.issued} of group {head.name}"
    return ""


def _head(head: GroupHead) -> GroupBeat:
    return GroupBeat(members.identifier(head.name, head.members), head.issued, head.completed, head.sent, head.received)


def _loader(loader: LoaderFacts) -> LoaderBeat:
    return LoaderBeat(**{name: getattr(loader, name) for name in _LOADER})
