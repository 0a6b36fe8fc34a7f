from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import (
    Certainty,
    Culprit,
    ExceptionFacts,
    HealthWarning,
    Incident,
    Job,
    Judgement,
    Phase,
    PhaseSpan,
    Progress,
    RankEvidence,
    Reading,
    Snapshot,
    Stage,
    Status,
    Verdict,
)
from hangwatch.report import files
from hangwatch.settings import Settings
from hangwatch_agent.peers import peers
from hangwatch_agent.peers.peers import Peers
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.watchdog import dashboard_exchange
from hangwatch_agent.watchdog.dashboard_exchange import DashboardExchange
from hangwatch_agent.watchdog.incidents import Incidents
from hangwatch_agent.watchdog.loop import Watchdog
from hangwatch_agent.watchdog.peer_exchange import PeerExchange
from hangwatch_agent.watchdog.response import LEFT_BEHIND_S, MOVES_S, STOPPED_S, Response
from tests.unit.agent.readings import blocked, rank_state

JOB = Job("job", "job", None)


class FakeRoster:
    """Gives the states that a test has put there."""

    def __init__(self) -> None:
        self.rank_states: tuple[RankState, ...] = ()
        self.broken: dict[Path, str] = {}

    def update(self, now: float) -> tuple[RankState, ...]:
        return self.rank_states


class World:
    """A watchdog in a world without processes: a clock to turn, states to set, a judge who says what he is told."""

    def __init__(self, folder: Path) -> None:
        self.now = 10.0
        self.captures = 0
        self.verdict = Judgement(
            Status.WAITING, Stage.STEP, Verdict("undetermined", Certainty.UNDETERMINED, "Waiting.")
        )
        self.stream = io.StringIO()
        self.aborted: list[Incident] = []
        self.snapshots: list[Snapshot] = []
        incidents = Incidents(str(folder), self.stream, clock=self.clock)
        self.watchdog = Watchdog(
            folder,
            Settings(stall_after=20.0),
            JOB,
            self.capture,
            Response(incidents, on_hang=self.aborted.append),
            clock=self.clock,
            judge=self.judge,
        )
        self.roster = FakeRoster()
        self.watchdog.roster = self.roster  # type: ignore[assignment]

    def clock(self) -> float:
        return self.now

    def capture(self, rank_states: Sequence[RankState], sleep: Callable[[float], bool]) -> Snapshot:
        self.captures += 1
        ranks = tuple(RankEvidence(each.rank or 0, pid=each.pid, reading=each.reading) for each in rank_states)
        return Snapshot(JOB, self.now, ranks)

    def judge(self, snapshot: Snapshot) -> Judgement:
        self.snapshots.append(snapshot)
        return self.verdict

    def look(self, now: float, *rank_states: RankState) -> None:
        self.now = now
        self.roster.rank_states = rank_states
        self.watchdog.poll()

    def moves(self, now: float, *rank_states: RankState) -> None:
        """Two looks, so far apart that movement is no moment's."""
        self.look(now, *rank_states)
        self.look(now + MOVES_S, *rank_states)

    def hangs(self) -> None:
        sure = Certainty.PROVEN
        self.verdict = Judgement(Status.HUNG, Stage.STEP, Verdict("uneven-steps", sure, "Rank 1 left.", hang=sure))

    def fails(self) -> None:
        self.verdict = Judgement(Status.FAILED, Stage.STEP, Verdict("rank-died", Certainty.PROVEN, "Rank 1 died."))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.watchdog.halt()


def pair(moved_at: float = 10.0, **parts: Any) -> tuple[RankState, RankState]:
    first, second = (rank_state(number, moved_at=moved_at, heads=blocked(), **parts) for number in (0, 1))
    return first, second


def test_a_job_that_moves_is_not_captured(world: World) -> None:
    for now in (10.0, 10.5, 11.0):
        world.look(now, *pair(moved_at=now))
    assert world.captures == 0


def test_a_deadlock_becomes_an_incident(world: World) -> None:
    world.hangs()
    world.look(11.5, *pair())
    assert "HUNG, proven, 1.5 s after the last" in world.stream.getvalue()
    world.look(12.5, *pair())
    assert len(world.aborted) == 1


