"""Judgement across nodes: who is asked when, what is shown to the diagnosis, and what becomes of its answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from hangwatch.model import (
    Certainty,
    Job,
    Judgement,
    NodeCapture,
    NodeFacts,
    Phase,
    RankEvidence,
    Reading,
    Snapshot,
    Stage,
    Status,
    Verdict,
)
from hangwatch.wire import codec
from hangwatch.wire.compact import expanded
from hangwatch_dashboard import captures, live, live_node
from hangwatch_dashboard.clocks import ClockEstimate
from hangwatch_dashboard.merge import remainder
from tests.examples import uneven_steps, uneven_steps_judgement, uneven_steps_snapshot
from tests.integration.dashboard.conftest import SILENT_S, Clock, Judge
from tests.nodes import JSON, Dashboard, FakeNode

Pair = tuple[FakeNode, FakeNode]


@pytest.fixture
def pair() -> Pair:
    return FakeNode(), FakeNode("node-b", (2, 3))


def hang(pair: Pair) -> None:
    for node in pair:
        node.still_s, node.blocked = 3.0, True


def part_of(node: FakeNode) -> Snapshot:
    """The evidence that a node would take of the example's job."""
    whole = uneven_steps_snapshot()
    ranks = tuple(rank for rank in whole.ranks if rank.rank in node.ranks)
    return replace(whole, ranks=ranks, nodes=(NodeFacts(host=node.name, ranks=node.ranks),))


def asked(dashboard: Dashboard, node: FakeNode) -> str:
    """The request that the node is told of with the answer to its next batches."""
    commands: list[dict[str, str]] = dashboard.until(lambda: dashboard.send(node)["commands"])
    assert [command["kind"] for command in commands] == ["capture"]
    return commands[0]["request"]


def answer(dashboard: Dashboard, *nodes: FakeNode) -> None:
    """All nodes do what they are asked."""
    for node in nodes:
        request = asked(dashboard, node)
        assert dashboard.post("capture", node.capture(part_of(node), request)).status_code == 200


def open_incident(dashboard: Dashboard, pair: Pair) -> dict[str, Any]:
    for node in pair:
        dashboard.send(node)
    hang(pair)
    answer(dashboard, *pair)
    (found,) = dashboard.until(lambda: dashboard.get("/incidents")["incidents"])
    incident: dict[str, Any] = found
    dashboard.until(lambda: dashboard.job["open_incident"] == incident["id"])  # it is stored before it is shown
    return incident


