"""Which processes of a launch the probe takes the place of."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import hangwatch_agent
from hangwatch.launchers import PROGRAMS, TORCH_MODULES

TAKEOVER = Path(hangwatch_agent.__file__).parent / "doctor" / "takeover" / "sitecustomize.py"


@pytest.fixture
def takeover(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.delenv("HANGWATCH_DOCTOR_TOKEN", raising=False)  # without it nothing is taken over
    spec = importlib.util.spec_from_file_location("takeover_under_test", TAKEOVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}),
        (
            {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0"},
            {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"},
        ),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, {"RANK": "1", "WORLD_SIZE": "2"}),
        (
            {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_NODEID": "2", "SLURM_STEP_ID": "0"},
            {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "GROUP_RANK": "2"},
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),  # the batch script is no rank
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "3", "HANGWATCH_DOCTOR_STEP": "3"}, None),  # nor are we
        ({"RANK": "x"}, None),
        ({}, None),
    ],
)
def test_what_a_launcher_calls_a_rank(
    takeover: ModuleType, environment: dict[str, str], rank: dict[str, str] | None
) -> None:
    assert takeover.known_rank(environment) == rank


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        (["/usr/bin/python3", "/usr/bin/torchrun", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python", "-m", "accelerate.commands.launch", "train.py"], True),
        (["python", "/opt/bin/deepspeed", "train.py"], True),
        (["python", "/opt/bin/horovodrun", "train.py"], True),
        (["python", "train.py", "torchrun-like"], False),
        (["python", "-m", "hangwatch.doctor.ranks_here", "{}"], True),
    ],
)
def test_launchers_are_left_alone(takeover: ModuleType, command: list[str], launcher: bool) -> None:
    assert takeover.is_launcher(command) is launcher


def test_it_works_alone_on_the_path(takeover: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(takeover, "FOLDERS", [str(tmp_path)])
    assert not takeover.launchers()
    assert takeover.is_launcher(["python", "-m", "torch.distributed.run", "train.py"])


def test_it_knows_the_launchers_that_hangwatch_knows(takeover: ModuleType) -> None:
    assert set(takeover.launchers()) == {*PROGRAMS, *TORCH_MODULES}
