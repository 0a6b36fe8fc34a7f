"""A judgement is of a moment: movement and a clean end clear it, on the page, in the API and in /metrics."""

from __future__ import annotations

import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch.model import Certainty, Judgement, Phase, Stage, Status, Verdict
from hangwatch_dashboard.replica import Replica
from hangwatch_dashboard.store.rows import RunRow
from tests.examples import lingering, uneven_steps, uneven_steps_judgement, uneven_steps_snapshot
from tests.integration.dashboard.conftest import Judge
from tests.integration.dashboard.processes import Process, link_to, until
from tests.integration.dashboard.test_judgement import Pair, answer, open_incident, pair, part_of
from tests.nodes import JSON, Dashboard, FakeNode
from tests.unit.agent.readings import rank_state

__all__ = ["pair"]
UNKNOWN = Verdict("undetermined", Certainty.UNDETERMINED, "waiting; the cause is not known")
WAITING = Judgement(Status.WAITING, Stage.STEP, UNKNOWN)


def metric(dashboard: Dashboard, name: str) -> list[float]:
    text = dashboard.client.get("/metrics").text
    return [float(value) for value in re.findall(rf"^{name}{{.*}} (\S+)$", text, re.MULTILINE)]


def looked_at(dashboard: Dashboard, node: FakeNode) -> None:
    """A person asks for evidence, and the node gives it."""
    dashboard.client.post(f"/api/v1/jobs/{dashboard.job['key']}/captures", headers=JSON)
    commands = dashboard.until(lambda: dashboard.send(node)["commands"])
    assert dashboard.post("capture", node.capture(part_of(node), commands[0]["request"])).status_code == 200


def is_quiet(dashboard: Dashboard) -> bool:
    job = dashboard.job
    return job["judgement"] is None and job["open_incident"] is None and "waiting" not in job["state_text"]


@pytest.mark.parametrize("still_s", [0.0, 3.0])
def test_a_job_on_one_node_that_moves_waits_for_nothing(dashboard: Dashboard, judge: Judge, still_s: float) -> None:
    judge.says = WAITING
    node = FakeNode(ranks=(0, 1, 2, 3), still_s=still_s, blocked=still_s > 0)
    dashboard.send(node)
    looked_at(dashboard, node)
    if still_s:
        dashboard.until(lambda: dashboard.job["state"] == "waiting")
        assert metric(dashboard, "hangwatch_job_waiting") == [1.0]
    # Not before: of a judgement that is on its way, nothing could be seen yet.
    dashboard.until(lambda: (dashboard.job["capture"] or {}).get("state") == "done")
    node.step, node.still_s, node.blocked = 11, 0.0, False
    dashboard.send(node)
    dashboard.until(lambda: is_quiet(dashboard))
    assert dashboard.job["state"] == "running"
    assert metric(dashboard, "hangwatch_job_waiting") == metric(dashboard, "hangwatch_job_stalled") == [0.0]


def ended(node: FakeNode) -> None:
    node.phase, node.closing, node.exit_code = Phase.DESTROYED, True, 0


def test_no_rank_waits_in_a_job_that_is_over(dashboard: Dashboard, judge: Judge) -> None:
    judge.says = WAITING
    node = FakeNode(ranks=(0, 1, 2, 3), still_s=3.0, blocked=True)
    dashboard.send(node)
    looked_at(dashboard, node)
    dashboard.until(lambda: dashboard.job["state"] == "waiting")
    node.closing, node.exit_code = True, 1
    dashboard.send(node)
    dashboard.until(lambda: is_quiet(dashboard))
    assert dashboard.job["state"] == "failed"


def test_a_clean_end_clears_what_was_judged_of_all_nodes(dashboard: Dashboard, pair: Pair) -> None:
    id = open_incident(dashboard, pair)["id"]
    for node in pair:
        ended(node)
        dashboard.send(node)
    dashboard.until(lambda: is_quiet(dashboard))
    (found,) = dashboard.until(lambda: dashboard.get("/incidents?status=recovered")["incidents"])
    assert (found["id"], dashboard.job["state"]) == (id, "finished")


def test_a_clean_end_clears_what_a_watchdog_has_judged(dashboard: Dashboard) -> None:
    node = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(node)
    dashboard.post("incident", node.incident(lingering()))
    assert dashboard.job["state"] == "lingering"
    ended(node)
    dashboard.send(node)
    dashboard.until(lambda: is_quiet(dashboard))
    dashboard.until(lambda: dashboard.get(f"/incidents/{lingering().id}")["status"] == "recovered")
    late = replace(lingering(), updated_at=lingering().updated_at + 1)
    dashboard.post("incident", node.incident(late))
    time.sleep(0.5)
    assert is_quiet(dashboard), "what comes late, out of a spool, is over too"
    assert dashboard.get(f"/incidents/{late.id}")["status"] == "recovered"


