"""The Health view's record: the slowest ranks and nodes, how the parts of a step are spread, who is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median, median_low

from hangwatch.model import JobHealth, Pace, Spread, Straggler, Trend
from hangwatch.wire import members

from .pace import steadily_slow, typical
from .pace_history import Mean, Period, Window, means, periods
from .thresholds import MOST_SHOWN, TREND_RATIO, TREND_S, TREND_WINDOWS

Series = tuple[tuple[float, ...], tuple[float, ...], tuple[float, ...]]  # data, forward, wait


def job_health(windows: Sequence[Window], hosts: Mapping[int, str]) -> JobHealth:
    """What the windows tell, oldest first. `hosts` is each rank's machine."""
    if not windows:
        return JobHealth()
    judged = periods(windows)
    last = judged[1].means if judged is not None else means(windows[-1:])
    trends = _Trends(windows)
    by_lag = sorted(last, key=lambda rank: (-last[rank].alone_s, rank))
    usual = typical(last)
    return JobHealth(
        at=tuple(round(window.at, 1) for window in windows),
        ranks=len(last),
        worst=tuple(_of_rank(rank, hosts, last, usual, trends) for rank in by_lag[:MOST_SHOWN]),
        nodes=tuple(_nodes(last, hosts, usual, trends)),
        spread=tuple(_spread(windows[-1])),
        stragglers=_stragglers(judged, hosts, trends),
        data_share=round(min(pace.share for pace in last.values()), 3),
    )


def merged(parts: Sequence[JobHealth]) -> JobHealth | None:
    """The health of a job from what several watchers knew of parts of it; None where none knew anything.

    How far a rank is behind is measured anew, by what each needed in its last window: a watcher of one node knows no
    other's pace. Whom a watcher has called slow among its own ranks stays called so.
    """
    if len(parts) == 1:
        return parts[0]
    known = [part for part in parts if part.at]
    memory = tuple(dict.fromkeys(each for part in parts for each in part.memory))
    if len(known) < 2:
        return replace(known[0], memory=memory) if known else JobHealth(memory=memory) if memory else None
    worst = _behind([pace for part in known for pace in part.worst])
    return JobHealth(
        at=max((part.at for part in known), key=len),
        ranks=sum(part.ranks for part in known),
        worst=worst[:MOST_SHOWN],
        nodes=_behind([pace for part in known for pace in part.nodes])[:MOST_SHOWN],
        spread=tuple(_quantiles([(p.data_s[-1], p.forward_s[-1], p.wait_s[-1]) for p in worst])),
        stragglers=tuple(each for part in known for each in part.stragglers)[:MOST_SHOWN],
        data_share=min(part.data_share for part in known),
        memory=memory,
    )


def _behind(paces: Sequence[Pace]) -> tuple[Pace, ...]:
    """The paces with a series, slowest first, each with its lag behind the typical one."""
    alone = {pace: pace.data_s[-1] + pace.forward_s[-1] for pace in paces if pace.data_s and pace.forward_s}
    usual = median_low(alone.values()) if alone else 0.0
    told = (replace(pace, lag_s=round(max(own - usual, 0.0), 5)) for pace, own in alone.items())
    return tuple(sorted(told, key=lambda pace: (-pace.lag_s, pace.host, pace.ranks)))


class _Trends:
    """Each rank's parts of a step by window, and how far it was behind the typical rank in each."""

    def __init__(self, windows: Sequence[Window]) -> None:
        self._windows = windows
        self._index = {rank: index for index, rank in enumerate(windows[-1].ranks)}
        self._typical = [window.typical_s for window in windows]

    def series(self, rank: int) -> Series:
        index = self._index[rank]
        return _transposed([_parts(window, index) for window in self._windows])

    def medians(self, ranks: Sequence[int]) -> Series:
        """The median of some ranks, part by part."""
        rows = []
        for window in self._windows:
            parts = [_parts(window, self._index[rank]) for rank in ranks]
            rows.append((median(each[0] for each in parts), median(p[1] for p in parts), median(p[2] for p in parts)))
        return _transposed(rows)

    def trend(self, series: Series) -> Trend:
        """Whether the lag grows: the mean of the last third of the windows beside that of the first."""
        lags = [data + forward - usual for data, forward, usual in zip(*series[:2], self._typical, strict=True)]
        if len(lags) < TREND_WINDOWS:
            return Trend.STEADY
        third = len(lags) // 3
        first, last = (max(sum(part) / third, 0.0) for part in (lags[:third], lags[-third:]))
        if last > max(first * TREND_RATIO, first + TREND_S):
            return Trend.GROWING
        return Trend.SHRINKING if first > max(last * TREND_RATIO, last + TREND_S) else Trend.STEADY


