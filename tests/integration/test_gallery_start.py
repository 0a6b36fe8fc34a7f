"""The Start table for real: every case hangs, and the verdict names cause, culprit and evidence; look-alikes do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.gallery import Case
from hangwatch.model import Stage
from tests.integration.playing import assert_not_hung, play
from tests.integration.tables import assert_as_expected, cases_of, prepare

pytestmark = pytest.mark.gallery

START_AFTER = {"HANGWATCH_START_AFTER": "10"}
MOVABLE = [case for case in cases_of(Stage.START) if case.culprit is not None]
EVIDENCE = {
    "rank-not-started": "the world size is 2, and there are processes for 1 rank",
    "spawn-count": "mp.spawn(..., nprocs=3)",
    "master-port-differs": "and is not connected to it",
    "master-unknown": "node-0.invalid",
    "port-taken": "which is no process of this job",
    "rank-typed-twice": "lived at the same time",
    "rank-left-over": "lived at the same time",
    "second-node-missing": "stands in next_rendezvous at 127.0.0.1:",
    "tasks-and-world-size": "has WORLD_SIZE=8, SLURM_NTASKS=2 and SLURM_PROCID=",
    "every-task-is-rank-zero": "the tasks with SLURM_PROCID 0 and 1 have RANK=0",
    "died-before-init": "JSONDecodeError",
    "died-while-others-look": "OSError",
    "new-group-members": "has not returned",
    "new-group-order": "has not returned",
    "stale-lock": "no living process has it open",
}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", cases_of(Stage.START), ids=lambda case: case.name)
def test_the_verdict_names_cause_and_culprit(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(case, monkeypatch, START_AFTER)
    assert_as_expected(case, play(case, tmp_path, seconds=180), EVIDENCE[case.name])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", MOVABLE, ids=lambda case: case.name)
def test_another_rank_is_named_when_another_is_at_fault(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(case, monkeypatch, START_AFTER)
    ranks = case.ranks + 1
    played = play(case, tmp_path, ranks=ranks, culprit=ranks - 1, seconds=180)
    assert_as_expected(case, played, "", ranks=ranks, culprit=ranks - 1)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", cases_of(Stage.START), ids=lambda case: case.name)
def test_the_look_alike_is_not_called_hung(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(case, monkeypatch, {"HANGWATCH_START_AFTER": "30"})
    played = play(case, tmp_path, healthy=True, stall_after=30.0, seconds=180)
    assert_not_hung(played)
    assert played.exit_code == 0, played.output
