"""Real dashboard processes and real links: killed, restarted, two at a time. What was acknowledged is there."""

from __future__ import annotations

import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import GroupHead
from hangwatch_agent.dashboard_client.link import Link
from hangwatch_agent.roster.rank_states import RankState
from tests.examples import uneven_steps, uneven_steps_snapshot
from tests.integration.dashboard.processes import Process, link_to, until
from tests.unit.agent.readings import rank_state

# About the service, whatever its database is: the others show that each kind keeps and gives back what came.
IN_ONE = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

GROUP = GroupHead("0", (0, 1, 2, 3), issued=12, completed=11)


def ranks(node: int, moved_at: float, blocked: bool = True) -> tuple[RankState, ...]:
    """The standings of node 0 or 1 of a job with two nodes of two ranks."""
    heads = (GROUP if blocked else replace(GROUP, completed=12),)
    return tuple(rank_state(rank, moved_at=moved_at, world_size=4, heads=heads) for rank in (2 * node, 2 * node + 1))


class Node:
    """A watchdog's side: offers its ranks every fifth of a second, and captures when asked."""

    def __init__(self, number: int, address: str, spool: Path) -> None:
        self.number, self.link = number, link_to(address, spool / str(number), f"node-{number}")
        self.moved_at = time.time()
        self.blocked = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            if not self.blocked:
                self.moved_at = time.time()
            self.link.offer(ranks(self.number, self.moved_at, self.blocked), time.time())
            for request in self.link.captures_wanted():
                whole = uneven_steps_snapshot()
                own = [rank for rank in whole.ranks if rank.rank // 2 == self.number]
                self.link.capture(replace(whole, ranks=tuple(own), nodes=()), request)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.link.close(0)


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(closing: ExitStack, database: str, port: int | None = None) -> Process:
    process = Process(database, port)
    closing.callback(process.stop)
    return process


def nodes(closing: ExitStack, tmp_path: Path, *addresses: str) -> list[Node]:
    made = [Node(number, address, tmp_path / "spool") for number, address in enumerate(addresses)]
    for node in made:
        closing.callback(node.close)
    return made


def the_job(process: Process) -> Any:
    (job,) = process.get("/jobs")["jobs"]
    return job


@IN_ONE
def test_a_hang_of_two_nodes_is_judged_within_ten_seconds(closing: ExitStack, database: str, tmp_path: Path) -> None:
    process = start(closing, database)
    pair = nodes(closing, tmp_path, process.address, process.address)
    until(lambda: the_job(process)["ranks"] == 4)
    hung_at = time.time()
    for node in pair:
        node.blocked = True
    until(lambda: process.get(f"/jobs/{the_job(process)['key']}")["judgement"])
    assert time.time() - hung_at < 10
    judged = process.get(f"/jobs/{the_job(process)['key']}")["judgement"]
    assert judged["verdict"]["cause"] == "uneven-steps"


def test_a_killed_dashboard_loses_nothing_and_goes_on(closing: ExitStack, database: str, tmp_path: Path) -> None:
    process = start(closing, database)
    (node,) = nodes(closing, tmp_path, process.address)
    until(lambda: the_job(process)["ranks"] == 2)
    key = the_job(process)["key"]
    node.link.incident(replace(uneven_steps(), id="before"))
    until(lambda: process.get("/incidents")["total"] == 1)
    process.kill()
    node.link.incident(replace(uneven_steps(), id="before", updated_at=time.time()))
    time.sleep(1.0)
    again = start(closing, database, process.port)
    assert again.get("/incidents")["incidents"][0]["id"] == "before"
    seen_at = the_job(again)["last_seen_at"]
    until(lambda: the_job(again)["last_seen_at"] > seen_at)
    assert the_job(again)["key"] == key, "it is the same run of the job"
    assert node.link.dropped == 0


@IN_ONE
def test_an_outage_in_the_middle_of_an_incident(closing: ExitStack, database: str, tmp_path: Path) -> None:
    process = start(closing, database)
    pair = nodes(closing, tmp_path, process.address, process.address)
    until(lambda: the_job(process)["ranks"] == 4)
    process.kill()
    for node in pair:
        node.blocked = True
    pair[0].link.incident(replace(uneven_steps(), id="local"))
    time.sleep(1.0)
    again = start(closing, database, process.port)
    (incident,) = until(lambda: again.get("/incidents")["incidents"])
    assert incident["cause"] == "uneven-steps"  # the node's own, or what the dashboard judged just before it came
    until(lambda: (again.get(f"/jobs/{the_job(again)['key']}")["capture"] or {}).get("state") == "done")
    time.sleep(2.0)  # nothing more comes
    (kept,) = again.get("/incidents")["incidents"]
    assert kept["id"] == incident["id"]
    assert pair[0].link.dropped == 0


def test_two_dashboards_on_one_postgresql_are_one(closing: ExitStack, postgres_database: str, tmp_path: Path) -> None:
    first, second = start(closing, postgres_database), start(closing, postgres_database)
    stream = closing.enter_context(urllib.request.urlopen(f"{second.address}/api/v1/events", timeout=60))
    pair = nodes(closing, tmp_path, first.address, second.address)
    for process in (first, second):
        wait_for_ranks(process)
    key = the_job(first)["key"]
    assert the_job(second)["key"] == key
    for node in pair:
        node.blocked = True
    for process in (first, second):
        wait_for_judgement(process, key)
    opened = until(lambda: first.get(f"/jobs/{key}")["open_incident"])
    until(lambda: second.get(f"/jobs/{key}")["open_incident"] == opened)
    assert event(stream, "incident")["incident"]["id"] == opened
    assert [process.get("/incidents")["total"] for process in (first, second)] == [1, 1]


def wait_for_ranks(process: Process) -> None:
    until(lambda: the_job(process)["ranks"] == 4)


def wait_for_judgement(process: Process, key: str) -> None:
    until(lambda: process.get(f"/jobs/{key}")["judgement"])
    until(lambda: process.get(f"/jobs/{key}")["capture"]["state"] == "done")


def event(stream: Any, wanted: str) -> Any:
    name = ""
    for line in stream:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text[7:]
        elif text.startswith("data: ") and name == wanted:
            return json.loads(text[6:])
    raise AssertionError(f"no {wanted} came")


def test_one_of_two_dashboards_is_killed_and_the_other_judges(
    closing: ExitStack, postgres_database: str, tmp_path: Path
) -> None:
    first, second = start(closing, postgres_database), start(closing, postgres_database)
    pair = nodes(closing, tmp_path, second.address, second.address)
    until(lambda: the_job(second)["ranks"] == 4)
    until(lambda: the_job(first)["ranks"] == 4)
    first.kill()  # whichever of them held the lease
    for node in pair:
        node.blocked = True
    judgement = until(lambda: second.get(f"/jobs/{the_job(second)['key']}")["judgement"])
    assert judgement["status"] == "hung"


def test_a_stream_tells_of_jobs_that_there_are_not(closing: ExitStack, database: str) -> None:
    """Tabs share a stream: an address of no job among them must not end it for the others."""
    process = start(closing, database)
    for query in ("job=none", "job=none&job=neither"):
        stream = closing.enter_context(urllib.request.urlopen(f"{process.address}/api/v1/events?{query}", timeout=60))
        assert event(stream, "hello")["stale_after_s"] == 5
        assert event(stream, "gone")["job"] in ("none", "neither")


def test_a_dashboard_ends_at_once_with_streams_open(closing: ExitStack, database: str, tmp_path: Path) -> None:
    """It ends its streams, and does not wait until uvicorn has lost patience with them."""
    log = closing.enter_context((tmp_path / "log").open("w+"))
    process = Process(database, log=log)
    closing.callback(process.stop)
    stream = closing.enter_context(urllib.request.urlopen(f"{process.address}/api/v1/events", timeout=60))
    assert event(stream, "hello")["stale_after_s"] == 5
    process.tell_to_end()
    for _ in stream:
        pass  # up to its end
    assert process.stop() == -signal.SIGTERM, "it ends as it was told to, after having let go of everything"
    log.seek(0)
    assert "timeout graceful shutdown exceeded" not in log.read()


def test_the_link_is_a_link_of_the_watchdog(tmp_path: Path) -> None:
    """The watchdog's own protocol of a link is what this one is."""
    from hangwatch_agent.watchdog import dashboard_exchange

    link: Link = link_to("http://127.0.0.1:9", tmp_path, "node-a")
    as_the_watchdog_knows_it: dashboard_exchange.Link = link  # held by mypy
    wanted = [name for name in vars(dashboard_exchange.Link) if not name.startswith("_")]
    assert wanted
    assert all(hasattr(as_the_watchdog_knows_it, name) for name in wanted)
    link.close(0, timeout=0.1)
