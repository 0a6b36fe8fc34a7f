"""GPUs looked at while the job runs: seldom, told once, and never where there is no driver."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangwatch.model import CaptureNote, GpuFacts, HealthWarning, NodeFacts, Reading
from hangwatch_agent.capture.gpu import Gpus
from hangwatch_agent.watchdog.node_look import EVERY_S, NodeLook
from tests.unit.agent.readings import rank_state

GIB = 1 << 30


class StandIn(Gpus):
    """GPUs that say what a test has put there."""

    def __init__(self, *processes: dict[int, int]) -> None:
        super().__init__()
        self.looks = 0
        self.facts = tuple(GpuFacts(index, str(index), "H200", processes=each) for index, each in enumerate(processes))

    def read(self) -> tuple[tuple[GpuFacts, ...], CaptureNote]:
        self.looks += 1
        return self.facts, CaptureNote("gpu", True)


@pytest.fixture
def ranks() -> list[Reading]:
    found = []
    for rank in (0, 1):
        reading = rank_state(rank).reading
        found.append(replace(reading, identity=replace(reading.identity, rank=rank, pid=100 + rank, host="node-a")))
    return found


class Told:
    def __init__(self, gpus: StandIn, *, driver: bool = True) -> None:
        self.now, self.nodes = 1000.0, list[NodeFacts]()
        self.look = NodeLook(gpus, lambda: driver, lambda pids: (), self.nodes.append, lambda: self.now)

    def poll(self, ranks: list[Reading], seconds: int) -> list[HealthWarning]:
        found: list[HealthWarning] = []
        for _ in range(seconds):
            self.now += 1
            found += self.look(ranks)
        return found


def test_memory_on_another_ranks_gpu_is_told_once_while_the_job_runs(ranks: list[Reading]) -> None:
    gpus = StandIn({100: 9 * GIB, 101: 2 * GIB}, {101: 9 * GIB})
    told = Told(gpus)
    (found,) = told.poll(ranks, 300)
    assert (found.kind, found.ranks) == ("gpu-memory-imbalance", (1,))
    assert gpus.looks <= 300 / EVERY_S + 1
    assert told.nodes[0].gpus == gpus.facts


def test_memory_where_it_belongs_is_shown_and_not_warned_of(ranks: list[Reading]) -> None:
    told = Told(StandIn({100: 9 * GIB}, {101: 9 * GIB}))
    assert told.poll(ranks, 100) == []
    assert len(told.nodes) >= 3


@pytest.mark.parametrize("driver", [True, False])
def test_without_gpus_nothing_is_asked_or_told(ranks: list[Reading], driver: bool) -> None:
    gpus = StandIn()
    told = Told(gpus, driver=driver)
    assert told.poll(ranks, 100) == []
    assert told.nodes == []
    assert bool(gpus.looks) == driver


def test_nothing_is_asked_before_a_rank_has_come() -> None:
    gpus = StandIn({100: GIB})
    assert Told(gpus).poll([], 100) == []
    assert gpus.looks == 0
