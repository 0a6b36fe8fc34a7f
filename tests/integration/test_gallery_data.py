"""The Data table for real: every case hangs or fails, and the verdict names the worker; look-alikes do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.gallery import Case
from hangwatch.model import Stage
from tests.integration.playing import assert_not_hung, play
from tests.integration.tables import assert_as_expected, cases_of, prepare

pytestmark = pytest.mark.gallery

EVIDENCE = {
    "worker-on-socket": "on sample 491",
    "worker-on-decoder": "is at __iter__",
    "fork-with-lock": "and it has no other thread",
    "fork-with-openmp": "that only another thread of it could let go, and",
    "worker-killed": "killed by signal",
    "worker-killed-tolerated": "killed by signal",
    "worker-stopped": "is in state T at __getitem__",
    "worker-stopped-files": "is in state T at __getitem__",
    "descriptors": "ulimit -n",
    "descriptors-tolerated": "ulimit -n",
    "shared-memory": "--shm-size",
}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", cases_of(Stage.DATA), ids=lambda case: case.name)
def test_the_verdict_names_cause_and_culprit(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(case, monkeypatch)
    assert_as_expected(case, play(case, tmp_path, seconds=180), EVIDENCE[case.name])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["worker-on-socket", "worker-stopped", "worker-killed"])
def test_another_rank_is_named_when_another_is_at_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in cases_of(Stage.DATA) if case.name == name)
    prepare(case, monkeypatch)
    assert_as_expected(case, play(case, tmp_path, ranks=3, culprit=0, seconds=180), "", ranks=3, culprit=0)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", cases_of(Stage.DATA, healthy=True), ids=lambda case: case.name)
def test_the_look_alike_is_not_called_hung(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(case, monkeypatch)
    played = play(case, tmp_path, healthy=True, stall_after=30.0, seconds=180)
    assert_not_hung(played)
    assert played.exit_code == 0, played.output