def test_a_job_that_goes_on_while_it_is_judged_is_not_ended(world: World) -> None:
    world.hangs()
    world.look(11.5, *pair())
    world.moves(12.1, *pair(moved_at=12.0))
    world.look(16.0, *pair(moved_at=16.0))
    assert not world.aborted
    assert "RECOVERED" in world.stream.getvalue()
    world.look(60.0, *pair(moved_at=16.0))
    world.look(61.0, *pair(moved_at=16.0))
    assert len(world.aborted) == 1, "it stands still again"


@pytest.mark.parametrize("let_go", [True, False])
def test_what_stopped_a_rank_from_outside_may_let_it_go_on_before_the_job_is_ended(world: World, let_go: bool) -> None:
    sure = Certainty.PROVEN
    world.verdict = Judgement(Status.HUNG, Stage.STEP, Verdict("rank-frozen", sure, "Rank 1 is stopped.", hang=sure))
    for now in (10.0, 30.0, 30.5):
        world.look(now, *pair())
    assert "Rank 1 is stopped." in world.stream.getvalue()
    world.look(30.0 + STOPPED_S / 2, *pair())
    if let_go:
        world.moves(31.0 + STOPPED_S / 2, *pair(moved_at=31.0 + STOPPED_S / 2))
    world.look(32.0 + STOPPED_S, *pair(moved_at=31.0 + STOPPED_S / 2) if let_go else pair())
    assert len(world.aborted) == (0 if let_go else 1)


@pytest.mark.parametrize(
    ("since", "ended"),
    [({}, 1), ({"moved_at": 60.0}, 0), ({"wrote_at": 60.0}, 0)],
    ids=["they stand", "they had moved since", "they had written since"],
)
def test_ranks_that_a_failed_one_has_left_behind_are_ended_once_they_have_stood(
    world: World, since: dict[str, float], ended: int
) -> None:
    """No launcher is there that would end them."""
    world.fails()
    first, second = pair()
    gone = replace(second, state="X", since=10.5)
    for now in (11.0, 13.0):
        world.look(now, first, gone)
    assert "Rank 1 died." in world.stream.getvalue()
    assert not world.aborted, "a launcher may yet end them"
    left = replace(first, **since)  # type: ignore[arg-type]
    world.look(11.0 + LEFT_BEHIND_S, left, gone)
    assert len(world.aborted) == ended
    world.look(61.0 + LEFT_BEHIND_S, left, gone)
    assert len(world.aborted) == 1, "they stand now"


def test_of_a_job_that_is_gone_nothing_is_left_to_end(world: World) -> None:
    world.fails()
    gone = [replace(each, state="X", since=10.5) for each in pair()]
    for now in (11.0, 13.0, 11.0 + 2 * LEFT_BEHIND_S):
        world.look(now, *gone)
    assert not world.aborted


def test_ranks_carry_stillness_and_patience_into_the_snapshot(world: World) -> None:
    world.look(11.5, *pair())
    rank = world.snapshots[0].ranks[1]
    assert (rank.still_s, rank.patience_s, rank.stalled) == (1.5, 20.0, False)
    assert rank.phases == (PhaseSpan(10.0, Phase.BACKWARD, 5),)
    assert world.snapshots[0].job.world_size == 2
    assert world.snapshots[0].last_progress_at == 10.0


def test_a_broken_board_is_named_in_the_evidence(world: World) -> None:
    world.roster.broken[Path("rank-5-1.board")] = "cut off"
    world.look(11.5, *pair())
    assert [note.detail for note in world.snapshots[0].notes] == ["rank-5-1.board: cut off"]


def test_movement_closes_the_incident_and_patience_grows(world: World) -> None:
    world.hangs()
    world.look(11.5, *pair())
    world.look(12.1, *pair(moved_at=12.0))
    assert "RECOVERED" not in world.stream.getvalue()  # not for a moment alone
    world.look(12.1 + MOVES_S, *pair(moved_at=12.0 + MOVES_S))
    assert world.watchdog.incidents.open is None
    assert world.watchdog.response.growth == 2.0
    assert "RECOVERED" in world.stream.getvalue()


def test_ranks_that_go_on_for_a_moment_to_their_end_have_not_recovered(world: World) -> None:
    """NCCL's calls are aborted by torch's watchdog, and hosts that waited for them run into what it does next."""
    world.hangs()
    world.look(11.5, *pair())
    world.look(12.1, *pair(moved_at=12.0))
    world.look(13.0, *(replace(each, state="X") for each in pair(moved_at=12.5)))
    world.look(12.1 + MOVES_S, *(replace(each, state="X") for each in pair(moved_at=12.5)))
    assert "RECOVERED" not in world.stream.getvalue()


