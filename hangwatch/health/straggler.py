"""A rank that all others wait for in each step."""

from __future__ import annotations

from collections.abc import Mapping

from hangwatch.model import HealthWarning
from hangwatch.words import ranks as named

from .pace import ms, steadily_slow, table, typical
from .pace_history import Mean, Period
from .telling import Ranks, warning


def straggler(before: Period, newest: Period, ranks: Ranks) -> HealthWarning | None:
    """The ranks that were slow in both periods, in the newer one's words."""
    slow = steadily_slow(before) & steadily_slow(newest)
    return _told({rank: newest.means[rank] for rank in slow}, newest.means, ranks) if slow else None


def _told(slow: Mapping[int, Mean], paces: Mapping[int, Mean], ranks: Ranks) -> HealthWarning:
    rank, worst = max(slow.items(), key=lambda each: each[1].alone_s)
    needs = f"{ms(worst.alone_s)} a step until {'it' if len(slow) == 1 else f'rank {rank}'} has made its forward"
    where = ", most of it waiting for the loader" if worst.data_s > worst.alone_s / 2 else ""
    host = _whole_host(set(slow), ranks)
    summary = (
        f"All wait for {named(slow)}{f', all of {host},' if host else ''} in each step:"
        f" {needs}{where}; {ms(typical(paces))} on a typical rank"
    )
    return warning("straggler", summary, ranks, about=slow, evidence=table(paces))


def _whole_host(slow: set[int], ranks: Ranks) -> str:
    """The one machine whose ranks these are, all of them and no others; "" where they are not."""
    hosts = {ranks[rank].identity.host for rank in slow if rank in ranks}
    if len(hosts) != 1 or len(slow) < 2:
        return ""
    (host,) = hosts
    all_hosts = {reading.identity.host for reading in ranks.values()}
    own = {rank for rank, reading in ranks.items() if reading.identity.host == host}
    return host if own == slow and len(all_hosts) > 1 else ""