def _parts(window: Window, index: int) -> tuple[float, float, float]:
    steps, data, forward = window.steps[index], window.data_s[index], window.before_sync_s[index]
    return data / steps, forward / steps, max(window.total_s[index] - data - forward, 0.0) / steps


def _transposed(rows: Iterable[tuple[float, float, float]]) -> Series:
    data, forward, wait = zip(*((round(a, 5), round(b, 5), round(c, 5)) for a, b, c in rows), strict=True)
    return data, forward, wait


def _of_rank(rank: int, hosts: Mapping[int, str], last: Mapping[int, Mean], usual: float, trends: _Trends) -> Pace:
    series, pace = trends.series(rank), last[rank]
    lag = round(max(pace.alone_s - usual, 0.0), 5)
    return Pace(str(rank), hosts.get(rank, ""), lag, trends.trend(series), round(pace.share, 3), *series)


def _nodes(last: Mapping[int, Mean], hosts: Mapping[int, str], usual: float, trends: _Trends) -> Iterable[Pace]:
    """The nodes whose median rank is slowest."""
    by_host: dict[str, list[int]] = {}
    for rank in last:
        by_host.setdefault(hosts.get(rank, ""), []).append(rank)
    means = {host: median(last[rank].alone_s for rank in ranks) for host, ranks in by_host.items()}
    for host in sorted(means, key=lambda host: (-means[host], host))[:MOST_SHOWN]:
        series = trends.medians(by_host[host])
        share = median(last[rank].share for rank in by_host[host])
        lag = round(max(means[host] - usual, 0.0), 5)
        text = members.text(sorted(by_host[host]))
        yield Pace(text, host, lag, trends.trend(series), round(share, 3), *series)


def _spread(window: Window) -> Iterable[Spread]:
    return _quantiles([_parts(window, index) for index in range(len(window.ranks))])


def _quantiles(rows: Sequence[tuple[float, float, float]]) -> Iterable[Spread]:
    for number, phase in enumerate(("data", "forward", "wait")):
        values = sorted(row[number] for row in rows)
        quantiles = (values[0], median(values), values[-(-len(values) * 9 // 10) - 1], values[-1])
        yield Spread(phase, *(round(value, 5) for value in quantiles))


def _stragglers(
    judged: tuple[Period, Period] | None, hosts: Mapping[int, str], trends: _Trends
) -> tuple[Straggler, ...]:
    """Each slow rank, or the slow node whose ranks are all slow; what two periods in a row agree on."""
    if judged is None:
        return ()
    newest, found = judged[1].means, _slow(judged, hosts)
    usual = typical(newest)
    lags = {ranks: round(median(newest[rank].alone_s for rank in ranks) - usual, 5) for ranks in found}
    slowest = sorted(found, key=lambda ranks: (-lags[ranks], ranks))[:MOST_SHOWN]
    by_part = {
        "data": {rank: pace.data_s for rank, pace in newest.items()},
        "forward": {rank: pace.before_sync_s for rank, pace in newest.items()},
    }
    typical_s = {part: median_low(times.values()) for part, times in by_part.items()}

    def part(ranks: tuple[int, ...]) -> str:
        behind = {part: median(times[rank] for rank in ranks) - typical_s[part] for part, times in by_part.items()}
        return "data" if behind["data"] > behind["forward"] else "forward"

    return tuple(
        Straggler(ranks, found[ranks], part(ranks), lags[ranks], round(usual, 5), trends.trend(trends.medians(ranks)))
        for ranks in slowest
    )


def _slow(periods: tuple[Period, Period], hosts: Mapping[int, str]) -> dict[tuple[int, ...], str]:
    """Slow ranks, each alone with "", or all of a machine with its name."""
    slow = steadily_slow(periods[0]) & steadily_slow(periods[1])
    members_of: dict[str, set[int]] = {}
    for rank in periods[1].means:
        members_of.setdefault(hosts.get(rank, ""), set()).add(rank)
    whole = {host for host, own in members_of.items() if len(own) > 1 and own <= slow and len(members_of) > 1}
    machines = {tuple(sorted(members_of[host])): host for host in whole}
    return machines | {(rank,): "" for rank in slow if hosts.get(rank, "") not in whole}
