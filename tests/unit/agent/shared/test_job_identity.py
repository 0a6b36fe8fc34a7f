from __future__ import annotations

import pytest

from hangwatch.model import Identity
from hangwatch_agent.shared.job_identity import job_identity, shared_identity

MASTER = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TORCHELASTIC_RUN_ID": "r17", **MASTER}, "torchrun-r17"),
        ({"TORCHELASTIC_RUN_ID": "none", **MASTER}, "10.0.0.1:29500"),
        ({"SLURM_JOB_ID": "77", "TORCHELASTIC_RUN_ID": "r17", **MASTER}, "slurm-77"),
        ({"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0"}, "slurm-77.0"),
        ({"PBS_JOBID": "5.head"}, "pbs-5.head"),
        (MASTER, "10.0.0.1:29500"),
        ({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}, "node-a:29500"),
        ({"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}, "node-a:29500"),
        ({"MASTER_ADDR": "10.0.0.1"}, "local-node-a-42"),
        ({}, "local-node-a-42"),
    ],
)
def test_the_launcher_says_which_job_it_is(environment: dict[str, str], expected: str) -> None:
    assert job_identity(environment, parent=42, host="node-a")[0] == expected


def test_the_users_own_name_goes_first() -> None:
    assert job_identity({"SLURM_JOB_ID": "77"}, job="mine", parent=1) == ("mine", "mine")


def test_a_batch_systems_name_is_shown() -> None:
    found = job_identity({"SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "resnet"}, parent=1)
    assert found == ("slurm-77", "resnet")


@pytest.mark.parametrize("option", [["--rdzv-id", "r17"], ["--rdzv_id=r17"]])
def test_watchdog_and_ranks_agree_on_torchruns_run_id(option: list[str]) -> None:
    command = ["torchrun", *option, "--rdzv-endpoint", "10.0.0.1:29400", "train.py", "--rdzv-id", "other"]
    outside = job_identity({}, parent=1, command=command)
    inside = job_identity({"TORCHELASTIC_RUN_ID": "r17", **MASTER}, parent=2)
    assert outside == ("torchrun-r17", "train.py")
    assert inside[0] == outside[0]


def test_watchdog_and_ranks_agree_on_a_static_master() -> None:
    command = ["python", "-m", "torch.distributed.run", "--master-addr=10.0.0.1", "--master_port", "29500", "train.py"]
    assert job_identity({}, parent=1, command=command)[0] == job_identity(MASTER, parent=2)[0]


def test_options_of_other_programs_mean_nothing() -> None:
    assert job_identity({}, parent=1, host="h", command=["python", "train.py", "--rdzv-id", "x"])[0] == "local-h-1"


def rank(job: str, **environment: str) -> Identity:
    return Identity(0, 4, 0, "node-a", 7, 1.0, job, environment=environment)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (rank("torchrun-r17"), "torchrun-r17"),
        (rank("run-12-ab", TORCHELASTIC_RUN_ID="r17"), "torchrun-r17"),
        (rank("run-12-ab", TORCHELASTIC_RUN_ID="none", **MASTER), "10.0.0.1:29500"),
        (rank("run-12-ab"), "local-node-a-42"),
        (rank("local-node-a-9"), "local-node-a-42"),
    ],
)
def test_what_the_ranks_know_makes_a_local_identity_one_that_nodes_share(told: Identity, expected: str) -> None:
    assert shared_identity("local-node-a-42", (rank("local-node-a-9"), told)) == expected


def test_a_shared_identity_stays() -> None:
    assert shared_identity("slurm-7", (rank("torchrun-r17"),)) == "slurm-7"
