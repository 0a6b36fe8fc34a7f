"""The gallery's jobs that do not hang and still deserve a word: one line each, and their look-alikes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.gallery import CASES, Case
from tests.integration.playing import PATIENT, play

pytestmark = pytest.mark.usefixtures("unmeasured")

WARNED = [case for case in CASES if case.status == "warned"]
SAID = {
    "timeout-ahead": "which still works in __getitem__ (timeout_ahead.py:32)",
    "uneven-forecast": "The loader of rank 0 has 600 batches, that of rank 1 602: the job will hang at epoch 0",
    "plans-differ": "The seed of the ranks' samplers differs, so their shares overlap: 17 on rank 0, 18 on rank 1",
    "sampler-full-copy": "Every rank draws all 800 samples of TensorDataset: BalancedSampler does not divide them",
    "set-epoch-missing": "The last two epochs came in the same order on ranks 0-1",
    "sampler-world-mismatch": "Ranks 0-1 draw the same share of the data: each sampler was made for rank 0",
    "nccl-environment": "GLOO_SOCKET_IFNAME differs between ranks: not set on rank 0, lo on rank 1",
    "straggler": "All wait for rank 1 in each step",
    "data-bound": "of its time or more waiting for the loader",
}


# The rest is for `make gallery`.
ALWAYS = {"forecast"}
SOME = [pytest.param(case, id=case.name, marks=() if case.name in ALWAYS else pytest.mark.gallery) for case in WARNED]


def lines(output: str) -> list[str]:
    """What hangwatch said."""
    return [line for line in output.splitlines() if line.startswith("hangwatch:")]


@pytest.mark.parametrize("case", SOME)
def test_one_line_and_no_incident(case: Case, tmp_path: Path) -> None:
    played = play(case, tmp_path, stall_after=PATIENT)
    assert (played.incident, played.exit_code) == (None, 0)
    (line,) = lines(played.output)
    assert line.startswith("hangwatch: warning: ")
    assert SAID[case.cause] in line


@pytest.mark.parametrize("case", SOME)
def test_the_look_alike_gets_no_warning(case: Case, tmp_path: Path) -> None:
    played = play(case, tmp_path, healthy=True, stall_after=PATIENT)
    assert (played.incident, played.exit_code, lines(played.output)) == (None, 0, [])


@pytest.mark.gallery
def test_the_slow_rank_is_named_among_more(tmp_path: Path) -> None:
    (case,) = (each for each in WARNED if each.cause == "straggler")
    played = play(case, tmp_path, ranks=3, culprit=2, stall_after=PATIENT)
    (line,) = lines(played.output)
    assert "All wait for rank 2 in each step" in line
