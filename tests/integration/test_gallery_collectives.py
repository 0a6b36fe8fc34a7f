"""The Collectives table for real: every cause's first script hangs, and the verdict names cause, culprit and evidence.

The other shapes of each cause, with the culprit moved, are run by `hangwatch bench`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.diagnosis.causes import cause
from hangwatch.gallery import CASES, Case
from hangwatch.records import Certainty, Stage, Status
from tests import needs
from tests.integration.playing import assert_not_hung, blamed, play

PATIENT = 30.0  # --stall-after for look-alikes: long enough for a busy machine, as a user's default is


def collectives() -> list[Case]:
    """The first case of every cause whose stage is the step."""
    first: dict[str, Case] = {}
    for case in CASES:
        if cause(case.cause).stage in (Stage.STEP, None) and case.status != "warned":
            first.setdefault(case.cause, case)
    return list(first.values())


def prepare(case: Case) -> None:
    if "root" in case.needs:
        needs.root()
    if "iproute2" in case.needs:
        needs.program("ip")


@pytest.mark.slow
@pytest.mark.parametrize("case", collectives(), ids=lambda case: case.name)
def test_the_verdict_names_cause_and_culprit(case: Case, tmp_path: Path) -> None:
    prepare(case)
    if case.status == "waiting":
        pytest.skip("slow, not hung: see the look-alikes")
    played = play(case, tmp_path)
    incident = played.incident
    assert incident is not None, played.output
    assert incident.verdict.cause == case.cause, played.verdict
    expected = case.culprits(0 if case.culprit is None else case.culprit, case.ranks)
    if incident.verdict.certainty is Certainty.PROVEN or blamed(incident):
        assert tuple(blamed(incident)) == expected, played.verdict
    assert incident.status == case.status, played.verdict
    assert incident.verdict.evidence
    assert incident.verdict.fix
    if case.step is not None and incident.verdict.step.epoch is not None and incident.verdict.step.batch is not None:
        assert incident.verdict.step.epoch == case.step[0], played.verdict


@pytest.mark.slow
@pytest.mark.parametrize("case", collectives(), ids=lambda case: case.name)
def test_the_look_alike_is_not_called_hung(case: Case, tmp_path: Path) -> None:
    prepare(case)
    played = play(case, tmp_path, healthy=True, stall_after=PATIENT, seconds=60)
    assert_not_hung(played)
    assert played.exit_code in (None, 0), played.output
    assert Status.HUNG not in {played.incident.status} if played.incident else True
