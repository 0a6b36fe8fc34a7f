"""The health of a job in windows: who is slow, in which part of a step, with which trend; and silence on noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangwatch.health import PaceHistory, job_health, merged
from hangwatch.health.thresholds import MOST_SHOWN, MOST_WINDOWS, WARM_UP_STEPS
from hangwatch.model import ForeignMemory, Incident, JobHealth, StepTimes, Trend
from hangwatch.report import html, terminal
from hangwatch.wire import codec
from tests import examples
from tests.strategies import record

STEP_S = 0.2
Cost = Callable[[int, int], tuple[float, float]]
"""Data and forward of a rank in a step, in seconds."""


@dataclass
class Job:
    """Ranks that step together on a clock of their own: a step lasts as long as its slowest rank, the rest waits."""

    cost: Cost
    ranks: int = 4
    step: int = 0
    at: float = 1000.0
    history: PaceHistory = field(default_factory=PaceHistory)
    hosts: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sums = {rank: StepTimes() for rank in range(self.ranks)}
        self.hosts = self.hosts or dict.fromkeys(range(self.ranks), "node-a")

    def run(self, seconds: float, pids: Mapping[int, object] | None = None) -> JobHealth:
        until, looked = self.at + seconds, self.at
        while self.at < until:
            parts = {rank: self.cost(rank, self.step) for rank in self.sums}
            took = max(max(map(sum, parts.values())) + 0.02, STEP_S)
            self.step, self.at = self.step + 1, self.at + took
            for rank, (data, forward) in parts.items():
                old = self.sums[rank]
                self.sums[rank] = StepTimes(
                    old.steps + 1, old.data_s + data, old.before_sync_s + forward, old.total_s + took, took, took
                )
            if self.at - looked >= 1.0:
                looked = self.at
                self.history.note(self.at, self.sums, pids or dict.fromkeys(self.sums, 1))
        return job_health(self.history.windows, self.hosts)


def even(rank: int, step: int) -> tuple[float, float]:
    return 0.004, 0.06


def slow(which: set[int], data: float = 0.0, forward: float = 0.0) -> Cost:
    def cost(rank: int, step: int) -> tuple[float, float]:
        return (0.004 + data, 0.06 + forward) if rank in which else (0.004, 0.06)

    return cost


def test_a_slow_rank_is_told_with_its_part_of_the_step() -> None:
    found = Job(slow({2}, forward=0.09)).run(60)
    (straggler,) = found.stragglers
    assert (straggler.ranks, straggler.host, straggler.phase, straggler.trend) == ((2,), "", "forward", Trend.STEADY)
    assert straggler.lag_s == pytest.approx(0.09, abs=0.002)
    assert (found.worst[0].ranks, found.ranks) == ("2", 4)
    assert found.worst[0].wait_s[-1] < found.worst[1].wait_s[-1]  # the others wait for it


def test_a_rank_with_a_slow_loader_is_told_as_that() -> None:
    (straggler,) = Job(slow({1}, data=0.12)).run(60).stragglers
    assert (straggler.ranks, straggler.phase) == ((1,), "data")


def test_a_node_whose_ranks_are_all_slow_is_told_once() -> None:
    hosts = {rank: f"node-{'ab'[rank // 4]}" for rank in range(8)} | {8: "node-c", 9: "node-c"}
    found = Job(slow({8, 9}, forward=0.1), ranks=10, hosts=hosts).run(60)
    assert [(each.ranks, each.host) for each in found.stragglers] == [((8, 9), "node-c")]
    assert (found.nodes[0].host, found.nodes[0].ranks) == ("node-c", "8-9")
    assert found.nodes[0].lag_s == pytest.approx(0.1, abs=0.002)


def test_a_lag_that_grows_and_one_that_shrinks() -> None:
    def growing(rank: int, step: int) -> tuple[float, float]:
        return 0.004, 0.06 + (0.05 + 0.0004 * step if rank == 3 else 0)

    def shrinking(rank: int, step: int) -> tuple[float, float]:
        return 0.004, 0.06 + (max(0.4 - 0.0014 * step, 0.08) if rank == 3 else 0)

    (more,) = Job(growing).run(90).stragglers
    (less,) = Job(shrinking).run(90).stragglers
    assert (more.trend, less.trend) == (Trend.GROWING, Trend.SHRINKING)


@pytest.mark.parametrize("seed", range(5))
def test_jitter_and_a_slow_first_step_blame_no_rank(seed: int) -> None:
    # GIVEN a first step that compiles for 40 s on one rank, 30 % of noise, and single steps of half a second
    noise = random.Random(seed)

    def cost(rank: int, step: int) -> tuple[float, float]:
        if step == 0:
            return 0.5, 40.0 if rank == 1 else 2.0
        hiccup = 0.5 if noise.random() < 0.005 else 0.0
        return 0.004 * noise.uniform(0.2, 3), 0.06 * noise.uniform(0.7, 1.3) + hiccup

    job = Job(cost, ranks=8)
    # THEN whenever one looks, no rank is told
    for _ in range(40):
        assert job.run(6).stragglers == ()


def test_one_burst_of_slow_steps_is_not_enough() -> None:
    def cost(rank: int, step: int) -> tuple[float, float]:
        return 0.004, 0.06 + (0.3 if rank == 1 and 300 <= step < 340 else 0)

    job = Job(cost)
    told = [job.run(5).stragglers for _ in range(30)]
    assert not any(told)


def test_a_rank_that_waits_in_its_forward_is_not_the_slow_one() -> None:
    # GIVEN rank 0 without data, and rank 1 which waits as long in its forward, for the buffers of rank 0
    def cost(rank: int, step: int) -> tuple[float, float]:
        return (0.06, 0.01) if rank == 0 else (0.0, 0.07)

    assert Job(cost, ranks=2).run(60).stragglers == ()


def test_the_share_of_data_is_that_of_the_rank_with_the_least() -> None:
    assert Job(slow({0, 1, 2, 3}, data=0.146)).run(60).data_share == pytest.approx(0.65, abs=0.02)
    assert Job(slow({0}, data=0.146)).run(60).data_share < 0.03


def test_nothing_is_told_before_the_first_window() -> None:
    job = Job(even)
    assert job.run(1) == JobHealth()
    assert job.step < WARM_UP_STEPS


def test_a_rank_that_restarts_begins_anew() -> None:
    job = Job(slow({2}, forward=0.09))
    assert job.run(60).stragglers
    assert job.run(4, pids={0: 1, 1: 1, 2: 77, 3: 1}) == JobHealth()


def test_of_a_large_job_the_slowest_are_told_and_the_rest_in_quantiles() -> None:
    hosts = {rank: f"node-{rank // 8:04d}" for rank in range(800)}
    found = Job(slow({700, 701}, forward=0.1), ranks=800, hosts=hosts).run(40)
    assert (found.ranks, len(found.worst), len(found.nodes)) == (800, MOST_SHOWN, MOST_SHOWN)
    assert {each.ranks for each in found.worst[:2]} == {"700", "701"}
    forward = next(each for each in found.spread if each.phase == "forward")
    assert (forward.least, forward.median, forward.p90) == pytest.approx((0.06, 0.06, 0.06))
    assert forward.most == pytest.approx(0.16)


def test_windows_are_bounded() -> None:
    job = Job(even)
    found = job.run(1000)
    assert len(found.at) == len(found.worst[0].data_s) == MOST_WINDOWS


def test_steps_of_seconds_make_longer_windows() -> None:
    found = Job(lambda rank, step: (0.01, 3.0 + 2 * (rank == 1))).run(1000)
    assert found.at[-1] - found.at[-2] >= 5 * 5
    assert [each.ranks for each in found.stragglers] == [(1,)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.dictionaries(st.integers(0, 3), record(StepTimes), max_size=4), max_size=6))
def test_no_times_can_make_it_fail(moments: list[dict[int, StepTimes]]) -> None:
    history = PaceHistory()
    for number, times in enumerate(moments):
        history.note(10.0 * number, times, dict.fromkeys(times, 1))
    found = job_health(history.windows, {})
    assert all(math.isfinite(value) for pace in found.worst for value in (*pace.data_s, *pace.wait_s, pace.lag_s))


# ---------------------------------------------------------------- several watchers, and the report


def test_watchers_of_two_nodes_are_put_together() -> None:
    one = Job(even, ranks=2, hosts={0: "node-a", 1: "node-a"}).run(60)
    other = Job(lambda rank, step: (0.004, 0.16), ranks=2, hosts={0: "node-b", 1: "node-b"}).run(60)
    other = replace(other, worst=tuple(replace(pace, ranks=str(int(pace.ranks) + 2)) for pace in other.worst))
    found = merged([one, JobHealth(), other])
    assert found is not None
    assert (found.ranks, [pace.ranks for pace in found.worst]) == (4, ["2", "3", "0", "1"])
    assert found.worst[0].lag_s == pytest.approx(0.1, abs=0.01)
    assert [node.host for node in found.nodes] == ["node-b", "node-a"]
    assert merged([JobHealth(), JobHealth()]) is None


def test_a_report_tells_it_in_html_json_and_on_the_terminal() -> None:
    health = Job(slow({2}, forward=0.09)).run(60)
    memory = (ForeignMemory("node-a", 0, 0, 2, 4711, 3 << 30, "torch.load without map_location at train.py:12"),)
    incident = replace(examples.uneven_steps(), health=replace(health, memory=memory), warnings=())
    said = "Rank 2 added 90 ms to each step, most of it before the end of its forward; a typical rank needed 64 ms"
    page = html.render(incident)
    assert said in page
    assert "torch.load without map_location at train.py:12" in page
    assert "Rank 2 added 90 ms" in terminal.render(incident, verbose=True)
    assert codec.loads(Incident, codec.dumps(incident)).health == incident.health


def test_a_report_without_pace_says_nothing_of_it() -> None:
    page = html.render(examples.uneven_steps())
    assert "Health before it" not in page
