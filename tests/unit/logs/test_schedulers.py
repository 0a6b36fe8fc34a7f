"""What schedulers and launchers other than torchrun say of an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.logs.lines import blamed, judged


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "=>> PBS: job killed: walltime 3661 exceeded limit 3600",
            "PBS ended the job (walltime 3661 exceeded limit 3600)",
        ),
        ("TERM_RUNLIMIT: job killed after reaching LSF run time limit.", "LSF ended the job (run time limit)"),
        (
            "torch.distributed.elastic.multiprocessing.api.SignalException: Process 54 got signal: 15",
            "torchrun was told to end (signal 15)",
        ),
    ],
)
def test_an_end_from_outside_blames_no_rank(line: str, said: str, tmp_path: Path) -> None:
    found = judged(tmp_path, f"step 1\n{line}")
    assert found.judgement is not None
    assert found.judgement.verdict.summary == f"{said}: these logs blame no rank."


def test_lightning_names_the_rank_that_it_saw_end(tmp_path: Path) -> None:
    found = judged(
        tmp_path, "[rank: 3] Child process with PID 4123 terminated with code -9. Forcefully terminating all"
    )
    assert blamed(found) == [3]
    assert found.judgement is not None
    assert found.judgement.verdict.evidence[0] == "Lightning saw it fail first"
