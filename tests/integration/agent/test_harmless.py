"""A small part of `make harmless`: what a program shows is the same plain and watched."""

from __future__ import annotations

import pytest

from tests.harmless.harness import observe


@pytest.mark.parametrize(
    ("program", "manner"),
    [
        pytest.param("compiled_python_reducer", "run", marks=pytest.mark.gallery),
        ("restless_sampler", "attach"),
        ("own_process_group", "run"),
        ("copied_and_pickled", "attach"),
        ("said_errors", "run"),
    ],
)
def test_a_program_is_the_same_under_watch(program: str, manner: str) -> None:
    plain, watched = observe(program), observe(program, manner)
    assert plain.facts["exit code"] == 0
    assert {name: (plain.facts.get(name), watched.facts.get(name)) for name in plain.differences(watched)} == {}


@pytest.mark.gallery
@pytest.mark.parametrize(
    "disaster",
    ["clock set", "dashboard deaf", "signals", "tracing denied", "shared memory and disk full", "large files denied"],
)
def test_a_program_is_the_same_whatever_befalls_the_watch(disaster: str) -> None:
    plain, watched = observe("persistent_workers"), observe("persistent_workers", "run", chaos=disaster)
    assert plain.facts["exit code"] == 0
    assert {name: (plain.facts.get(name), watched.facts.get(name)) for name in plain.differences(watched)} == {}


@pytest.mark.gallery
def test_a_loader_that_keeps_its_state_is_the_same_under_watch() -> None:
    pytest.importorskip("torchdata", reason="torchdata is not installed")
    plain, watched = observe("stateful_loader"), observe("stateful_loader", "run")
    assert plain.facts["exit code"] == 0
    assert plain.differences(watched) == []
