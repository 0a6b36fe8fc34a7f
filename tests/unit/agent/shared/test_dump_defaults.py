"""The variables by which torch is asked for dumps: which names for which torch, where the user's own win, and back."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hangwatch_agent.shared.dump_defaults import DumpDefaults, may_use_nccl, version_of, wanted

RUN = Path("/run")
PREFIX = "/run/torch-dump-rank-"
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (
            "2.4.1",
            {
                "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
                "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
                "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": PREFIX,
                PIPE: PREFIX,
            },
        ),
        ("2.8.0+cu128", {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": PREFIX, PIPE: PREFIX}),
        ("2.9.1", {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": PREFIX, PIPE: PREFIX}),
        ("2.13.0", {"TORCH_FR_DUMP_TEMP_FILE": PREFIX, PIPE: PREFIX}),
    ],
)
def test_each_torch_is_asked_under_names_that_it_does_not_warn_of(version: str, expected: dict[str, str]) -> None:
    assert wanted(version_of(version), RUN, {}) == expected


@pytest.mark.parametrize("name", ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"])
@pytest.mark.parametrize("version", [(2, 5), (2, 13)])
def test_what_the_user_has_set_under_any_name_stays(version: tuple[int, int], name: str) -> None:
    found = wanted(version, RUN, {name: "/mine"})
    assert not {"TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"} & found.keys()
    assert PIPE not in wanted(version, RUN, {PIPE: "/mine"})
    assert wanted((2, 8), RUN, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "5"}).keys() == {"TORCH_FR_DUMP_TEMP_FILE", PIPE}
    assert wanted((2, 5), RUN, {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}).get("TORCH_NCCL_DUMP_ON_TIMEOUT") is None


def test_a_recorder_that_is_turned_off_stays_off() -> None:
    assert wanted((2, 5), RUN, {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}) == {}
    assert wanted((2, 13), RUN, {"TORCH_FR_BUFFER_SIZE": "0"}) == {}


@pytest.mark.parametrize(
    ("backend", "cuda", "expected"),
    [
        ("nccl", None, True), ("cpu:gloo,cuda:nccl", None, True), ("gloo", "13.0", False),
        (None, "13.0", True), (None, None, False), ("undefined", "13.0", True),
    ],
)  # fmt: skip
def test_only_jobs_that_may_use_nccl_are_touched(backend: str | None, cuda: str | None, expected: bool) -> None:
    assert may_use_nccl(SimpleNamespace(version=SimpleNamespace(cuda=cuda)), backend) is expected


def test_they_are_set_once_and_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13.0", version=None))
    environment = {"OWN": "1"}
    # WHEN a process group of NCCL is made, and one of the variables is changed later
    defaults = DumpDefaults(True, environment)
    defaults.install(tmp_path, "nccl")
    assert environment["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/torch-dump-rank-"
    environment[PIPE] = "/changed"
    defaults.install(tmp_path / "other", "nccl")
    defaults.remove()
    # THEN ours is gone, and what the user changed is not
    assert environment == {"OWN": "1", PIPE: "/changed"}


def test_nothing_is_set_without_a_folder_or_against_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch ends a process whose pipe file it cannot make."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13.0", version=None))
    environment: dict[str, str] = {}
    DumpDefaults(True, environment).install(None, "nccl")
    DumpDefaults(True, environment).install(tmp_path / "missing", "nccl")
    DumpDefaults(False, environment).install(tmp_path, "nccl")
    DumpDefaults(True, environment).install(tmp_path, "gloo")
    assert environment == {}


@pytest.mark.parametrize(
    ("version", "own", "expected"),
    [
        ("2.8.0", {}, {}),
        ("2.9.1", {}, {"TORCH_FR_BUFFER_SIZE": "2000"}),
        ("2.13.0", {}, {}),
        ("2.9.1", {"TORCH_FR_BUFFER_SIZE": "0"}, {}),
    ],
)
def test_the_recorder_of_gloo_is_switched_on_where_torch_has_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, own: dict[str, str], expected: dict[str, str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__=version, version=None))
    environment = dict(own)
    defaults = DumpDefaults(True, environment)
    defaults.install(tmp_path, "gloo")
    assert environment == own | expected
    defaults.remove()
    assert environment == own


def test_a_group_of_nccl_after_one_of_gloo_is_asked_for_dumps_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.9.1", version=None))
    environment: dict[str, str] = {}
    defaults = DumpDefaults(True, environment)
    defaults.install(tmp_path, "gloo")
    defaults.install(tmp_path, "nccl")
    assert environment.keys() == {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE", PIPE}
    defaults.remove()
    assert environment == {}


def test_a_folder_that_has_gone_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job may outlive its watchdog, and make another process group; a child inherits what its parent has set."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="2.13.0", version=None))
    folder, environment = tmp_path / "run", {"TORCH_FR_BUFFER_SIZE": "7"}
    folder.mkdir()
    rank, child = DumpDefaults(True, environment), DumpDefaults(True, environment)
    rank.install(folder, "nccl")
    assert PIPE in environment
    child.install(folder, "nccl")
    assert environment[PIPE] == f"{folder}/torch-dump-rank-"
    folder.rmdir()
    child.install(folder, "nccl")
    assert environment == {"TORCH_FR_BUFFER_SIZE": "7"}
    rank.remove()
    assert environment == {"TORCH_FR_BUFFER_SIZE": "7"}
