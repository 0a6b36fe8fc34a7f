"""The health of a job of several nodes: what no node sees alone, by the nodes' own clocks."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from hangwatch.health import job_health
from hangwatch.health.pace_history import Window
from hangwatch.model import (
    Frame,
    GpuFacts,
    GroupMade,
    JobHealth,
    Link,
    LoaderFacts,
    NodeFacts,
    RankBeat,
    RankPlan,
    StepTimes,
)
from hangwatch_dashboard.clocks import ClockEstimate
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.live_node import LiveNode
from hangwatch_dashboard.metrics import Meters
from tests import needs
from tests.nodes import FakeNode

NOW = 1_795_200_000.0
STEP_S = 0.25
GIB = 1 << 30


def two_nodes() -> dict[str, FakeNode]:
    return {name: FakeNode(name, ranks) for name, ranks in (("node-a", (0, 1)), ("node-b", (2, 3)))}


def trained(forward_s: Mapping[int, float], seconds: int = 60, facts: Mapping[str, NodeFacts] | None = None) -> LiveJob:
    """A job of four ranks on two nodes that has trained for some time; what each rank needs for its forward."""
    job, nodes = LiveJob("resnet-1", "job", NOW), two_nodes()
    for second in range(seconds):
        steps = 10 + int(second / STEP_S)
        for name, node in nodes.items():
            node.step = steps
            for rank in node.ranks:
                sums = StepTimes(steps, 0.001 * steps, forward_s[rank] * steps, STEP_S * steps, STEP_S, STEP_S)
                node.changes[rank] = {"times": sums}
            batch = node.batch(NOW + second)
            hello = batch.hello or job.nodes[name].hello
            job.apply(LiveNode(name, node.boot, batch, hello, NOW + second, ClockEstimate(), (facts or {}).get(name)))
        job.note(NOW + second)
    return job


def test_a_slow_node_is_told_where_each_node_alone_sees_nothing() -> None:
    job = trained({0: 0.05, 1: 0.05, 2: 0.2, 3: 0.2})
    (straggler,) = job.health.of(job.ranked()).stragglers
    assert (straggler.host, straggler.ranks) == ("node-b", (2, 3))
    (warning,) = job.warnings
    assert (warning.kind, warning.ranks) == ("straggler", (2, 3))
    assert "ranks 2-3, all of node-b, in each step: 201 ms" in warning.summary


def test_a_window_that_ends_while_the_pace_is_worked_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a reader in a thread of its own, and windows that end while it works out the pace of those before
    job = trained({0: 0.05, 1: 0.05, 2: 0.05, 3: 0.05}, seconds=30)

    def meanwhile(windows: tuple[Window, ...], hosts: Mapping[int, str]) -> JobHealth:
        monkeypatch.undo()
        job.health.note(NOW + 120, moved(job, by=400))
        return job_health(windows, hosts)

    monkeypatch.setattr("hangwatch_dashboard.job_health.job_health", meanwhile)
    # WHEN it has its answer THEN the next one knows of them
    assert job.health.pace.at[-1] < NOW + 120
    assert job.health.pace.at[-1] == NOW + 120


def moved(job: LiveJob, by: int) -> list[tuple[LiveNode, RankBeat]]:
    """The job's ranks, some steps further."""

    def times(old: StepTimes) -> StepTimes:
        return replace(old, steps=old.steps + by, total_s=old.total_s + by * STEP_S)

    return [(node, replace(beat, times=times(beat.times))) for node, beat in job.ranked()]


def test_a_warning_of_all_nodes_is_news_once() -> None:
    job = trained({0: 0.05, 1: 0.05, 2: 0.2, 3: 0.2}, seconds=50)
    assert (job.note(NOW + 51), len(job.warnings)) == (False, 1)


def test_an_even_job_has_a_table_and_no_blame() -> None:
    job = trained(dict.fromkeys(range(4), 0.05))
    found = job.health.of(job.ranked())
    assert (job.warnings, found.stragglers, found.ranks) == ([], (), 4)
    assert [node.ranks for node in found.nodes] == ["0-1", "2-3"]
    assert all(late - early >= 5 for early, late in pairwise(found.at))


