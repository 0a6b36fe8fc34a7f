"""Plans of several nodes in the directory that they share: each look is done at once, and time is a number."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from hangwatch.model import HealthWarning, Job, LoaderFacts, NodeHello, Reading
from hangwatch.report import files
from hangwatch_agent.peers import plans
from hangwatch_agent.peers.plan_files import PlanFiles
from hangwatch_agent.peers.plans import SharedPlans
from hangwatch_agent.roster.hello import hello
from hangwatch_agent.roster.rank_states import RankState
from tests.unit.health.readings import loader, reading

JOB = Job("torchrun/lab", "train.py", 4)


def at_once(work: Callable[[], None]) -> None:
    work()


def rank(number: int, *loaders: LoaderFacts) -> Reading:
    return reading(number, *loaders, world=4)


def greeting(host: str, *readings: Reading) -> NodeHello:
    return hello(JOB, host, 0.0, [RankState(Path("b"), each, 0.0, "S", 0.0) for each in readings], "0.1")


@dataclass
class Node:
    """A watchdog with two ranks whose loaders have `length` batches."""

    folder: Path
    name: str
    ranks: tuple[int, ...]
    server: FileServer
    length: int = 100
    told: list[HealthWarning] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plans = SharedPlans(PlanFiles(str(self.folder), self.name, self.server.touch), start=at_once)

    def looks(self, now: float, *, judging: bool = False) -> None:
        self.server.now = now
        readings = (rank(number, loader(self.length, batch_size=8)) for number in self.ranks)
        self.told += self.plans.compare(lambda: greeting(self.name, *readings), now, judging=judging)

    @property
    def file(self) -> Path:
        return self.folder / "plans-torchrun_lab" / f"{self.name}.json"


@dataclass
class FileServer:
    """Its clock stands `ahead` of the nodes' own."""

    ahead: float = 0.0
    now: float = 0.0

    def touch(self, path: Path) -> None:
        os.utime(path, (self.now + self.ahead,) * 2)


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Node, Node]:
    server = FileServer(ahead=777.0)
    return Node(tmp_path / "reports", "node-a", (0, 1), server), Node(tmp_path / "reports", "node-b", (2, 3), server)


def train(first: Node, second: Node, *, seconds: int = 40) -> None:
    for now in range(1000, 1000 + seconds):
        first.looks(now, judging=True)
        second.looks(now)