@pytest.mark.parametrize("code", [1, 75])
def test_a_job_that_fails_keeps_its_verdict(dashboard: Dashboard, code: int) -> None:
    node = FakeNode(ranks=(0, 1, 2, 3), still_s=3.0, blocked=True)
    dashboard.send(node)
    dashboard.post("incident", node.incident(uneven_steps()))
    node.closing, node.exit_code = True, code
    dashboard.send(node)
    time.sleep(1.0)
    assert dashboard.job["judgement"]["verdict"]["cause"] == "uneven-steps"
    assert dashboard.get("/incidents")["incidents"][0]["status"] == "hung"
    # AND the incident has ended with the job
    (closed,) = dashboard.until(
        lambda: [each for each in dashboard.get("/incidents")["incidents"] if each["closed_at"] is not None]
    )
    assert (closed["status"], closed["judged_by"]) == ("hung", "node-a")
    job = dashboard.job
    assert (job["open_incident"], job["closed_at"]) == (None, job["last_seen_at"])
    assert dashboard.get(f"/incidents/{closed['id']}")["closed_at"] == closed["closed_at"]


def test_a_watchdog_that_goes_without_an_exit_code_clears_nothing_while_ranks_hang(dashboard: Dashboard) -> None:
    node = FakeNode(ranks=(0, 1, 2, 3), still_s=3.0, blocked=True)
    dashboard.send(node)
    dashboard.post("incident", node.incident(uneven_steps()))
    node.closing = True
    dashboard.send(node)
    time.sleep(1.0)
    assert dashboard.job["judgement"] is not None


def test_the_proof_of_a_hang_does_not_end_the_search_for_its_cause(
    dashboard: Dashboard, pair: Pair, judge: Judge
) -> None:
    sure = uneven_steps_judgement()
    judge.says = replace(sure, verdict=replace(sure.verdict, certainty=Certainty.UNDETERMINED))
    known = open_incident(dashboard, pair)
    assert (known["hang"], known["certainty"]) == ("proven", "undetermined")
    judge.says = replace(sure, verdict=replace(sure.verdict, hang=Certainty.LIKELY))
    answer(dashboard, *pair)
    found = dashboard.until(
        lambda: (one := dashboard.get("/incidents")["incidents"][0])["certainty"] == "proven" and one
    )
    assert (found["id"], found["hang"]) == (known["id"], "proven")


class Moving:
    """A watchdog's side of a healthy job on one node, over a real link: it steps, and gives evidence when asked."""

    def __init__(self, address: str, spool: Path) -> None:
        self.link, self.given = link_to(address, spool, "node-0"), 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            now = time.time()
            self.link.offer(tuple(rank_state(rank, moved_at=now, world_size=2) for rank in (0, 1)), now)
            for request in self.link.captures_wanted():
                whole = uneven_steps_snapshot()
                own = tuple(replace(rank, still_s=5.0) for rank in whole.ranks if rank.rank < 2)
                self.link.capture(replace(whole, ranks=own, nodes=()), request)
                self.given += 1

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.link.close(0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Process]:
    with ExitStack() as stack:
        process = Process(str(tmp_path / "dashboard.db"))
        stack.callback(process.stop)
        yield process


def test_a_healthy_job_is_not_stuck_on_what_was_judged_once(served: Process, tmp_path: Path) -> None:
    """GIVEN a real dashboard and a healthy job WHEN evidence is taken THEN no judgement stays, nor after its end."""
    node = Moving(served.address, tmp_path / "spool")
    try:
        key = until(lambda: (one := served.get("/jobs")["jobs"][0])["ranks"] == 2 and one["key"])
        address = f"{served.address}/api/v1/jobs/{key}/captures"
        request = urllib.request.Request(address, headers=JSON, method="POST")
        urllib.request.urlopen(request, timeout=60).close()
        until(lambda: (served.get(f"/jobs/{key}")["capture"] or {}).get("state") == "done")
        job = until(lambda: (one := served.get(f"/jobs/{key}"))["judgement"] is None and one)
        assert (job["state"], job["open_incident"], node.given) == ("running", None, 1)
    finally:
        node.close()
    job = until(lambda: (one := served.get(f"/jobs/{key}"))["state"] == "finished" and one)
    assert (job["judgement"], job["open_incident"]) == (None, None)
    with urllib.request.urlopen(f"{served.address}/metrics", timeout=60) as answer:
        assert not re.search(r"^hangwatch_job_(waiting|stalled)\{.*\} 1$", answer.read().decode(), re.MULTILINE)


def test_a_row_that_was_read_before_an_incident_does_not_clear_it(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a look at what other dashboards have stored WHEN a verdict comes between the look and its result
    THEN the verdict stays: the row is older than it."""
    node = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(node)
    service, portal = dashboard.service, dashboard.client.portal
    assert portal is not None
    read, slow = service.store.runs_changed_since, threading.Lock()

    def slowly(since: float) -> list[RunRow]:
        rows = read(since)
        if slow.acquire(blocking=False):  # once: the service follows, too
            assert dashboard.post("incident", node.incident(lingering())).status_code == 200
        return rows

    follower = Replica(service.store, service.registry, service.captures, service.hub, service.clock)
    with monkeypatch.context() as patch:
        patch.setattr(service.store, "runs_changed_since", slowly)
        portal.call(follower.catch_up)
    assert dashboard.job["open_incident"] == lingering().id
    portal.call(follower.catch_up)
    assert dashboard.job["open_incident"] == lingering().id
