"""When it is worth a closer look: reading the boards is cheap, taking the stacks of all ranks is not.

A look is due at once when a process of the job has ended or been stopped, or has recorded its end; after a second of
stillness when the boards alone say that no rank may be able to move; with growing pauses while an awaited rank
may still work; and when patience has run out. Pure functions of the ranks' states and a clock.
"""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.health.timeout_ahead import LEAST_S, USED
from hangwatch.looks import Reason
from hangwatch.model import Launched
from hangwatch.settings import Settings
from hangwatch_agent.roster.patience import patience_with
from hangwatch_agent.roster.phases import LEAVING, STARTING
from hangwatch_agent.roster.rank_states import RankState

QUICK = 1.0  # seconds of stillness after which a possible deadlock is looked at
STOPPED = 14.0  # and after which one is looked at that is stopped: a debugger or a limiter may let it go on
QUIET = 5.0  # and after which a rank is looked at that may be waiting for something that its board does not show
LEAST_PAUSE_S = 0.25  # between two rounds
MOST_SHARE = 0.02  # of the wall time that captures may take while nothing is wrong for certain


def reasons(
    rank_states: Sequence[RankState],
    now: float,
    settings: Settings,
    *,
    world_size: int | None,
    growth: float = 1.0,
    launched: Sequence[Launched] = (),
    no_rank_since: float | None = None,
) -> list[Reason]:
    """Every reason for a look at this moment, the most telling first.

    Args:
        rank_states: the ranks that have boards.
        now: seconds since 1970.
        settings: the user's patience.
        world_size: how many ranks there should be, where that is known.
        growth: of patience, after incidents that ended by themselves.
        launched: the processes that were started as ranks.
        no_rank_since: since when a launcher such as torchrun has been there without ranks.
    """
    found = [*_troubled(rank_states, now), *_missing(rank_states, now, settings, world_size)]
    found += _unborn(rank_states, launched)
    found += _twice(rank_states, launched)
    if no_rank_since is not None and not rank_states and now - no_rank_since > settings.start_after:
        found.append(Reason("missing", ("all",), urgent=True))
    living = [each for each in rank_states if each.alive]
    if not any(each.state in ("T", "t") and now - each.since < STOPPED for each in living):
        found += _still(living, now, settings, growth)  # else a look would only be in the way of the one that tells
    found += _lingering(rank_states, living, now, settings)
    found += _timing_out(living, now)
    return found


def _unborn(rank_states: Sequence[RankState], launched: Sequence[Launched]) -> list[Reason]:
    """A rank waits at the start, and a process that was started as a rank has ended without ever being one."""
    dead = tuple(each.pid for each in launched if each.ended_at is not None and not each.board)
    waiting = any(each.alive and each.reading.phase in STARTING for each in rank_states)
    waiting = waiting or any(each.ended_at is None and not each.board for each in launched)
    return [Reason("ended", dead, urgent=True)] if dead and waiting else []


def _twice(rank_states: Sequence[RankState], launched: Sequence[Launched]) -> list[Reason]:
    """Two living processes claim one rank, and one of them is still at the start."""
    claims: dict[int, set[int]] = {}
    for rank, pid in [(each.rank, each.pid) for each in rank_states if each.alive and each.rank is not None] + [
        (each.rank, each.pid) for each in launched if each.ended_at is None
    ]:
        claims.setdefault(rank, set()).add(pid)
    twice = tuple(sorted(pid for pids in claims.values() if len(pids) > 1 for pid in pids))
    starting = any(each.alive and each.reading.phase in STARTING for each in rank_states)
    return [Reason("twice", twice, urgent=True)] if twice and starting else []


def _lingering(
    rank_states: Sequence[RankState], living: Sequence[RankState], now: float, settings: Settings
) -> list[Reason]:
    found = [
        Reason("lingering", (each.pid, each.reading.phase), urgent=True)
        for each in living
        if each.visible and each.reading.phase in LEAVING and now - each.reading.phase_at > settings.linger_after
    ]
    if rank_states and not living and now - max(each.since for each in rank_states) > settings.linger_after:
        found.append(Reason("lingering", ("without ranks",), urgent=True))
    return found