def test_a_stall_makes_all_nodes_capture_and_one_incident(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    found = open_incident(dashboard, pair)
    assert (found["cause"], found["status"], found["culprits"]) == ("uneven-steps", "hung", [3])
    (seen,) = judge.seen
    assert [rank.rank for rank in seen.ranks] == [0, 1, 2, 3]
    assert {facts.host for facts in seen.nodes} == {"node-a", "node-b"}
    job = dashboard.job
    assert (job["state"], job["open_incident"], job["capture"]["state"]) == ("hung", found["id"], "done")
    assert job["state_text"].startswith("hung: ")
    whole = dashboard.get(f"/incidents/{found['id']}")
    assert (whole["schema"], len(whole["ranks"]), len(whole["stack_tree"]) > 0) == ("hangwatch.incident/2", 4, True)


def test_downloads_of_an_incident(dashboard: Dashboard, pair: Pair) -> None:
    id = open_incident(dashboard, pair)["id"]
    for ending, kind in (
        (".html", "text/html"),
        (".json", "application/json"),
        (".speedscope.json", "application/json"),
    ):
        got = dashboard.client.get(f"/api/v1/incidents/{id}{ending}")
        assert got.status_code == 200
        assert got.headers["content-type"].startswith(kind)
        assert got.headers["content-disposition"] == f'attachment; filename="incident-{id}{ending}"'
    assert dashboard.client.get("/api/v1/incidents/other.html").status_code == 404


def test_a_deleted_incident_is_gone(dashboard: Dashboard, pair: Pair) -> None:
    id = open_incident(dashboard, pair)["id"]
    assert dashboard.client.delete(f"/api/v1/incidents/{id}").status_code == 204
    assert dashboard.get("/incidents")["total"] == 0
    assert dashboard.job["incident"] is None


def test_moving_ranks_close_the_incident(dashboard: Dashboard, pair: Pair) -> None:
    id = open_incident(dashboard, pair)["id"]
    for node in pair:
        node.step, node.still_s, node.blocked = 11, 0.0, False
        dashboard.send(node)
    found = dashboard.until(lambda: dashboard.get("/incidents?status=recovered")["incidents"])
    assert [(one["id"], one["status"]) for one in found] == [(id, "recovered")]
    assert dashboard.get(f"/incidents/{id}")["closed_at"] is not None
    assert dashboard.until(lambda: dashboard.job["state"] == "running"), "it is stored before it is shown"


def test_a_job_that_only_waits_has_no_incident(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    judge.says = replace(uneven_steps_judgement(), status=Status.WAITING)
    for node in pair:
        dashboard.send(node)
    hang(pair)
    answer(dashboard, *pair)
    dashboard.until(lambda: dashboard.job["state"] == "waiting")
    assert dashboard.get("/incidents")["total"] == 0
    for node in pair:
        node.step, node.still_s, node.blocked = 11, 0.0, False
        dashboard.send(node)
    dashboard.until(lambda: dashboard.job["state"] == "running")


def test_a_surer_verdict_replaces_the_first_one_under_the_same_name(
    dashboard: Dashboard, pair: Pair, judge: Judge
) -> None:
    sure = judge.says
    judge.says = verdict(Certainty.UNDETERMINED)
    first = open_incident(dashboard, pair)
    judge.says = sure
    assert dashboard.client.post(f"/api/v1/jobs/{dashboard.job['key']}/captures", headers=JSON).status_code == 202
    answer(dashboard, *pair)
    dashboard.until(lambda: dashboard.get("/incidents")["incidents"][0]["certainty"] == "proven")
    (found,) = dashboard.get("/incidents")["incidents"]
    assert (found["id"], found["cause"], found["opened_at"]) == (first["id"], "uneven-steps", first["opened_at"])
    judge.says = verdict(Certainty.UNDETERMINED)
    dashboard.until(lambda: dashboard.job["capture"]["state"] == "done")  # else it is that one which is meant
    dashboard.client.post(f"/api/v1/jobs/{dashboard.job['key']}/captures", headers=JSON)
    answer(dashboard, *pair)
    dashboard.until(lambda: len(judge.seen) == 3)
    assert dashboard.get("/incidents")["incidents"][0]["certainty"] == "proven"


def verdict(certainty: Certainty) -> Judgement:
    return Judgement(Status.HUNG, Stage.STEP, Verdict("undetermined", certainty, "Nobody knows."))


def test_a_node_that_falls_silent_is_evidence(dashboard: Dashboard, pair: Pair, judge: Judge, clock: Clock) -> None:
    for node in pair:
        dashboard.send(node)
    clock.ahead_s += 0.75 * SILENT_S
    dashboard.send(pair[0])  # only this one goes on sending
    clock.ahead_s += 0.75 * SILENT_S
    request = asked(dashboard, pair[0])
    dashboard.post("capture", pair[0].capture(part_of(pair[0]), request))
    (seen,) = dashboard.until(lambda: judge.seen)
    facts = {node.host: node for node in seen.nodes}
    assert facts["node-b"].silent_s >= SILENT_S
    assert facts["node-a"].silent_s == 0.0
    assert [rank.rank for rank in seen.ranks] == [0, 1, 2, 3]
    silent = seen.ranks[3]
    assert (silent.host, silent.stacks) == ("node-b", ())
    assert silent.reading is not None
    assert silent.reading.progress.step == 10
    assert silent.reading.heads[0].members == (0, 1, 2, 3)
    assert any("node-b did not answer" in note.detail for note in seen.notes)


def test_a_node_that_does_not_answer_is_not_waited_for_for_ever(
    dashboard: Dashboard, pair: Pair, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "DEADLINE_S", 1.0)
    for node in pair:
        dashboard.send(node)
    hang(pair)
    answer(dashboard, pair[0])
    dashboard.until(lambda: dashboard.send(pair[1]) and judge.seen)
    assert [rank.rank for rank in judge.seen[0].ranks] == [0, 1, 2, 3]


def test_clocks_of_nodes_are_corrected(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    pair[1].clock_offset = 100.0
    for node in pair:
        dashboard.send(node)
    hang(pair)
    moment = time.time()
    for node in pair:
        request = asked(dashboard, node)
        at = moment + node.clock_offset
        ranks = tuple(RankEvidence(rank, reading=reading(rank, node, at)) for rank in node.ranks)
        dashboard.post("capture", node.capture(Snapshot(JOB, at, ranks, nodes=(NodeFacts(node.name),)), request))
    (seen,) = dashboard.until(lambda: judge.seen)
    taken = [rank.reading.taken_at for rank in seen.ranks if rank.reading]
    assert max(taken) - min(taken) < 1.0
    assert abs({facts.host: facts.clock_offset_s for facts in seen.nodes}["node-b"] - 100.0) < 1.0


JOB = Job("10.0.0.1:29500", "resnet", 4)


def reading(rank: int, node: FakeNode, at: float) -> Reading:
    identity = node.greeting(at).ranks[rank % 2]
    return Reading(identity, at)


def test_a_job_on_one_node_is_judged_by_its_watchdog(dashboard: Dashboard, judge: Judge) -> None:
    node = FakeNode(ranks=(0, 1, 2, 3), still_s=10.0, blocked=True)
    dashboard.send(node)
    time.sleep(1.2)
    assert dashboard.send(node)["commands"] == []
    kept = dashboard.post("incident", node.incident(uneven_steps())).json()
    assert kept == {"accepted": True, "incident": "3f2a"}
    assert judge.seen == []
    assert dashboard.job["state"] == "hung"
    assert dashboard.get("/incidents/3f2a")["verdict"]["cause"] == "uneven-steps"
    ended = replace(uneven_steps(), status=Status.RECOVERED, closed_at=uneven_steps().opened_at + 60)
    dashboard.post("incident", node.incident(ended))
    assert [one["status"] for one in dashboard.get("/incidents")["incidents"]] == ["recovered"]
    assert dashboard.job["open_incident"] is None


def test_incidents_of_two_nodes_are_one(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    for node in pair:
        dashboard.send(node)
    hang(pair)
    local = replace(uneven_steps(), verdict=verdict(Certainty.LIKELY).verdict)
    dashboard.post("incident", pair[0].incident(replace(local, id="aaaa")))
    dashboard.post("incident", pair[1].incident(replace(local, id="bbbb")))
    assert [one["id"] for one in dashboard.get("/incidents")["incidents"]] == ["aaaa"]
    answer(dashboard, *pair)
    dashboard.until(lambda: judge.seen)
    dashboard.until(lambda: dashboard.get("/incidents")["incidents"][0]["cause"] == "uneven-steps")
    assert dashboard.get("/incidents")["total"] == 1


def test_what_one_node_has_proven_is_looked_at_by_all_of_them_once(dashboard: Dashboard, pair: Pair) -> None:
    for node in pair:
        dashboard.send(node)
    assert dashboard.post("incident", pair[0].incident(replace(uneven_steps(), id="aaaa"))).status_code == 200
    (alone,) = dashboard.get("/incidents")["incidents"]
    assert (alone["judged_by"], alone["certainty"]) == ("node-a", "proven")
    hang(pair)
    answer(dashboard, *pair)
    dashboard.until(lambda: dashboard.get("/incidents")["incidents"][0]["judged_by"] == "")
    assert [dashboard.send(node)["commands"] for node in pair] == [[], []]


def test_a_node_that_looks_by_itself_makes_all_look(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    for node in pair:
        dashboard.send(node)
    assert dashboard.post("capture", pair[1].capture(part_of(pair[1]), "")).status_code == 200
    answer(dashboard, pair[0])
    dashboard.until(lambda: judge.seen)
    assert [rank.rank for rank in judge.seen[0].ranks] == [0, 1, 2, 3]


def test_a_node_that_looks_by_itself_at_a_proven_hang_makes_no_other_node_look(
    dashboard: Dashboard, pair: Pair
) -> None:
    open_incident(dashboard, pair)
    known = dashboard.until(lambda: (one := dashboard.job["capture"])["state"] == "done" and one)
    assert dashboard.post("capture", pair[1].capture(part_of(pair[1]), "")).status_code == 200
    assert dashboard.job["capture"] == known


def test_an_old_incident_of_a_node_is_not_a_second_one(dashboard: Dashboard, pair: Pair) -> None:
    known = open_incident(dashboard, pair)
    for node in pair:
        node.step, node.still_s, node.blocked = 11, 0.0, False
        dashboard.send(node)
    dashboard.until(lambda: dashboard.job["open_incident"] is None)
    late = replace(uneven_steps(), id="late", opened_at=known["opened_at"] + 5)
    assert dashboard.post("incident", pair[0].incident(late)).json()["incident"] is None
    assert dashboard.get("/incidents")["total"] == 1


def test_a_capture_on_demand(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    judge.says = replace(uneven_steps_judgement(), status=Status.WAITING)
    for node in pair:
        dashboard.send(node)
    made = dashboard.client.post(f"/api/v1/jobs/{dashboard.job['key']}/captures", headers=JSON).json()
    assert (made["state"], made["nodes_asked"], made["nodes_answered"]) == ("asked", ["node-a", "node-b"], [])
    answer(dashboard, *pair)
    done = dashboard.until(lambda: (one := dashboard.get(f"/captures/{made['id']}"))["state"] == "done" and one)
    assert done["document"]["verdict"]["cause"] == "uneven-steps"
    assert dashboard.client.get(f"/api/v1/captures/{made['id']}.speedscope.json").status_code == 200
    assert dashboard.get("/incidents")["total"] == 0


def test_evidence_that_upsets_the_diagnosis_stops_nothing(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    def upset(snapshot: Snapshot) -> Judgement:
        raise RecursionError("deep")

    dashboard.service.captures._diagnose = upset
    for node in pair:
        dashboard.send(node)
    hang(pair)
    answer(dashboard, *pair)
    path = f"/jobs/{dashboard.job['key']}/captures"
    dashboard.until(lambda: "failed" in [one["state"] for one in dashboard.get(path)["captures"]])
    assert dashboard.send(pair[0])["accepted"] > 0


def test_a_run_is_as_it_was_after_a_restart(dashboard: Dashboard, pair: Pair) -> None:
    found = open_incident(dashboard, pair)
    before = dashboard.job
    portal = dashboard.client.portal
    assert portal is not None
    for key in list(dashboard.service.registry.jobs):
        portal.call(dashboard.service.registry.forget, key)
    after = dashboard.job
    for name in ("key", "state", "open_incident", "judgement", "ranks", "groups", "world_size"):
        assert after[name] == before[name], name
    for node in pair:
        assert dashboard.send(node)["accepted"] >= 0, "no hello is needed"
    assert dashboard.job["open_incident"] == found["id"]


def events_of(dashboard: Dashboard, job: str, act: Callable[[], None]) -> list[tuple[str, Any]]:
    """What a stream gives from its start until `act` is over and the job is shown as hung."""
    service = dashboard.service
    portal = dashboard.client.portal
    assert portal is not None
    got: list[tuple[str, Any]] = []

    async def read() -> None:
        from hangwatch_dashboard.routes.events import first_events

        found = await service.registry.load(job) if job else None
        async for chunk in service.hub.stream({job}, first_events(service, [found] if found else []), dict):
            name, _, data = chunk.decode().rstrip("\n").split("\n", 2)
            got.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))

    task = portal.start_task_soon(read)
    dashboard.until(lambda: got)
    act()
    dashboard.until(lambda: shown_as_hung(list(got)))
    portal.call(service.hub.close)
    task.result(60)
    return got


def shown_as_hung(got: list[tuple[str, Any]]) -> bool:
    """Whether a stream has said all that there is to say of a hang."""
    newest = dict(got)
    return "incident" in newest and newest["job"]["state"] == "hung" and newest["capture"]["state"] == "done"


def test_the_live_stream_tells_everything(dashboard: Dashboard, pair: Pair) -> None:
    for node in pair:
        dashboard.send(node)
    key = dashboard.job["key"]
    got = events_of(dashboard, key, lambda: void(open_incident(dashboard, pair)))
    names = [name for name, _ in got]
    assert names[:5] == ["hello", "jobs", "job", "ranks", "collectives"]
    assert {"capture", "incident", "job", "ranks"} <= set(names[5:])
    (opened,) = [data for name, data in got if name == "incident"]
    assert (opened["change"], opened["incident"]["job"]) == ("opened", key)
    states = [data["state"] for name, data in got if name == "capture"]
    assert states[:4] == ["asked", "asked", "asked", "done"]
    last = [data for name, data in got if name == "job"][-1]
    assert (last["state"], last["judgement"]["status"]) == ("hung", "hung")


def test_a_stream_reports_a_silent_node_that_sends_again(dashboard: Dashboard, pair: Pair, clock: Clock) -> None:
    for node in pair:
        dashboard.send(node)
    clock.ahead_s = 0.75 * SILENT_S
    dashboard.send(pair[0])
    clock.ahead_s = 1.5 * SILENT_S
    service, key = dashboard.service, dashboard.job["key"]
    portal = dashboard.client.portal
    assert portal is not None
    silent: list[int] = []

    async def read() -> None:
        async for chunk in service.hub.stream({key}, [], dict):
            name, _, data = chunk.decode().rstrip("\n").split("\n", 2)
            if name == "event: job":
                silent.append(json.loads(data.removeprefix("data: "))["nodes_silent"])

    task = portal.start_task_soon(read)
    dashboard.until(lambda: service.hub.readers)
    dashboard.send(pair[0])
    dashboard.until(lambda: 1 in silent)
    dashboard.send(pair[1])
    dashboard.until(lambda: silent[-1] == 0)
    portal.call(service.hub.close)
    task.result(60)


def void(_ignored: object) -> None:
    pass


def test_silence_is_a_state(dashboard: Dashboard, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LOST_AFTER_S", 0.3)
    dashboard.send(pair[0])
    assert dashboard.until(lambda: dashboard.job["state"] == "silent")


def test_no_node_overwrites_another_nodes_incident(dashboard: Dashboard) -> None:
    owner = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(owner)
    assert dashboard.post("incident", owner.incident(uneven_steps())).status_code == 200
    false = replace(uneven_steps(), verdict=replace(uneven_steps().verdict, summary="false"))
    same_job, other_job = FakeNode("thief", (0,)), FakeNode("thief", (0, 1, 2, 3), job="other")
    for thief in (same_job, other_job):
        dashboard.send(thief)
        assert dashboard.post("incident", thief.incident(false)).status_code == 422
    assert dashboard.get("/incidents/3f2a")["verdict"]["summary"] == uneven_steps().verdict.summary


def test_evidence_of_a_node_that_was_not_asked_is_not_taken(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    for node in pair:
        dashboard.send(node)
    hang(pair)
    request = asked(dashboard, pair[0])
    thief = FakeNode("thief", (0, 1, 2, 3))
    dashboard.send(thief)
    dashboard.post("capture", thief.capture(replace(part_of(thief), ranks=()), request))
    dashboard.post("capture", pair[0].capture(part_of(pair[0]), request))
    answer(dashboard, pair[1])
    dashboard.until(lambda: judge.seen)
    assert "thief" not in {facts.host for facts in judge.seen[0].nodes if not facts.ranks}


def test_ranks_that_have_ended_meanwhile_are_not_hung(dashboard: Dashboard, pair: Pair, judge: Judge) -> None:
    for node in pair:
        dashboard.send(node)
    for node in pair:
        node.phase, node.still_s = Phase.FINALIZING, 11.0
    requests = [asked(dashboard, node) for node in pair]
    for node in pair:
        node.changes = {rank: {"process_state": "X"} for rank in node.ranks}
        dashboard.send(node)
    for node, request in zip(pair, requests, strict=True):
        dashboard.post("capture", node.capture(part_of(node), request))
    dashboard.until(lambda: judge.seen and dashboard.job["capture"]["state"] == "done")
    assert dashboard.get("/incidents")["total"] == 0


def test_while_answers_come_the_others_are_waited_for(
    dashboard: Dashboard, pair: Pair, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a node that sends no batches because its evidence is on its way WHEN another has just answered THEN it is
    waited for; and not any more when answers have stopped coming."""
    first, _ = pair
    for node in pair:
        dashboard.send(node)
    hang(pair)
    monkeypatch.setattr(captures, "COMING_S", 120.0)
    requests = [asked(dashboard, node) for node in pair]
    dashboard.post("capture", first.capture(part_of(first), requests[0]))
    # Not before the answer is there: until then no node would be awaited.
    monkeypatch.setattr(live_node, "SILENT_AFTER_S", 0.0)
    judged = len(judge.seen)
    dashboard.until(lambda: dashboard.job["capture"]["nodes_answered"] == ["node-a"])
    time.sleep(0.5)  # several looks
    assert len(judge.seen) == judged
    monkeypatch.setattr(captures, "COMING_S", 0.0)
    dashboard.until(lambda: len(judge.seen) > judged)
    assert [rank.rank for rank in judge.seen[judged].ranks] == [0, 1, 2, 3], "what its batches said is there"


@pytest.fixture
def slow_store(dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes half a second to begin with an incident."""
    put = dashboard.service.store.put_incident

    def slowly(*row: Any) -> Future[Any]:
        stored: Future[Any] = Future()
        threading.Timer(0.5, lambda: put(*row).add_done_callback(lambda done: stored.set_result(done.result()))).start()
        return stored

    monkeypatch.setattr(dashboard.service.store, "put_incident", slowly)


def test_an_incident_is_shown_when_it_can_be_had(dashboard: Dashboard, slow_store: None) -> None:
    """The page asks for an incident as soon as the job shows it."""
    node = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(node)
    with ThreadPoolExecutor() as threads:
        posted = threads.submit(dashboard.post, "incident", node.incident(uneven_steps()))
        id = dashboard.until(lambda: dashboard.job["open_incident"])
        assert dashboard.client.get(f"/api/v1/incidents/{id}").status_code == 200
        assert posted.result().status_code == 200


def test_the_verdicts_of_two_nodes_in_one_moment_are_one_incident(
    dashboard: Dashboard, pair: Pair, slow_store: None
) -> None:
    for node in pair:
        dashboard.send(node)
    found = [replace(uneven_steps(), id=f"by-{node.name}") for node in pair]
    with ThreadPoolExecutor() as threads:
        posted = list(
            threads.map(
                lambda each: dashboard.post("incident", each[0].incident(each[1])), zip(pair, found, strict=True)
            )
        )
    assert [answer.status_code for answer in posted] == [200, 200]
    (kept,) = dashboard.get("/incidents")["incidents"]
    assert dashboard.job["open_incident"] == kept["id"]


def test_what_is_known_of_silent_nodes_grows_with_the_ranks_and_not_with_their_square() -> None:
    """GIVEN 600 ranks of one group of which none has answered THEN its members stand in the evidence once."""
    now, size = 1000.0, 600
    job = live.LiveJob("key", "10.0.0.1:29500", now)
    for number in range(size // 8):
        node = FakeNode(f"node-{number}", tuple(range(8 * number, 8 * number + 8)), size)
        batch = node.batch(now)
        assert batch.hello is not None
        job.apply(live_node.LiveNode(node.name, "boot-1", batch, batch.hello, now, ClockEstimate()))
    rest = codec.loads(NodeCapture, text := captures._rest(job, set(), now))
    assert len(text) < 2_000_000
    whole = expanded(rest.snapshot, rest.groups)
    assert whole == remainder(job, set(), now)
    assert whole.ranks[599].reading is not None
    assert whole.ranks[599].reading.heads[0].members == tuple(range(size))


def test_a_node_whose_evidence_is_on_its_way_is_not_called_silent() -> None:
    """GIVEN two nodes that were last heard of long ago, one of which was asked for its evidence since
    THEN only the other is silent: the evidence may wait for this very dashboard."""
    job = live.LiveJob("key", "10.0.0.1:29500", 1000.0)
    for number in range(2):
        node = FakeNode(f"node-{number}", (number,), 2)
        batch = node.batch(1000.0)
        assert batch.hello is not None
        job.apply(live_node.LiveNode(node.name, "boot-1", batch, batch.hello, 1000.0, ClockEstimate()))
    later = 1000.0 + 3 * live_node.SILENT_AFTER_S
    facts = {node.host: node.silent_s for node in remainder(job, set(), later, told={"node-0"}).nodes}
    assert facts == {"node-0": 0.0, "node-1": 3 * live_node.SILENT_AFTER_S}


def test_ranks_are_found_where_they_are_now() -> None:
    """GIVEN nodes whose ranks move, appear and are claimed twice THEN each rank's newest beat is found, in order."""
    job = live.LiveJob("key", "10.0.0.1:29500", 1000.0)
    nodes = [FakeNode("node-b", (3, 2), 4), FakeNode("node-a", (0, 1), 4)]

    def beat(node: FakeNode, now: float) -> None:
        batch = node.batch(now)
        hello = batch.hello or job.nodes[node.name].hello
        job.apply(live_node.LiveNode(node.name, "boot-1", batch, hello, now, ClockEstimate()))

    def found() -> list[tuple[str, int]]:
        pairs = job.ranked()
        assert all(beat in node.batch.ranks and job.nodes[node.name] is node for node, beat in pairs)
        return [(node.name, beat.rank) for node, beat in pairs]

    expected = [("node-a", 0), ("node-a", 1), ("node-b", 2), ("node-b", 3)]
    for now in (1000.0, 1001.0):
        for node in nodes:
            beat(node, now)
        assert found() == expected
    nodes[0].ranks = (2,)
    beat(nodes[0], 1002.0)
    assert found() == expected[:3]
    nodes.append(FakeNode("node-c", (2, 3), 4))
    beat(nodes[2], 1003.0)
    beat(nodes[1], 1003.0)
    assert [rank for _, rank in found()] == [0, 1, 2, 3]
    assert found()[3] == ("node-c", 3)
