"""The gallery for real: every script hangs, and the verdict names cause, culprit and evidence; its look-alike does not.

Two hours of jobs on a small machine, so `make test` runs one case of most kinds and `make gallery` all of them; the
benchmark runs them too, several times, with the culprit moved to other ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from hangwatch.gallery import CASES, Case
from hangwatch.model import Certainty
from tests import needs
from tests.integration.playing import PATIENT, assert_not_hung, blamed, play

pytestmark = pytest.mark.usefixtures("unmeasured")

ALWAYS = {
    "died-before-init",
    "skipped-backward-nan",
    "rank-frozen",
    "rank-killed",
    "worker-stopped",
    "exit-heartbeat-thread",
}
ALWAYS_HEALTHY = {"lone-validation", "worker-on-socket"}


ON_GLOO = tuple(case for case in CASES if case.backend == "gloo")  # tests/integration/test_standin.py has the others


def cases(always: Iterable[str], among: Iterable[Case] = ON_GLOO) -> list[object]:
    """All of them; those that are not in `always` only for `make gallery`."""
    hanging = [case for case in among if case.status != "warned"]
    gallery = pytest.mark.gallery
    return [pytest.param(case, id=case.name, marks=() if case.name in always else gallery) for case in hanging]


def prepare(case: Case) -> None:
    if {"root", "namespaces"} & set(case.needs):
        needs.root()
    if "iproute2" in case.needs:
        needs.program("ip")


@pytest.mark.parametrize("case", cases(ALWAYS))
def test_the_verdict_names_cause_and_culprit(case: Case, tmp_path: Path) -> None:
    prepare(case)
    played = play(case, tmp_path, linger_after=4.0)
    incident = played.incident
    if case.status == "waiting":
        assert_not_hung(played)
        return
    assert incident is not None, played.output
    assert incident.verdict.cause == case.cause, played.verdict
    assert incident.status == case.status, played.verdict
    assert incident.verdict.evidence
    assert incident.verdict.fix
    if blamed(incident) or incident.verdict.certainty is Certainty.PROVEN:
        expected = case.culprits(0 if case.culprit is None else case.culprit, case.ranks)
        assert tuple(blamed(incident)) == expected, played.verdict


@pytest.mark.parametrize("case", cases(ALWAYS_HEALTHY))
def test_the_look_alike_is_not_called_hung(case: Case, tmp_path: Path) -> None:
    prepare(case)
    played = play(case, tmp_path, healthy=True, stall_after=PATIENT, seconds=60)
    assert_not_hung(played)
    assert played.exit_code in (None, 0), played.output
