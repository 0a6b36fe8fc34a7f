"""What Prometheus is told, and the alert rules and the Grafana dashboard that are made of it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hangwatch_dashboard.metrics import Meters
from tests import needs
from tests.examples import uneven_steps
from tests.nodes import JSON, Dashboard, FakeNode

DOCKER = Path(__file__).parents[3] / "docker"
OWN_LABELS = {"job", "instance"}  # what Prometheus puts there by itself
NAME = re.compile(r"\b(?:hangwatch|process|python)_\w+")


def page(dashboard: Dashboard) -> str:
    node = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(node)
    dashboard.post("incident", node.incident(uneven_steps()))
    return str(dashboard.client.get("/metrics").text)


def families(text: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_no_label_collides_with_prometheus_own(dashboard: Dashboard) -> None:
    for family in families(page(dashboard)).values():
        for sample in family.samples:
            assert not OWN_LABELS & set(sample.labels), sample


def test_counters_end_in_total_and_nothing_else_does(dashboard: Dashboard) -> None:
    for line in re.findall(r"^# TYPE (\S+) (\S+)$", page(dashboard), re.MULTILINE):
        assert line[0].endswith("_total") == (line[1] == "counter"), line


def test_what_is_counted(dashboard: Dashboard) -> None:
    found = families(page(dashboard))
    (build,) = found["hangwatch_build_info"].samples
    assert build.labels["store"] in ("sqlite", "postgresql")
    (incidents,) = [each for each in found["hangwatch_incidents"].samples if each.name.endswith("_total")]
    assert (incidents.labels, incidents.value) == ({"cause": "uneven-steps", "status": "hung"}, 1.0)
    outcomes = {each.labels["outcome"] for each in found["hangwatch_notifications"].samples if "_total" in each.name}
    assert outcomes == {"sent", "failed", "given_up"}
    assert found["process_resident_memory_bytes"].samples[0].value > 1e6
    assert found["hangwatch_job_stalled"].samples[0].labels == {"run": dashboard.job["key"]}


def test_requests_of_nodes_are_counted_by_outcome(dashboard: Dashboard) -> None:
    # GIVEN two nodes of a job, and one of another
    first, second, other = FakeNode(), FakeNode("node-b", (2, 3)), FakeNode(job="other-job")
    for node in (first, second, other):
        dashboard.send(node)
    # WHEN one sends an incident, one a batch that is no batch, and one is not known
    dashboard.post("incident", first.incident(uneven_steps()))
    assert dashboard.client.post("/api/v1/ingest/batch", content=b"{}", headers=JSON).status_code == 422
    stranger = FakeNode("node-c", (4, 5), hello=False)
    assert dashboard.send(stranger)["accepted"] == -1
    # THEN each of them is counted, and so is each job
    samples = families(dashboard.client.get("/metrics").text)
    outcomes = {each.labels["outcome"]: each.value for each in samples["hangwatch_ingest"].samples}
    assert outcomes == {"accepted": 4, "hello": 1, "422": 1, "413": 0, "429": 0, "503": 0}
    (opened,) = samples["hangwatch_jobs_opened"].samples
    assert opened.value == 2


def test_meters_do_not_share_anything() -> None:
    first, second = Meters(), Meters()
    first.count("418")
    assert 'outcome="418"' in first.page([], 0, 0.0)
    assert 'outcome="418"' not in second.page([], 0, 0.0)


@pytest.mark.parametrize("file", ["prometheus/alerts.yml", "grafana/hangwatch.json"])
def test_rules_and_dashboard_name_metrics_that_there_are(dashboard: Dashboard, file: str) -> None:
    text = (DOCKER / file).read_text()
    if file.endswith("json"):
        targets = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    else:
        targets = [rule["expr"] for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
    named = {name for target in targets for name in NAME.findall(target)}
    there = {sample.name for family in families(page(dashboard)).values() for sample in family.samples}
    assert len(named) > 4
    assert named <= there


def promtool() -> str:
    """Prometheus' own checker."""
    return str(needs.program("promtool"))


def test_promtool_accepts_the_page(dashboard: Dashboard) -> None:
    checked = subprocess.run([promtool(), "check", "metrics"], input=page(dashboard), capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")])
def test_promtool_accepts_the_rules(arguments: tuple[str, ...]) -> None:
    checked = subprocess.run(
        [promtool(), *arguments], cwd=DOCKER / "prometheus", capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