def _troubled(rank_states: Sequence[RankState], now: float) -> list[Reason]:
    found = []
    starting = any(each.alive and each.reading.phase in STARTING for each in rank_states)
    for each in rank_states:
        if each.reading.exception is not None and each.reading.exception.fatal:
            found.append(Reason("failed", (each.pid,), urgent=True))
        # A rank that was never a member is missed by ranks that are still starting, however it has ended.
        unasked = each.reading.phase not in LEAVING or (starting and not each.reading.heads)
        if not each.alive and unasked and not each.reading.detached:
            found.append(Reason("ended", (each.pid,), urgent=True))
        if each.state in ("T", "t") and now - each.since >= STOPPED:
            found.append(Reason("stopped", (each.pid, each.since), urgent=True))
    return found


def _missing(rank_states: Sequence[RankState], now: float, settings: Settings, world_size: int | None) -> list[Reason]:
    came = {each.rank for each in rank_states if each.rank is not None}
    starting = [each for each in rank_states if each.alive and each.reading.phase in STARTING]
    if not starting or world_size is None:
        return []
    waited = now - min(each.reading.identity.started_at for each in starting)
    if len(came) < world_size and waited > settings.start_after:
        return [Reason("missing", (len(came), len(rank_states)), urgent=True)]
    return []


def _still(living: Sequence[RankState], now: float, settings: Settings, growth: float) -> list[Reason]:
    found = []
    working = [each for each in living if not each.reading.detached]
    if not working:
        return []
    last = max(each.moved_at for each in working)
    if now - last >= QUICK and all(each.blocked or each.reading.phase in LEAVING for each in working):
        found.append(Reason("deadlock", (last,), urgent=True))
    impatient = [each for each in working if now - each.moved_at > patience_with(each, settings, growth)]
    if impatient:
        found.append(Reason("patience", tuple((each.pid, each.moved_at) for each in impatient), urgent=True))
    waiting = [each for each in working if each.blocked and now - each.moved_at > slow_after(each)]
    if waiting:
        found.append(Reason("awaited", tuple((each.pid, each.moved_at) for each in waiting)))
    quiet = [each for each in working if now - each.moved_at > max(QUIET, slow_after(each))]
    if quiet:
        found.append(Reason("quiet", tuple((each.pid, each.moved_at) for each in quiet)))
    return found


def _timing_out(living: Sequence[RankState], now: float) -> list[Reason]:
    """A rank has been in one call for a share of its group's timeout: does the rank that it waits for work?"""
    found = []
    for each in living:
        limits = {head.name: head.timeout_s for head in each.reading.heads if head.timeout_s}
        for call in each.reading.open_calls:
            limit, waited = limits.get(call.group), now - (call.at or now)
            if limit and waited >= max(USED * limit, LEAST_S):
                found.append(Reason("timeout", (call.group, call.seq), urgent=True))
    return found


def slow_after(rank_state: RankState) -> float:
    """After how much stillness a rank is slower than it has been of late, in seconds."""
    return max(2 * QUICK, 1.5 * rank_state.reading.times.slowest_recent_s)


def until_next_poll(rank_states: Sequence[RankState], now: float, poll_s: float) -> float:
    """How long to rest, in seconds: until stillness is worth a look, where that ends before the next regular round."""
    working = [each for each in rank_states if each.alive]
    if not working or not all(each.blocked for each in working):
        return poll_s
    left = max(each.moved_at for each in working) + QUICK - now
    return min(poll_s, max(left, LEAST_PAUSE_S)) if left > 0 else poll_s


def rest_after(took_s: float) -> float:
    """How long to rest after a look that took so long, in seconds."""
    return took_s / MOST_SHARE
