"""What the API answers, on a dashboard in this process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hangwatch.model import GroupBeat, Phase
from hangwatch_dashboard import views
from hangwatch_dashboard.config import Config
from tests.examples import uneven_steps_judgement
from tests.nodes import JSON, Dashboard, FakeNode, body

DOCS = Path(__file__).parents[3] / "docs" / "api.md"


def test_a_batch_makes_a_job(dashboard: Dashboard) -> None:
    reply = dashboard.send(FakeNode())
    assert (reply["accepted"], reply["commands"]) == (0, [])
    job = dashboard.job
    assert (job["name"], job["world_size"], job["ranks"], job["nodes"], job["state"]) == ("resnet", 4, 2, 1, "running")
    assert re.fullmatch(r"resnet-[0-9a-f]{8}", job["key"])
    assert [node["host"] for node in job["node_list"]] == ["node-a"]


def test_batches_of_two_nodes_are_one_job(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    dashboard.send(FakeNode("node-b", (2, 3), step=8, phase=Phase.DATA))
    job = dashboard.job
    assert (job["nodes"], job["ranks"], job["step"], job["step_max"]) == (2, 4, 8, 10)
    ranks = dashboard.get(f"/jobs/{job['key']}/ranks")
    assert ranks["rank"] == [0, 1, 2, 3]
    assert ranks["node"] == [0, 0, 1, 1]
    assert ranks["lag"] == [0, 0, 2, 2]
    assert [ranks["phases"][phase] for phase in ranks["phase"]] == ["backward", "backward", "data", "data"]
    assert ranks["absent"] == ""


def test_ranks_that_never_came_are_absent(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode(ranks=(0, 3), world_size=8))
    assert dashboard.get(f"/jobs/{dashboard.job['key']}/ranks")["absent"] == "1-2,4-7"


def test_what_ranks_wait_for_is_one_call_until_and_after_the_verdict(dashboard: Dashboard) -> None:
    # GIVEN a rank that has issued two calls which are not complete, and one in its barrier
    late = {"heads": (GroupBeat(FakeNode().group.id, 502, 500),), "waiting_for": "collective 501 of group 0"}
    inside = {"heads": late["heads"], "waiting_for": "barrier 501 of group 0"}
    node = FakeNode(ranks=(0, 1, 2, 3), still_s=5.0, changes={0: late, 3: inside})
    dashboard.send(node)
    job = dashboard.job["key"]
    # THEN each waits for what its node says
    waits = dashboard.get(f"/jobs/{job}/ranks")["waiting_for"]
    assert waits == {"0": "collective 501 of group 0", "3": "barrier 501 of group 0"}
    # AND once there is a verdict, for the one that the verdict names
    live = dashboard.service.registry.jobs[job]

    def judged() -> dict[str, str]:
        """At one moment of the service's loop: between two, its watch may clear a verdict that has no incident."""
        live.judgement = uneven_steps_judgement()
        found: dict[str, str] = views.rank_columns(live, dashboard.service.clock())["waiting_for"]
        return found

    assert dashboard.client.portal is not None
    waits = dashboard.client.portal.call(judged)
    assert waits["0"] == waits["2"] == "rank 3, in all_reduce 501 of group 0 (train.py:71)"
    assert waits["3"] == "ranks 0-2, in barrier 501 of group 0 (train.py:88)"
    # AND a rank that moves again waits for what its node says
    node.still_s = 0.0
    dashboard.send(node)
    assert dashboard.client.portal.call(judged)["3"] == "barrier 501 of group 0"


