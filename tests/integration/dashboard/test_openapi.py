"""Whatever the OpenAPI description allows is answered without a 5xx; and what it describes is what there is."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error

from hangwatch_dashboard.app import create_app
from hangwatch_dashboard.config import Config, Limits
from tests.examples import uneven_steps, uneven_steps_snapshot
from tests.integration.dashboard.processes import until
from tests.nodes import JSON, FakeNode, body

LIMITS = Limits(requests_per_s=1e6, ingest_per_node_s=1e6, captures_per_minute=10**6, streams=0)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A dashboard with a job and an incident, as schemathesis sees it. Streams are closed: they never end."""
    folder: Path = tmp_path_factory.mktemp("openapi")
    app = create_app(Config(database=str(folder / "d.db"), limits=LIMITS))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        node = FakeNode(ranks=(0, 1, 2, 3))
        now = time.time()
        for kind, record in (
            ("batch", node.batch(now)),
            ("incident", node.incident(uneven_steps())),
            ("capture", node.capture(uneven_steps_snapshot())),
        ):
            path = f"{address}/api/v1/ingest/{kind}"
            httpx2.post(path, content=body(record), headers=JSON, timeout=60).raise_for_status()
        yield schemathesis.openapi.from_url(f"{address}/api/v1/openapi.json")
        server.should_exit = True
        thread.join(60)


@pytest.mark.untraced
@pytest.mark.slow
@pytest.mark.timeout(600)  # hundreds of requests, half a minute on an idle machine
def test_nothing_that_is_allowed_breaks_it(described: Any) -> None:
    tried = [result.ok() for result in described.get_all_operations()]
    assert len(tried) > 20
    for operation in tried:
        _try(operation)


def _try(operation: Any) -> None:
    """A few requests that the description allows, and a few that it does not."""
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=6, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        def ask(case: Any) -> None:
            case.call_and_validate(checks=[not_a_server_error], timeout=60)

        with contextlib.suppress(Unsatisfiable):  # there is no wrong way to ask for what has no parameters
            ask()


def test_every_record_of_the_link_is_described(described: Any) -> None:
    schemas = described.raw_schema["components"]["schemas"]
    assert {"NodeBatch", "NodeCapture", "NodeIncident", "Incident", "RankBeat", "Snapshot"} <= set(schemas)
    assert schemas["RankBeat"]["additionalProperties"] is False


def test_errors_are_described_as_they_are(described: Any) -> None:
    for path, methods in described.raw_schema["paths"].items():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                if status >= "400":
                    reference = answer["content"]["application/json"]["schema"]["$ref"]
                    assert reference.endswith("/ApiFailure"), (path, status)
    assert "HTTPValidationError" not in described.raw_schema["components"]["schemas"]


def test_refusals_are_described_where_they_are_given_and_nowhere_else(described: Any) -> None:
    paths = described.raw_schema["paths"]
    changes = [each[method] for each in paths.values() for method in ("post", "put") if method in each]
    assert len(changes) > 4
    assert all("415" in operation["responses"] for operation in changes)
    for path in ("/healthz", "/readyz"):
        assert not {"401", "403"} & set(paths[path]["get"]["responses"])
    assert {"401", "403"} <= set(paths["/metrics"]["get"]["responses"])


def test_the_description_is_found_and_leads_back(described: Any) -> None:
    found = httpx2.get(httpx2.URL(described.location).join("/docs"), follow_redirects=True, timeout=60)
    assert found.url.path == "/api/v1/docs"
    assert '<a href="/">Back to the dashboard</a>' in found.text
    assert "`" not in found.text.partition('<h2 id="schemas">')[0]


def test_every_answer_has_a_type(described: Any) -> None:
    for path, methods in described.raw_schema["paths"].items():
        for method, operation in methods.items():
            good = [answer for status, answer in operation["responses"].items() if status < "300" and status != "204"]
            for answer in good:
                for content in answer.get("content", {}).values():
                    schema = content["schema"]
                    assert schema not in ({}, {"type": "object"}), (path, method)
                    # a reference alone: beside it, programs that make clients would take the object for the type
                    assert "$ref" not in schema or list(schema) == ["$ref"], (path, method)


def test_security_is_described(described: Any) -> None:
    document = described.raw_schema
    assert set(document["components"]["securitySchemes"]) == {"ingest", "read", "admin", "session"}
    assert document["paths"]["/api/v1/ingest/batch"]["post"]["security"] == [{"ingest": []}, {}]
    assert {"admin": []} in document["paths"]["/api/v1/jobs/{job}"]["delete"]["security"]
    assert document["paths"]["/healthz"]["get"]["security"] == []
