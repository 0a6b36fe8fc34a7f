"""What the API answers is what its types say, and every address has a HEAD and a page that describes it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ConfigDict, TypeAdapter

from hangwatch_dashboard import answers
from tests.examples import uneven_steps
from tests.nodes import JSON, Dashboard, FakeNode

STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)


@pytest.fixture
def paths(dashboard: Dashboard) -> dict[str, type]:
    """Every address that is read, with the type of its answer, of a job that has everything."""
    node = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(node)
    assert dashboard.post("incident", node.incident(uneven_steps())).status_code == 200
    key = dashboard.job["key"]
    made = dashboard.client.post(f"/api/v1/jobs/{key}/captures", headers=JSON)
    assert made.status_code == 202
    return {
        "/jobs": answers.JobList,
        f"/jobs/{key}": answers.JobDetail,
        f"/jobs/{key}/ranks": answers.RankColumns,
        f"/jobs/{key}/ranks/1": answers.RankDetail,
        f"/jobs/{key}/collectives": answers.GroupColumns,
        f"/jobs/{key}/health": answers.HealthOfJob,
        f"/jobs/{key}/history": answers.History,
        f"/jobs/{key}/captures": answers.CaptureList,
        f"/captures/{made.json()['id']}": answers.Capture,
        "/incidents": answers.IncidentList,
        f"/incidents/{uneven_steps().id}/summary": answers.ListedIncident,
        "/incident-groups": answers.IncidentGroups,
        "/session": answers.Session,
        "/about": answers.About,
    }


def test_answers_are_what_their_types_say(dashboard: Dashboard, paths: dict[str, type]) -> None:
    for path, kind in paths.items():
        listed: Any = tuple[kind]  # type: ignore[valid-type]
        answer = [dashboard.get(path)]
        assert TypeAdapter(listed, config=STRICT).validate_python(answer), path  # raises where a field does not fit


def test_every_address_has_a_head(dashboard: Dashboard, paths: dict[str, type]) -> None:
    for path in (*(f"/api/v1{each}" for each in paths), "/api/v1/events", "/", "/metrics", "/healthz", "/api/v1/docs"):
        head = dashboard.client.head(path)
        assert (head.status_code, head.content) == (200, b""), path
    assert dashboard.client.head("/api/v1/jobs/nothing").status_code == 404


def test_the_api_describes_itself_as_a_page(dashboard: Dashboard) -> None:
    page = dashboard.client.get("/api/v1/docs")
    assert "unsafe" not in page.headers["content-security-policy"]
    for text in ("GET /api/v1/jobs/{job}", "JobSummary", "409: ", "a token is needed"):
        assert text in page.text
    # AND each operation and schema that it links to stands on it
    links = re.findall(r'href="#([^"]+)"', page.text)
    assert {"get-api-v1-jobs-job", "delete-api-v1-jobs-job", "schemas", "JobList"} <= set(links)
    assert set(links) <= set(re.findall(r' id="([^"]+)"', page.text))


@pytest.mark.parametrize("path", ["/jobs?stat=hung", "/jobs?state=hung&limits=5", "/incidents?from=1", "/about?x"])
def test_a_parameter_that_there_is_not_is_refused(dashboard: Dashboard, path: str) -> None:
    """A filter with a slip in its name would answer with everything."""
    answer = dashboard.client.get(f"/api/v1{path}")
    assert answer.status_code == 422
    wrong = {"/jobs?state=hung&limits=5": "limits", "/about?x": "x"}.get(path, path.partition("?")[2].partition("=")[0])
    assert answer.json()["error"].startswith(f"{wrong}: no parameter of this address; it knows ")
    if "jobs" in path:
        assert "cause, limit, offset, search, since, state, until" in answer.json()["error"]


def test_parameters_that_there_are_go_on_working(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    key = dashboard.job["key"]
    for path in (
        "/jobs?search=&state=running&cause=&since=1&limit=1&offset=0",
        f"/jobs/{key}/history?seconds=9&ranks=0-1",
        "/incidents?job=&status=&cause=&group=&search=&since=1&until=2&limit=50&offset=0",
        "/incident-groups?review=&status=&cause=&search=&since=1&until=2&limit=50&offset=0",
    ):
        dashboard.get(path)
    assert dashboard.client.get("/healthz?probe=1").status_code == 200, "a load balancer may add what it likes"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""])
def test_forms_are_refused(dashboard: Dashboard, kind: str) -> None:
    dashboard.send(FakeNode())
    headers = {"content-type": kind} if kind else {}
    path = f"/api/v1/jobs/{dashboard.job['key']}/captures"
    assert dashboard.client.post(path, headers=headers).status_code == 415
    assert dashboard.client.put("/api/v1/incident-groups/0123456789abcdef/review", headers=headers).status_code == 415
