"""Ingest that wants to do harm: answered 4xx, with memory flat, and the next honest batch is taken."""

from __future__ import annotations

import functools
import gzip
import json
import resource
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.model import GroupMembers, Identity, NodeBatch, Progress
from hangwatch.wire import codec
from hangwatch_dashboard.bodies import BodyError, Reader
from tests.examples import uneven_steps
from tests.integration.dashboard.conftest import Clock
from tests.nodes import JSON, Dashboard, FakeNode, body
from tests.strategies import record

BATCH = "/api/v1/ingest/batch"
GZIP = JSON | {"content-encoding": "gzip"}


def good() -> dict[str, Any]:
    document: dict[str, Any] = codec.encode(FakeNode().batch(1e9))
    return document


def changed(**values: Any) -> bytes:
    return json.dumps(good() | values).encode()


HOSTILE = {
    "nothing": b"",
    "no JSON": b"{",
    "not UTF-8": b"\xff\xfe{}",
    "two documents": body(FakeNode().batch(1e9)) * 2,
    "a way out of the brackets": body(FakeNode().batch(1e9)) + b"," + body(FakeNode().batch(1e9)),
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep and closed": b"[" * 5_000 + b"]" * 5_000,
    "an unknown field": changed(sudo=True),
    "a missing field": json.dumps({"job": "x"}).encode(),
    "a number as text": changed(sequence="1"),
    "a truth as number": changed(sequence=True),
    "a fraction": changed(sequence=1.5),
    "a negative number": changed(sequence=-1),
    "a number with 400 digits": changed(sequence=10**400),
    "a number beyond a database": changed(sequence=2**63),
    "not a number": changed(taken_at=float("nan")),
    "infinity": changed(taken_at=float("inf")),
    "an overflow": body(FakeNode().batch(1e9)).replace(b"1000000000.0", b"1e999"),
    "an unknown phase": body(FakeNode().batch(1e9)).replace(b'"backward"', b'"forwards"'),
    "a job without a name": changed(job=""),
    "a long name": changed(node="n" * 256),
    "a name with a null": changed(node="a\0b"),
    "a name with an escape": changed(boot="a\x1b[31m"),
    "a name with a new line": changed(job="a\nb"),
    "a name that turns round": changed(node="a\u202eb"),
    "half a character": changed(node="a\ud800b"),
    "another job in the hello": changed(job="other"),
    "a rank beyond reason": changed(ranks=[codec.encode(replace(FakeNode().beat(0, 1e9), rank=2**40))]),
    "a negative rank": changed(ranks=[codec.encode(replace(FakeNode().beat(0, 1e9), rank=-1))]),
    "a step beyond reason": changed(
        ranks=[codec.encode(replace(FakeNode().beat(0, 1e9), progress=Progress(step=2**62)))]
    ),
    "too many ranks": changed(ranks=[codec.encode(FakeNode().beat(rank, 1e9)) for rank in range(1100)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_batches_are_refused(dashboard: Dashboard, name: str) -> None:
    answer = dashboard.client.post(BATCH, content=HOSTILE[name], headers=JSON)
    assert 400 <= answer.status_code < 500, answer.text
    assert len(answer.content) < 1000
    assert dashboard.send(FakeNode())["accepted"] == 0


def test_groups_that_would_fill_the_memory_are_refused(dashboard: Dashboard) -> None:
    node = FakeNode()
    batch = node.batch(1e9)
    assert batch.hello is not None
    for ranges in ("0-999999999", "0-1048575,0-1048575", "3-1", "x", "0-1048575," * 50):
        group = GroupMembers("g", "0", ranges)
        hostile = replace(batch, hello=replace(batch.hello, groups=(group,)))
        assert dashboard.post("batch", hostile).status_code == 422


ENVELOPES = {
    "text": ({"content-type": "text/plain"}, b"{}", 415),
    "a form": ({"content-type": "application/x-www-form-urlencoded"}, b"{}", 415),
    "no type": ({}, b"{}", 415),
    "another compression": (JSON | {"content-encoding": "br"}, b"{}", 415),
    "compressed twice": (JSON | {"content-encoding": "gzip, gzip"}, b"{}", 415),
    "not compressed": (GZIP, b"no gzip", 400),
    "compressed and cut off": (GZIP, gzip.compress(b"{}")[:-4], 400),
    "two compressed": (GZIP, gzip.compress(b"{}") + gzip.compress(b"{}"), 400),
    "too large": (JSON, b" " * (2 << 20), 413),
    "sent at no time": (JSON | {"hangwatch-sent-at": "nan"}, body(FakeNode().batch(1e9)), 422),
    "sent before all time": (JSON | {"hangwatch-sent-at": "-inf"}, body(FakeNode().batch(1e9)), 422),
    "sent after all time": (JSON | {"hangwatch-sent-at": "9" * 400}, body(FakeNode().batch(1e9)), 422),
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_hostile_envelopes_are_refused(dashboard: Dashboard, name: str) -> None:
    headers, content, status = ENVELOPES[name]
    assert dashboard.client.post(BATCH, content=content, headers=headers).status_code == status


@functools.cache
def bomb(megabytes: int) -> bytes:
    """So many megabytes of zeros, in a thousandth of it."""
    compressor = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    return b"".join([compressor.compress(zeros) for _ in range(megabytes)] + [compressor.flush()])


def test_gzip_bombs_leave_the_memory_flat(dashboard: Dashboard) -> None:
    hostile = bomb(1024)
    assert len(hostile) < 2 << 20
    dashboard.client.post("/api/v1/ingest/capture", content=hostile, headers=GZIP)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(5):
        for path in ("batch", "capture", "incident"):
            answer = dashboard.client.post(f"/api/v1/ingest/{path}", content=hostile, headers=GZIP)
            assert answer.status_code == 413
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10  # kilobytes


def test_replayed_and_disordered_batches_change_nothing(dashboard: Dashboard) -> None:
    node = FakeNode()
    first, second, third = (node.batch(1e9) for _ in range(3))
    for batch in (first, third):
        assert dashboard.post("batch", batch).status_code == 200
    for batch in (second, third, first, replace(third, ranks=())):
        assert dashboard.post("batch", batch).status_code == 409
    assert dashboard.job["ranks"] == 2


def test_a_node_that_floods_is_slowed_down(dashboard: Dashboard, clock: Clock) -> None:
    clock.stop()  # so that it floods, however slow this machine is
    node = FakeNode()
    answers = {dashboard.post("batch", node.batch(1e9)).status_code for _ in range(600)}
    assert answers == {200, 429}
    refused = dashboard.post("batch", node.batch(1e9))
    assert refused.headers["retry-after"] == "1"
    assert dashboard.send(FakeNode("node-b", (2, 3)))["accepted"] == 0


def test_strings_of_ranks_stay_strings(dashboard: Dashboard, caplog: pytest.LogCaptureFixture) -> None:
    evil = "<script>alert(1)</script>\r\n\x1b[2J\u202e"
    node = FakeNode(job_name=evil)
    node.changes = {0: {"waiting_for": evil, "exception": evil}}
    dashboard.send(node)
    (job,) = dashboard.get("/jobs")["jobs"]
    assert job["key"].startswith("script-alert-1-script-")
    assert dashboard.get(f"/jobs/{job['key']}/ranks")["exception"] == {"0": evil}
    metrics = dashboard.client.get("/metrics").text
    assert "<script>" not in metrics
    incident = replace(uneven_steps(), job=replace(uneven_steps().job, name=evil))
    incident = replace(incident, verdict=replace(incident.verdict, summary=evil))
    node = FakeNode(job="one-node", ranks=(0, 1, 2, 3))
    dashboard.send(node)
    assert dashboard.post("incident", node.incident(incident)).status_code == 200
    html = dashboard.client.get("/api/v1/incidents/3f2a.html")
    assert "<script>alert" not in html.text
    assert "sandbox" in html.headers["content-security-policy"]
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("id", ["../../etc/passwd", "a/b", "", "x" * 65, "a\nb", "a.b", 'a"b'])
def test_names_of_incidents_are_harmless(dashboard: Dashboard, id: str) -> None:
    node = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(node)
    assert dashboard.post("incident", node.incident(replace(uneven_steps(), id=id))).status_code == 422


def test_captures_and_incidents_of_strangers_are_not_kept(dashboard: Dashboard) -> None:
    node = FakeNode()
    assert dashboard.post("incident", node.incident(uneven_steps())).status_code == 428
    dashboard.send(node)
    node.boot = "another"
    assert dashboard.post("incident", node.incident(uneven_steps())).status_code == 428
    assert dashboard.get("/incidents")["total"] == 0


def test_identities_with_nothing_known_are_no_trouble(dashboard: Dashboard) -> None:
    node = FakeNode()
    batch = node.batch(1e9)
    assert batch.hello is not None
    nobody = Identity(None, None, None, "", -5, -1e300, "")
    odd = replace(batch.hello, ranks=(nobody,), job=replace(batch.hello.job, world_size=None, name=""))
    assert dashboard.post("batch", replace(batch, hello=odd)).status_code == 200
    key = dashboard.job["key"]
    for path in ("", "/ranks", "/ranks/0", "/collectives", "/history"):
        dashboard.get(f"/jobs/{key}{path}")


# ------------------------------------------------------------ without a service


READER = Reader(NodeBatch)


@given(record(NodeBatch))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_both_readers_read_the_same(batch: NodeBatch) -> None:
    text = json.dumps(codec.encode(batch), ensure_ascii=False).encode("utf-8", "replace")
    assert READER.read(text) == codec.loads(NodeBatch, text)


@given(st.data())
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_both_readers_refuse_the_same(data: st.DataObject) -> None:
    document = good()
    place: Any = document
    for _ in range(data.draw(st.integers(0, 3))):
        values = place.values() if isinstance(place, dict) else place
        inner = [value for value in values if isinstance(value, dict | list)]
        if not inner:
            break
        place = data.draw(st.sampled_from(inner))
    junk = data.draw(st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.just([]), st.just({})))
    if isinstance(place, dict) and place:
        place[data.draw(st.sampled_from(sorted(place)))] = junk
    elif isinstance(place, list):
        place.append(junk)
    text = json.dumps(document, ensure_ascii=False).encode("utf-8", "replace")
    assert refuses_fast(text) == refuses_slow(text)


def refuses_fast(text: bytes) -> bool:
    try:
        READER.read(text)
    except BodyError:
        return True
    return False


def refuses_slow(text: bytes) -> bool:
    try:
        codec.loads(NodeBatch, text)
    except codec.WireError:
        return True
    return False