@pytest.mark.parametrize(("code", "over"), [(0, True), (1, False)])
def test_a_job_that_moved_last_and_ends_well_has_recovered(world: World, code: int, *, over: bool) -> None:
    world.hangs()
    world.look(11.5, *pair())
    world.look(12.1, *pair(moved_at=12.0))
    world.now = 12.5
    world.watchdog.close(code)
    assert ("RECOVERED" in world.stream.getvalue()) is over


@pytest.mark.parametrize(("moved_at", "over"), [(12.0, True), (10.0, False)])
def test_ranks_that_go_on_and_end_well_between_two_looks_have_recovered(
    world: World, moved_at: float, *, over: bool
) -> None:
    world.hangs()
    world.look(11.5, *pair())
    world.roster.rank_states = tuple(replace(each, state="X") for each in pair(moved_at=moved_at))
    world.watchdog.close(0)
    assert ("RECOVERED" in world.stream.getvalue()) is over


def test_a_wait_without_ranks_is_over_when_the_first_ranks_come(world: World) -> None:
    """A node that comes late: the launchers wait in their rendezvous, and no rank is there yet."""
    world.hangs()
    world.watchdog.incidents.judged(world.verdict, Snapshot(JOB, 10.0, ()))
    world.look(12.1, *pair(moved_at=12.0))
    assert world.watchdog.incidents.open is None
    assert [each.status for each in world.watchdog.incidents.closed] == [Status.RECOVERED]


def test_ranks_that_go_down_after_the_hang_have_not_recovered(world: World) -> None:
    world.hangs()
    world.look(11.5, *pair())
    first, second = pair(moved_at=12.0)
    world.look(12.1, first, replace(second, state="X"))
    assert world.watchdog.incidents.open is not None
    assert "RECOVERED" not in world.stream.getvalue()


@pytest.mark.parametrize(("moves", "over"), [(0, True), (1, False)])
def test_a_hang_is_over_when_those_that_waited_move_and_not_the_culprit(world: World, moves: int, over: bool) -> None:
    """GIVEN rank 0 that waits for rank 1 WHEN rank 1 moves alone THEN rank 0 still waits."""
    world.hangs()
    world.verdict = replace(world.verdict, verdict=replace(world.verdict.verdict, victims=(0,)))
    world.look(11.5, *pair())
    ranks = list(pair())
    ranks[moves] = replace(ranks[moves], moved_at=12.0)
    world.moves(12.1, *ranks)
    assert ("RECOVERED" in world.stream.getvalue()) is over


@pytest.mark.parametrize(("steps", "over"), [(5, False), (6, True)])
def test_ranks_that_give_up_and_go_to_their_end_have_not_recovered(world: World, steps: int, *, over: bool) -> None:
    """GIVEN a hang WHEN a rank comes to the end of its program THEN only progress tells that it had gone on before."""
    world.hangs()
    world.look(11.5, *pair())
    progress = Progress(epoch=0, batch=5, step=5, optimizer_steps=steps, at=12.0)
    world.moves(12.1, *pair(moved_at=12.0, phase=Phase.MAIN_DONE, progress=progress))
    assert ("RECOVERED" in world.stream.getvalue()) is over


@pytest.mark.parametrize(("moved_at", "over"), [(11.4, False), (11.6, True)])
def test_a_rank_that_came_to_its_wait_while_the_evidence_was_taken_has_not_recovered(
    world: World, moved_at: float, *, over: bool
) -> None:
    """GIVEN evidence of 11.5 WHEN a board says later that its rank moved before that THEN it has seen that."""
    world.hangs()
    world.look(11.5, *pair())
    world.moves(12.1, *pair(moved_at=moved_at))
    assert ("RECOVERED" in world.stream.getvalue()) is over


def test_ranks_that_move_because_the_job_was_asked_to_end_have_not_recovered(world: World) -> None:
    """Lightning's handler of SIGTERM makes a call on each rank."""
    world.hangs()
    world.look(11.5, *pair())
    world.watchdog.dismiss()
    world.look(12.1, *pair(moved_at=12.0))
    assert world.watchdog.incidents.open is not None
    assert "RECOVERED" not in world.stream.getvalue()


