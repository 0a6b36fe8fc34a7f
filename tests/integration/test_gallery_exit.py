"""The Exit table for real: every case lingers, and the verdict names what keeps it; look-alikes do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.gallery import Case
from hangwatch.model import Stage
from tests.integration.playing import assert_not_hung, play
from tests.integration.tables import assert_as_expected, cases_of, prepare

pytestmark = pytest.mark.gallery

EVIDENCE = {
    "exit-heartbeat-thread": "thread 'heartbeat'",
    "exit-writer-thread": "is in threading._shutdown",
    "exit-child-process": "is in state S",
    "exit-queue": "feeder thread of rank",
    "exit-handler": "is in an exit handler",
    "exit-destructor": "is taking its interpreter down",
    "exit-orphan": "open for writing",
    "destroyed-early": "is past destroy_process_group",
    "launcher-order": "is a zombie",
    "output-pipe-full": "to descriptor 1",
}


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", cases_of(Stage.EXIT), ids=lambda case: case.name)
def test_the_verdict_names_cause_and_culprit(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(case, monkeypatch)
    assert_as_expected(case, play(case, tmp_path, seconds=180, linger_after=4.0), EVIDENCE[case.name])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", ["exit-handler", "exit-orphan", "launcher-order", "output-pipe-full"])
def test_another_rank_is_named_when_another_is_at_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(case for case in cases_of(Stage.EXIT) if case.name == name)
    prepare(case, monkeypatch)
    assert_as_expected(
        case, play(case, tmp_path, ranks=3, culprit=2, seconds=180, linger_after=4.0), "", ranks=3, culprit=2
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("case", cases_of(Stage.EXIT, healthy=True), ids=lambda case: case.name)
def test_the_look_alike_is_not_called_lingering(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(case, monkeypatch, {"HANGWATCH_LINGER_AFTER": "15"})
    played = play(case, tmp_path, healthy=True, stall_after=30.0, seconds=180)
    assert_not_hung(played)
    assert played.exit_code == 0, played.output
