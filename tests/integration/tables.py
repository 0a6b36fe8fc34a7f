"""What the tests of the gallery's tables share: which cases, what they need, and what their verdict should be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hangwatch.catalogue import cause
from hangwatch.gallery import CASES, Case
from hangwatch.model import Stage
from tests import needs
from tests.integration.playing import Played, blamed


def cases_of(stage: Stage, *, healthy: bool = False) -> list[Case]:
    """The cases whose cause belongs to one stage; with `healthy`, those that have a look-alike."""
    found = [case for case in CASES if cause(case.cause).stage is stage and case.backend == "gloo"]
    return [case for case in found if not healthy or case.healthy_args or case.healthy_launch is not None]


def prepare(case: Case, monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str] | None = None) -> None:
    """Skip what this machine cannot do, and set hangwatch's own settings for the run."""
    if "root" in case.needs:
        needs.root()
    if "namespaces" in case.needs:
        needs.program("unshare")
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)


def assert_as_expected(
    case: Case, played: Played, evidence: str, *, ranks: int | None = None, culprit: int | None = None
) -> None:
    """Cause, culprits, their kind of process and place, the status, and a sentence of the evidence."""
    incident = played.incident
    assert incident is not None, played.output
    verdict = incident.verdict
    assert verdict.cause == case.cause, played.verdict
    chosen = culprit if culprit is not None else case.culprit or 0
    assert tuple(blamed(incident)) == case.culprits(chosen, ranks or case.ranks), played.verdict
    assert {who.process for who in verdict.culprits} <= {case.process}, verdict.culprits
    places = {who.where.function for who in verdict.culprits if who.where is not None}
    assert not places or not case.where or case.where in places, places
    assert all(who.pid for who in verdict.culprits) or case.cause == "rendezvous-missing-ranks", verdict.culprits
    assert incident.status == case.status, played.verdict
    assert incident.stage is cause(case.cause).stage
    assert evidence in played.verdict