def test_a_restarted_job_is_judged_anew(world: World) -> None:
    world.hangs()
    for now in (11.5, 12.0):
        world.look(now, *pair())
    world.look(13.0, rank_state(0, pid=77, moved_at=13.0), rank_state(1, pid=78, moved_at=13.0))
    assert world.watchdog.incidents.open is None
    assert len(world.watchdog.incidents.closed) == 1
    for now in (15.0, 15.5):
        world.look(now, rank_state(0, pid=77, moved_at=13.0, heads=blocked()), rank_state(1, pid=78, heads=blocked()))
    assert len(world.aborted) == 2


def test_where_patience_has_run_out_on_a_rank_that_works_only_the_first_words_are_said(world: World) -> None:
    world.look(31.0, *pair())
    world.look(45.0, *pair())
    said = world.stream.getvalue().splitlines()
    assert [line.startswith("hangwatch: no progress for 21 s: ") for line in said] == [True]


def test_a_job_that_came_down_is_judged_at_its_end(world: World) -> None:
    world.fails()
    raised = rank_state(1, state="X", exception=ExceptionFacts("ValueError", "bad", ()))
    world.roster.rank_states = (rank_state(0, state="X"), raised)
    world.watchdog.close(exit_code=1)
    assert "FAILED" in world.stream.getvalue()


def test_a_job_that_ended_well_is_not(world: World) -> None:
    world.roster.rank_states = (rank_state(0, state="X"), rank_state(1, state="X"))
    world.watchdog.close(exit_code=0)
    assert world.captures == 0


def test_a_job_that_was_asked_to_end_has_not_failed(world: World) -> None:
    world.fails()
    world.watchdog.dismiss()
    world.look(12.0, rank_state(0, state="X"), rank_state(1))
    world.watchdog.close(exit_code=-15)
    assert world.captures == 0


class Listener:
    """A link that counts what it is offered."""

    def __init__(self) -> None:
        self.offers: list[tuple[RankState, ...]] = []
        self.wanted: list[str] = []
        self.sent: list[str] = []
        self.heard = threading.Condition()

    def offer(self, rank_states: Sequence[RankState], now: float) -> None:
        with self.heard:
            self.offers.append(tuple(rank_states))
            self.heard.notify()

    def wait_for(self, count: int) -> bool:
        with self.heard:
            return self.heard.wait_for(lambda: len(self.offers) >= count, timeout=30.0)

    def captures_wanted(self) -> list[str]:
        wanted, self.wanted = self.wanted, []
        return wanted

    def capture(self, snapshot: Snapshot, request: str = "") -> None:
        self.sent.append(request)

    def incident(self, incident: Incident) -> None: ...
    def of_node(self, facts: object) -> None: ...
    def news(self, *ignored: object) -> None: ...
    def close(self, exit_code: int | None = None) -> None: ...


def test_the_dashboard_gets_the_ranks_state_while_evidence_is_taken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a capture and native stacks that take until the dashboard has heard twice, THEN they end."""
    monkeypatch.setattr(dashboard_exchange, "OFFER_EVERY", 0.01)
    listener = Listener()
    plain = world.watchdog.capture
    heard: list[bool] = []

    def slow(rank_states: Sequence[RankState], sleep: Callable[[float], bool]) -> Snapshot:
        heard.append(listener.wait_for(len(listener.offers) + 2))
        return plain(rank_states, sleep)

    def deepened(snapshot: Snapshot, pids: Sequence[int]) -> Snapshot:
        heard.append(listener.wait_for(len(listener.offers) + 2))
        return snapshot

    world.watchdog.dashboard = DashboardExchange(listener, world.clock)
    world.watchdog.capture, world.watchdog.response.deepen = slow, deepened
    world.hangs()
    world.look(11.5, *pair())
    assert heard == [True, True]
    assert all(len(offered) == 2 for offered in listener.offers)
    after = len(listener.offers)
    listener.wanted = ["c-1"]
    world.look(11.6, *pair())
    assert heard == [True, True, True]
    assert listener.sent == ["", "c-1"]
    assert len(listener.offers) >= after + 2
    assert not [thread for thread in threading.enumerate() if thread.name == "hangwatch-beat"]


def test_a_fault_of_our_own_costs_one_poll_and_is_said_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.hangs()
    world.roster.rank_states = pair()
    world.now = 11.5
    healthy = world.watchdog.capture
    faults = iter([KeyError("rank 7"), KeyError("rank 8")])

    def capture(rank_states: Sequence[RankState], sleep: Callable[[float], bool]) -> Snapshot:
        error = next(faults, None)
        if error is not None:
            world.now += 30.0  # until the next look is due
            raise error
        world.watchdog.stop.set()
        return healthy(rank_states, sleep)

    monkeypatch.setattr(world.watchdog, "capture", capture)
    world.watchdog.run()
    said = world.stream.getvalue()
    assert said.count("hangwatch: a poll failed (KeyError: 'rank 7'); the watch goes on") == 1
    assert "rank 8" not in said
    assert "HUNG, proven" in said


def test_plans_of_ranks_that_have_ended_are_compared_with_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a script that starts one job after another THEN the second one may have another world size."""
    asked: list[list[int | None]] = []

    def health(readings: Sequence[Reading]) -> tuple[()]:
        asked.append([each.identity.rank for each in readings])
        return ()

    monkeypatch.setattr(world.watchdog, "health", health)
    first, second = pair()
    world.look(11.0, replace(first, state="X"), second)
    assert asked == [[1]]