def test_one_rank_and_its_groups(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    detail = dashboard.get(f"/jobs/{dashboard.job['key']}/ranks/1")
    assert (detail["identity"]["pid"], detail["beat"]["phase"], detail["groups"][0]["members"]) == (
        1001,
        "backward",
        "0-3",
    )
    assert dashboard.client.get(f"/api/v1/jobs/{dashboard.job['key']}/ranks/2").status_code == 404


def test_collectives_say_which_rank_is_behind(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    dashboard.send(FakeNode("node-b", (2, 3), step=8))
    (group,) = dashboard.get(f"/jobs/{dashboard.job['key']}/collectives")["groups"]
    assert (group["issued"], group["size"], group["behind"]) == (50, 4, "2-3")
    assert group["heads"][0] == {"issued": 50, "completed": 50, "ranks": "0-1"}


def test_history_grows_while_batches_come(dashboard: Dashboard) -> None:
    node = FakeNode()
    dashboard.send(node)
    path = f"/jobs/{dashboard.job['key']}/history?ranks=1,7"
    found = dashboard.until(lambda: (history := dashboard.get(path))["at"] and history)
    assert found["rank"] == [1, 7]
    assert found["step"][0] == [10, None]


def test_an_unknown_boot_is_asked_for_its_hello(dashboard: Dashboard) -> None:
    reply = dashboard.send(FakeNode(hello=False))
    assert reply["accepted"] == -1
    assert [command["kind"] for command in reply["commands"]] == ["hello"]
    assert dashboard.get("/jobs")["total"] == 0


def test_a_replayed_batch_is_a_conflict(dashboard: Dashboard) -> None:
    node = FakeNode()
    dashboard.send(node)
    dashboard.send(node)
    node.sequence = 0
    again = dashboard.client.post("/api/v1/ingest/batch", content=body(node.batch(1e9)), headers=JSON)
    assert (again.status_code, again.json()["error"]) == (409, "sequence: 1 is there already, up to 1")


def test_a_job_that_starts_again_is_another_run(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode(ranks=(0, 1, 2, 3), closing=True, exit_code=0))
    dashboard.send(FakeNode(ranks=(0, 1, 2, 3), boot="boot-2"))
    jobs = dashboard.get("/jobs")["jobs"]
    assert [job["state"] for job in jobs] == ["running", "finished"]
    assert len({job["key"] for job in jobs}) == 2


def test_a_watchdog_that_starts_again_is_the_same_run(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    dashboard.send(FakeNode(boot="boot-2"))
    assert dashboard.get("/jobs")["total"] == 1


def test_a_job_that_ended_badly_has_failed(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode(closing=True, exit_code=1))
    assert dashboard.job["state"] == "failed"


def test_jobs_are_found_by_name_and_state(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    dashboard.send(FakeNode(job="other", job_name="50%_bert"))
    assert [job["name"] for job in dashboard.get("/jobs?search=BERT")["jobs"]] == ["50%_bert"]
    assert dashboard.get("/jobs?search=%25_b")["total"] == 1
    assert dashboard.get("/jobs?search=0_b")["total"] == 0
    assert dashboard.get("/jobs?limit=1&offset=1")["total"] == 2


def test_a_deleted_job_is_gone(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    path = f"/api/v1/jobs/{dashboard.job['key']}"
    assert dashboard.client.delete(path).status_code == 204
    assert dashboard.client.get(path).status_code == 404
    assert dashboard.client.delete(path).status_code == 404


def test_the_page_is_served_and_routes_by_itself(dashboard: Dashboard, config: Config) -> None:
    assert "make page" in dashboard.client.get("/").text
    (config.static / "assets").mkdir(parents=True)
    (config.static / "index.html").write_text("<!doctype html>page")
    (config.static / "assets" / "main-1f.js").write_text("1")
    assert dashboard.client.get("/jobs/some-job").text == "<!doctype html>page"
    script = dashboard.client.get("/assets/main-1f.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "immutable" in script.headers["cache-control"]
    assert dashboard.client.get("/assets/other.js").status_code == 404
    assert dashboard.client.get("/api/v1/nothing").json() == {"error": "there is no such address"}


@pytest.mark.parametrize("path", ["/../secret", "/assets/../../secret", "/assets/%2e%2e/%2e%2e/secret", "//etc/passwd"])
def test_no_path_leaves_the_pages_folder(dashboard: Dashboard, config: Config, path: str) -> None:
    (config.static.parent / "secret").write_text("secret")
    config.static.mkdir()
    (config.static / "index.html").write_text("page")
    assert "secret" not in dashboard.client.get(path).text


def test_health_and_metrics(dashboard: Dashboard) -> None:
    dashboard.send(FakeNode())
    assert dashboard.client.get("/healthz").json() == {"status": "ok"}
    assert dashboard.client.get("/readyz").json() == {"status": "ok"}
    text = dashboard.client.get("/metrics").text
    key = dashboard.job["key"]
    assert f'hangwatch_rank_step_total{{rank="1",run="{key}"}} 10' in text
    assert "hangwatch_ingest_seconds_count 1" in text


def test_the_documented_paths_are_those_that_there_are(dashboard: Dashboard) -> None:
    described = dashboard.get("/openapi.json")["paths"]
    there = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    documented = {
        f"{method} {path.partition('?')[0]}"
        for method, path in re.findall(r"\b(GET|POST|PUT|DELETE) (/[\w/{}.?=&-]+)", DOCS.read_text())
    }
    assert there - {"GET /api/v1/openapi.json"} == documented