def test_memory_on_another_ranks_gpu_is_seen_by_what_each_process_holds() -> None:
    gpus = (
        GpuFacts(0, "a", "H200", processes={1000: 9 * GIB, 1001: 2 * GIB}),
        GpuFacts(1, "b", "H200", processes={1001: 9 * GIB}),
    )
    job = trained(dict.fromkeys(range(4), 0.05), facts={"node-a": NodeFacts("node-a", (0, 1), gpus=gpus)})
    (found,) = job.health.of(job.ranked()).memory
    assert (found.gpu, found.owner, found.rank, found.bytes_held) == (0, 0, 1, 2 * GIB)
    clean = replace(gpus[0], processes={1000: 9 * GIB})
    job = trained(dict.fromkeys(range(4), 0.05), facts={"node-a": NodeFacts("node-a", (0, 1), gpus=(clean, gpus[1]))})
    assert job.health.of(job.ranked()).memory == ()


def test_a_large_job_has_as_many_lines_as_a_small_one() -> None:
    text = Meters().page([trained({0: 0.05, 1: 0.05, 2: 0.2, 3: 0.2})], 0, NOW + 60)
    assert 'hangwatch_job_stragglers{run="resnet-1"} 2.0' in text
    assert 'hangwatch_job_step_part_seconds{part="forward",ranks="most",run="resnet-1"} 0.2' in text
    parts = set(re.findall(r'hangwatch_job_step_part_seconds{part="(\w+)"', text))
    assert parts == {"data", "forward", "rest"}, "the rest is no waiting alone: the page calls it that, too"
    lines = [line for line in text.splitlines() if line.startswith(("hangwatch_job_step_part", "hangwatch_job_strag"))]
    assert len(lines) == 3 * 4 + 2
    assert not any("rank=" in line for line in lines)


def test_promtool_accepts_the_metrics_of_a_job_that_has_trained_for_a_while() -> None:
    text = Meters().page([trained({0: 0.05, 1: 0.05, 2: 0.2, 3: 0.2})], 0, NOW + 60)
    assert "hangwatch_job_step_part_seconds" in text
    command = [str(needs.program("promtool")), "check", "metrics"]
    checked = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_no_node_is_silent_for_any_time_while_all_are_heard() -> None:
    job = trained(dict.fromkeys(range(4), 0.05))
    heard = max(node.received_at for node in job.all_nodes)

    def silent(now: float) -> list[str]:
        return re.findall(r"hangwatch_job_nodes_silent(?:_seconds)?{.*} (.*)", Meters().page([job], 0, now))

    assert silent(heard + 0.5) == ["0.0", "0.0"]
    assert silent(heard + 60.0) == ["2.0", "60.0"]


# ---------------------------------------------------------------- plans across nodes


LOOP = Frame("/home/ann/train.py", 40, "main")


def planned(job: LiveJob, rank: int, length: int, *, waits: bool = True, second: float = 0.0, **parts: Any) -> bool:
    """One rank on a node of its own says what it is going to draw. Returns whether that is news."""
    node = FakeNode(f"node-{rank}", (rank,), world_size=2)
    own: dict[str, Any] = {"epoch": 0, "where": LOOP, "dataset": "Images", "dataset_length": 800, "sampler": "Mine"}
    plan = RankPlan(rank, (LoaderFacts(0, length, **(own | parts)),), waits=waits)
    batch = node.batch(NOW + second)
    assert batch.hello is not None
    hello = replace(batch.hello, plans=(plan,))
    job.apply(LiveNode(node.name, node.boot, batch, hello, NOW + second, ClockEstimate()))
    return job.note(NOW + second)


def two_ranks(first: int, second: int, **parts: Any) -> LiveJob:
    job = LiveJob("resnet-1", "job", NOW)
    planned(job, 0, first, **parts)
    assert job.warnings == []  # of one rank nothing can be told
    planned(job, 1, second, second=1.0, **parts)
    assert job.warnings == []  # it may be a moment in which one node has told its new plan, and the other has not
    planned(job, 1, second, second=12.0, **parts)
    return job


def later_on(job: LiveJob) -> None:
    """Every node goes on for twenty seconds, with the plan that it has told."""
    for second in (0, 5, 12, 20):
        for node in job.all_nodes:
            batch = replace(node.batch, taken_at=NOW + second)
            job.apply(replace(node, batch=batch, received_at=NOW + second))
        job.note(NOW + second)


def test_loaders_of_two_nodes_that_differ_are_a_forecast_before_the_end_of_the_epoch() -> None:
    job = two_ranks(251, 250)
    (found,) = job.warnings
    assert (found.kind, found.ranks) == ("uneven-forecast", (1,))
    assert "The loader of rank 1 has 250 batches, that of rank 0 251" in found.summary
    # AND it is told once, however often the node says its plan again
    assert not planned(job, 1, 250, second=20.0, epoch=1, drawn_per_epoch=(250,), exhausted_per_epoch=(True,))
    assert [each.kind for each in job.warnings] == ["uneven-forecast"]