def test_a_comparison_that_fails_does_not_stop_the_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def health(readings: Sequence[object]) -> tuple[()]:
        raise ZeroDivisionError

    monkeypatch.setattr(world.watchdog, "health", health)
    world.hangs()
    world.look(11.5, *pair())
    assert "the comparison of steps failed (ZeroDivisionError: )" in world.stream.getvalue()
    assert "HUNG, proven" in world.stream.getvalue()


@pytest.mark.parametrize(
    ("now", "waiting", "pause"),
    [
        (10.3, True, 0.7),  # a second after the last movement they are worth a look
        (10.9, True, 0.25),  # and no round follows sooner than this
        (11.2, True, 1.0),  # they have been looked at
        (10.3, False, 1.0),  # a rank is at work
    ],
)
def test_a_round_comes_when_a_standstill_is_worth_a_look(
    now: float, waiting: bool, pause: float, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def paused(seconds: float) -> None:
        pauses.append(round(seconds, 3))
        world.watchdog.stop.set()

    monkeypatch.setattr(world.watchdog, "_pause", paused)
    world.now = now
    world.roster.rank_states = pair() if waiting else (pair()[0], rank_state(1))
    world.watchdog.run()
    assert pauses == [pause]


def test_the_loop_ends_when_no_rank_is_left(world: World) -> None:
    world.roster.rank_states = (rank_state(0, state="X", progress=Progress(step=9)),)
    world.watchdog.run(until_alone=True)
    assert not world.watchdog.stop.is_set()


def test_the_loop_ends_when_no_rank_ever_comes(world: World) -> None:
    world.watchdog.run(until_alone=True, empty_for=-1.0)
    assert world.captures == 0


def two_nodes(tmp_path: Path) -> tuple[World, World]:
    """Two watchdogs, of rank 0 and of rank 1 of one job, that share a report directory. Their sleep is the other's."""
    worlds = World(tmp_path), World(tmp_path)
    for world, name in zip(worlds, "ab", strict=True):
        world.watchdog.job = Job("torchrun-r17", "job", 2)
        others = Peers(str(tmp_path), name, say=world.watchdog.incidents.say, judge=world.judge, clock=time.time)
        world.watchdog.peer_exchange = PeerExchange(others, world.watchdog.response, world.clock)
    return worlds


def alone(rank: int, moved_at: float = 10.0) -> RankState:
    return rank_state(rank, moved_at=moved_at, heads=blocked(), environment={"LOCAL_WORLD_SIZE": "1"})


def test_nodes_that_share_a_directory_say_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a hang that node a notices WHEN it asks THEN b gives its evidence, a judges both, and b points to it."""
    a, b = two_nodes(tmp_path)
    a.hangs()

    def nap(seconds: float) -> bool:
        b.look(13.0, alone(1))
        return False

    monkeypatch.setattr(a.watchdog, "_sleep", nap)
    b.look(11.0, alone(1))
    a.look(13.0, alone(0))
    assert [rank.rank for rank in a.snapshots[-1].ranks] == [0, 1]
    assert a.watchdog.incidents.open is not None
    assert [rank.rank for rank in a.watchdog.incidents.open.ranks] == [0, 1]
    b.look(14.0, alone(1))
    assert b.watchdog.incidents.open == a.watchdog.incidents.open
    b.look(14.5, alone(1))
    assert len(b.aborted) == 1, "each node ends its own ranks"
    assert "judged by a with the evidence of all nodes" in b.stream.getvalue()
    assert len(list(tmp_path.glob("incident-*.json"))) == 1
    for now in (15.0, 15.0 + MOVES_S):
        b.look(now, alone(1, moved_at=now - 0.5))
        a.look(now, alone(0, moved_at=now - 0.5))
    assert "RECOVERED" in a.stream.getvalue()
    assert "RECOVERED" in b.stream.getvalue()
    (path,) = tmp_path.glob("incident-*.json")
    assert files.read(path).status is Status.RECOVERED


def test_a_node_that_has_all_ranks_asks_no_other(tmp_path: Path) -> None:
    a, _ = two_nodes(tmp_path)
    a.hangs()
    a.look(13.0, alone(0), alone(1))
    assert "HUNG, proven" in a.stream.getvalue()
    assert not list(tmp_path.glob("nodes-*"))


def test_a_job_that_comes_down_does_not_wait_long_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "ENDING_S", 0.1)
    a, _ = two_nodes(tmp_path)
    a.fails()
    a.roster.rank_states = (replace(alone(0), state="X"),)
    a.watchdog.close(exit_code=1)
    assert "FAILED" in a.stream.getvalue()
    assert "Nothing is known of rank 1" not in a.stream.getvalue(), "it is proven all the same"
    assert a.watchdog.incidents.open is not None
    assert "nothing of rank 1 came" in a.watchdog.incidents.open.capture[-1].detail


class Foretold:
    """The plans of all nodes, which foretell a hang that another node has perhaps acted upon."""

    def acted_upon(self, now: float) -> tuple[HealthWarning, ...]:
        return (HealthWarning("uneven-forecast", "Rank 1 has fewer batches: the job will hang.", (1,), fix="Deal."),)

    def compare(self, *ignored: object, **ways: object) -> tuple[HealthWarning, ...]:
        return ()

    def leave(self) -> None: ...


@pytest.mark.parametrize(
    ("on_forecast", "certainty", "failed"),
    [
        ("abort", Certainty.UNDETERMINED, False),
        ("abort", Certainty.PROVEN, True),
        ("report", Certainty.UNDETERMINED, True),
    ],
)
@pytest.mark.parametrize("closing", [False, True])
def test_ranks_that_fail_because_another_node_has_ended_its_own_have_not_failed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    closing: bool,
    on_forecast: str,
    certainty: Certainty,
    failed: bool,
) -> None:
    """GIVEN nodes that end the job for a forecast WHEN one is a moment earlier THEN the other reports no failure.

    What a rank has failed of by itself is told all the same.
    """
    monkeypatch.setattr(peers, "ENDING_S", 0.1)
    a, _ = two_nodes(tmp_path)
    a.watchdog.settings = replace(a.watchdog.settings, on_forecast=on_forecast)
    assert a.watchdog.peer_exchange is not None
    a.watchdog.peer_exchange._plans = Foretold()  # type: ignore[assignment]
    a.verdict = Judgement(Status.FAILED, Stage.STEP, Verdict("undetermined", certainty, "Rank 0 failed."))
    lost = replace(alone(0), state="X", reading=replace(alone(0).reading, exception=ExceptionFacts("E", "reset", ())))
    if closing:
        a.roster.rank_states = (lost,)
        a.watchdog.close(exit_code=1)
    else:
        a.look(12.0, lost)
    assert a.captures == 1 or not closing
    assert ("FAILED" in a.stream.getvalue()) is failed
    a.watchdog.finish_abort(10.0)
    assert a.watchdog.was_aborted(1) is not failed
    assert ("ended the job before it hangs" in a.stream.getvalue()) is not failed


def test_native_frames_are_only_asked_of_ranks_that_are_here(world: World) -> None:
    """GIVEN a culprit on another node whose pid is that of a rank here THEN that rank is left alone."""
    asked: list[Sequence[int]] = []

    def deepened(snapshot: Snapshot, pids: Sequence[int]) -> Snapshot:
        asked.append(pids)
        return snapshot

    world.watchdog.response.deepen = deepened
    everybody = tuple(RankEvidence(rank, pid=1000 + rank % 2) for rank in range(4))
    verdict = Verdict("rank-frozen", Certainty.PROVEN, ".", culprits=(Culprit(3, 1001),), victims=(0, 1, 2))
    judgement = Judgement(Status.HUNG, Stage.STEP, verdict)
    world.watchdog.response.act(judgement, Snapshot(JOB, 12.0, everybody), pair())
    assert asked == [[1000]]
    assert world.watchdog.incidents.open is not None
    assert [rank.rank for rank in world.watchdog.incidents.open.ranks] == [0, 1, 2, 3]
