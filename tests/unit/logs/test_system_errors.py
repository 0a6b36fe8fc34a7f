"""Errors of the system that NCCL passes on: a limit of the rank's own host is no network that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.logs.lines import judged

TOO_MANY = "socketStartConnect: Connect to 10.0.0.8<41217> failed : Too many open files"


def last_error(rank: int, text: str) -> str:
    """As torch repeats NCCL's last warning in the exception that ends a rank."""
    own = f"[rank{rank}]:"
    return "\n".join(
        (
            f"{own} Traceback (most recent call last):",
            f'{own}   File "/work/train.py", line 70, in main',
            f"{own}     dist.barrier()",
            f"{own} torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp, unhandled system error",
            f"{own} ncclSystemError: System call (e.g. socket, malloc) or external library call failed.",
            f"{own} Last error:",
            f"{own} {text}",
        )
    )


@pytest.mark.parametrize(
    ("text", "cause", "fix"),
    [
        (TOO_MANY, "file-descriptors-exhausted", "ulimit -n"),
        ("Call to pthread_create failed: Resource temporarily unavailable", "exception-on-one-rank", "ulimit -u"),
        ("Call to ibv_reg_mr failed with error Cannot allocate memory", "exception-on-one-rank", "ulimit -l"),
        ("Call to posix_memalign failed : Cannot allocate memory", "exception-on-one-rank", "more memory"),
    ],
)
def test_a_limit_of_the_host_is_told_of_its_rank(text: str, cause: str, fix: str, tmp_path: Path) -> None:
    found = judged(tmp_path, last_error(2, text)).judgement
    assert found is not None
    assert (found.verdict.cause, found.verdict.certainty) == (cause, "likely")
    assert [culprit.rank for culprit in found.verdict.culprits] == [2]
    assert "network that fails" not in found.verdict.summary
    assert fix in found.verdict.fix


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("Connect to 172.17.0.1<41217> failed : No route to host", "(172.17.0.1 is one of docker's bridge)"),
        ("Connect to 10.1.0.4<41217> failed : Network is unreachable", "all hosts can reach: NCCL_SOCKET_IFNAME"),
        ("Connect to 10.1.0.4<41217> failed : Connection refused", "the process at 10.1.0.4 still ran"),
        ("Call to ibv_modify_qp failed with error Connection timed out", "NCCL_IB_GID_INDEX"),
    ],
)
def test_the_fix_follows_the_error_of_the_network(text: str, fix: str, tmp_path: Path) -> None:
    found = judged(tmp_path, last_error(2, text)).judgement
    assert found is not None
    assert (found.verdict.cause, found.verdict.culprits) == ("interconnect-stall", ())
    assert fix in found.verdict.fix


def test_gpus_that_do_not_reach_each_other_are_no_kernel_that_fails(tmp_path: Path) -> None:
    refused = "Cuda failure 'peer access is not supported between these two devices'"
    found = judged(tmp_path, last_error(1, refused)).judgement
    assert found is not None
    assert "was refused access from one GPU to another" in found.verdict.summary
    assert "NCCL_P2P_DISABLE=1" in found.verdict.fix