@pytest.mark.parametrize(
    ("first", "second", "parts"),
    [
        (250, 250, {}),
        (251, 250, {"waits": False}),
        (251, 250, {"epoch": 1, "drawn_per_epoch": (250,), "exhausted_per_epoch": (False,)}),  # it is left early
        (251, 250, {"exhausted": True}),
    ],
)
def test_plans_of_two_nodes_may_be_innocent(first: int, second: int, parts: dict[str, Any]) -> None:
    assert two_ranks(first, second, **parts).warnings == []


def test_samplers_of_two_nodes_that_draw_one_share() -> None:
    job = two_ranks(250, 250, sampler_replicas=2, sampler_rank=0)
    assert [(each.kind, each.ranks) for each in job.warnings] == [("sampler-world-mismatch", (0, 1))]


def test_a_rank_that_has_not_come_keeps_the_forecast_back() -> None:
    job = LiveJob("resnet-1", "job", NOW)
    for rank, length in ((0, 251), (1, 250)):
        node = FakeNode(f"node-{rank}", (rank,), world_size=3)
        batch = node.batch(NOW)
        assert batch.hello is not None
        loader = LoaderFacts(0, length, epoch=0, where=LOOP, dataset="Images")
        hello = replace(batch.hello, plans=(RankPlan(rank, (loader,), waits=True),))
        job.apply(LiveNode(node.name, node.boot, batch, hello, NOW, ClockEstimate()))
    later_on(job)
    assert job.warnings == []


def test_a_plan_that_one_node_tells_sooner_is_no_difference() -> None:
    # GIVEN a second epoch with other lengths, which one node tells three seconds before the other
    later: dict[str, Any] = {"epoch": 1, "drawn_per_epoch": (250,), "exhausted_per_epoch": (True,)}
    job = two_ranks(250, 250)
    planned(job, 0, 200, second=20.0, epoch=0)
    planned(job, 0, 200, second=22.0, epoch=0)
    planned(job, 1, 200, second=23.0, **later)
    planned(job, 0, 200, second=23.5, **later)
    for second in range(24, 60, 3):
        planned(job, second % 2, 200, second=second, **later)
    assert job.warnings == []


def test_a_group_that_a_rank_is_just_making_is_no_difference() -> None:
    job = LiveJob("resnet-1", "job", NOW)
    for rank, asked in ((0, (0, 1)), (1, ())):
        node = FakeNode(f"node-{rank}", (rank,), world_size=2)
        batch = node.batch(NOW)
        assert batch.hello is not None
        hello = replace(batch.hello, plans=(RankPlan(rank, groups_made=(GroupMade(0, asked, "0", bool(asked)),)),))
        job.apply(LiveNode(node.name, node.boot, batch, hello, NOW, ClockEstimate()))
    later_on(job)
    assert job.warnings == []


# ---------------------------------------------------------------- links between nodes


def looked(job: LiveJob, second: float, rate: int, *, restless: int = 0) -> bool:
    """Each of three nodes tells what it has sent to the next one in ten seconds; node-1 at `rate` bytes a second.

    Returns whether that is news.
    """
    for rank in range(3):
        node, sent = FakeNode(f"node-{rank}", (rank,), world_size=3), 500 << 20 if rank != 1 else rate
        link = Link(f"10.0.0.{rank}", f"10.0.0.{(rank + 1) % 3}", 1, sent * 10 + restless, 10.0, 1 << 20)
        facts, batch = NodeFacts(node.name, (rank,), links=(link,)), node.batch(NOW + second)
        assert batch.hello is not None
        job.apply(LiveNode(node.name, node.boot, batch, batch.hello, NOW + second, ClockEstimate(), facts))
    return job.note(NOW + second)


def test_a_slow_link_is_told_when_two_looks_show_it_and_no_longer_when_it_is_well() -> None:
    job = LiveJob("resnet-1", "job", NOW)
    looked(job, 0, 20 << 20)
    assert job.warnings == []
    assert looked(job, 30, 20 << 20, restless=1)
    (found,) = job.warnings
    assert (found.kind, found.ranks) == ("slow-link", (1,))
    assert found.summary == "The link from node-1 to node-2 carries 20 MiB/s, the other links 500 MiB/s"
    looked(job, 60, 500 << 20)
    assert job.warnings == []