def test_loaders_of_two_nodes_that_differ_are_told_once_and_by_one_node(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    second.length = 90
    train(first, second)
    (warning,) = first.told
    assert (warning.kind, warning.ranks) == ("uneven-forecast", (2, 3))
    assert warning.summary.startswith("The loader of ranks 2-3 has 90 batches, that of rank 0 100: the job will hang")
    assert second.told == []


@pytest.mark.parametrize("later", range(8))
def test_nodes_that_end_the_job_do_it_together(nodes: tuple[Node, Node], later: int) -> None:
    """GIVEN two nodes that look at other moments WHEN one has found it THEN both are told at one moment."""
    first, second = nodes
    second.length, when = 90, dict[str, int]()
    for now in range(1000, 1060):
        for node in (first, second) if now >= 1000 + later else (first,):
            node.looks(now, judging=True)
            if node.told:
                when.setdefault(node.name, now)
    assert abs(when["node-a"] - when["node-b"]) <= 1
    assert [each.kind for node in nodes for each in node.told] == ["uneven-forecast"] * 2


def test_what_another_node_may_have_acted_upon_is_known_a_little_earlier_and_returned_once(
    nodes: tuple[Node, Node],
) -> None:
    """GIVEN a forecast that is due WHEN the ranks fail before THEN it is given where the moment is near, and only then.

    A forecast of which nothing is due yet leaves what happens before alone: the ranks failed of something else.
    """
    first, second = nodes
    second.length = 90
    train(first, second, seconds=19)
    (told,) = first.plans._told.values()
    due = told.at - 777.0 + plans.SPREAD_S
    assert first.plans.acted_upon(due - 2 * plans.EARLY_S) == ()
    assert [each.kind for each in first.plans.acted_upon(due - plans.EARLY_S / 2)] == ["uneven-forecast"]
    first.looks(due + 1.0, judging=True)
    assert (first.told, first.plans.acted_upon(due + 2.0)) == ([], ())


def test_what_is_due_does_not_wait_for_a_look_under_way(nodes: tuple[Node, Node]) -> None:
    """GIVEN a file server that has become slow WHEN a forecast is due THEN it is acted upon, as on the other nodes."""
    first, second = nodes
    second.length = 90
    train(first, second, seconds=19)
    under_way = threading.Thread(target=threading.Event().wait, args=(30.0,), daemon=True)
    under_way.start()
    first.plans._thread = under_way
    first.looks(1000.0 + 40.0, judging=True)
    assert [each.kind for each in first.told] == ["uneven-forecast"]


def test_the_node_that_found_it_first_sets_the_moment(nodes: tuple[Node, Node]) -> None:
    """GIVEN a node that has found it by itself WHEN it reads that another was earlier THEN that moment counts."""
    first, second = nodes
    second.length = 90
    train(first, second, seconds=19)
    (told,) = first.plans._told.values()
    second.plans._told = {told.warning.kind: replace(told, at=told.at + 3.0)}
    for now in range(1019, 1032):
        first.looks(now, judging=True)
        second.looks(now, judging=True)
    assert second.plans._told[told.warning.kind].at == told.at
    assert (len(first.told), len(second.told)) == (1, 1)


def test_equal_plans_are_no_news(nodes: tuple[Node, Node]) -> None:
    train(*nodes)
    assert nodes[0].told == []


def test_what_differs_for_a_moment_is_not_told(nodes: tuple[Node, Node]) -> None:
    """One node begins an epoch of another length some seconds before the other does."""
    first, second = nodes
    second.length = 90
    train(first, second, seconds=10)
    second.length = 100
    for now in range(1010, 1060):
        first.looks(now, judging=True)
        second.looks(now)
    assert first.told == []


def test_a_job_whose_other_node_has_not_come_is_not_judged(nodes: tuple[Node, Node]) -> None:
    first, _ = nodes
    for now in range(60):
        first.looks(now, judging=True)
    assert first.told == []


def test_what_a_killed_run_has_left_is_not_compared(nodes: tuple[Node, Node]) -> None:
    """GIVEN a plan of a node that is touched no more WHEN a new run has another plan THEN nothing is told."""
    first, second = nodes
    second.length = 90
    second.looks(1000.0)
    for now in range(1001, 1060):
        first.looks(now, judging=True)
    assert first.told == []


def test_two_plans_for_one_rank_the_newer_process_counts(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    elder = Node(first.folder, "node-b-9", (2, 3), first.server, length=90)
    for now in range(1000, 1040):
        first.looks(now, judging=True)
        own = greeting("node-b", *(_started(rank(n, loader(100, batch_size=8)), 500.0) for n in second.ranks))
        second.plans.compare(lambda own=own: own, now, judging=False)  # type: ignore[misc]
        elder.looks(now)
    assert first.told == []


def _started(reading: Reading, at: float) -> Reading:
    return replace(reading, identity=replace(reading.identity, started_at=at))


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000, '{"job": {"id": "torchrun/lab"}, "host": 3}'])
def test_files_that_say_nothing_are_passed_over(nodes: tuple[Node, Node], content: str) -> None:
    first, second = nodes
    second.length = 90
    first.looks(999.0)
    (first.file.parent / "stranger.json").write_text(content)
    (first.file.parent / "folder.json").mkdir()
    (first.file.parent / "link.json").symlink_to(second.file)
    train(first, second)
    assert len(first.told) == 1


def test_files_are_private_and_nothing_is_left_behind(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    train(first, second, seconds=5)
    assert oct(first.file.parent.stat().st_mode & 0o777) == "0o700"
    assert oct(first.file.stat().st_mode & 0o777) == "0o600"
    first.plans.leave()
    assert not first.file.exists()
    assert second.file.exists()
    second.plans.leave()
    assert not first.file.parent.exists()


def test_what_was_left_long_ago_is_removed(nodes: tuple[Node, Node]) -> None:
    first, second = nodes
    second.looks(1000.0)
    first.looks(5000.0, judging=True)
    assert not second.file.exists()


def test_a_very_large_job_leaves_the_directory_alone(nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_RANKS", 3)
    train(*nodes, seconds=5)
    assert not nodes[0].folder.exists()


def test_a_directory_that_cannot_be_used_costs_nothing(nodes: tuple[Node, Node]) -> None:
    node = nodes[0]
    node.folder.write_text("")
    for now in range(30):
        node.looks(now, judging=True)
    node.plans.leave()
    assert node.told == []


def test_a_file_server_that_hangs_holds_up_nobody(nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "LEAVE_S", 0.05)
    node = nodes[0]
    node.plans = SharedPlans(PlanFiles(str(node.folder), node.name))
    hanging, looks = threading.Event(), []

    def write(path: Path, text: str) -> None:
        looks.append(path)
        hanging.wait(30)

    monkeypatch.setattr(files, "write_text", write)
    for now in range(20):
        node.looks(now, judging=True)
    node.plans.leave()
    hanging.set()
    assert len(looks) <= 1
