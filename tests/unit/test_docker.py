"""The images and examples, read but not run: what they promise stands in them, and what they name is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
KUBERNETES: list[dict[str, Any]] = list(yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text()))
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))


def instructions(dockerfile: Path) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", " ", dockerfile.read_text())
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.stem)
def test_images_do_not_run_as_root_and_pin_what_they_are_made_from(dockerfile: Path) -> None:
    found = instructions(dockerfile)
    users = [rest for word, rest in found if word == "USER"]
    assert users[-1] == "10001:10001"
    assert [word for word, _ in found].index("USER") < [word for word, _ in found].index("ENTRYPOINT")
    assert {rest.split()[0] for word, rest in found if word == "FROM"} == {"${BASE}"}
    assert ("ARG", "BASE=python:3.12-slim-bookworm") in found


def test_the_dashboards_image_is_checked_for_health() -> None:
    found = dict(instructions(DOCKER / "dashboard.Dockerfile"))
    assert "/readyz" in found["HEALTHCHECK"]
    assert found["EXPOSE"] == "8470"


def test_what_the_images_copy_is_in_the_build_context() -> None:
    kept = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert all((ROOT / path).exists() for path in kept)
    for dockerfile in DOCKERFILES:
        for word, rest in instructions(dockerfile):
            if word == "COPY" and "--from" not in rest and not rest.startswith(". "):
                source = rest.split()[-2]
                assert (ROOT / source).exists()
                assert source in kept


def test_compose_names_files_and_services_that_there_are() -> None:
    services = COMPOSE["services"]
    assert set(services) == {"database", "dashboard", "node-a", "node-b"}
    for service in services.values():
        if build := service.get("build"):
            assert (DOCKER / build["context"]).resolve() == ROOT
            assert (ROOT / build["dockerfile"]).is_file()
        assert set(service.get("depends_on", {})) <= set(services)
        assert ":latest" not in service["image"]


def test_compose_opens_a_port_on_loopback_only() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports == ["127.0.0.1:8470:8470"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}


def test_tokens_of_the_demonstration_are_long_enough_and_the_same_on_both_sides() -> None:
    services = COMPOSE["services"]
    given = services["dashboard"]["environment"]
    ingest = given["HANGWATCH_INGEST_TOKEN"]
    assert services["node-b"]["environment"]["HANGWATCH_TOKEN"] == ingest
    defaults = [re.sub(r".*:-|\}", "", given[name]) for name in ("HANGWATCH_INGEST_TOKEN", "HANGWATCH_READ_TOKEN")]
    assert all(len(token) >= 16 for token in defaults)
    assert defaults[0] != defaults[1]


def test_the_demonstrations_fault_is_in_the_gallery() -> None:
    fault = re.sub(r".*:-|\}", "", COMPOSE["services"]["node-a"]["environment"]["FAULT"])
    assert (ROOT / "hangwatch" / "gallery" / f"{fault}.py").is_file()


def test_pods_run_with_as_little_as_they_can() -> None:
    pods = [each["spec"]["template"]["spec"] for each in KUBERNETES if each["kind"] in ("Deployment", "Job")]
    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not any("token" in str(entry.get("value", "")) for pod in pods for entry in pod["containers"][0]["env"])


@pytest.mark.parametrize("script", ["train.sh", "slurm.sh"])
def test_scripts_are_understood_by_their_shell(script: str) -> None:
    shell = (DOCKER / script).read_text().splitlines()[0].removeprefix("#!")
    assert subprocess.run([shell, "-n", DOCKER / script], check=False).returncode == 0
