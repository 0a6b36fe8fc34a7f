"""What holds for all unit tests."""

from __future__ import annotations

import pytest

from hangwatch import judge as diagnosis
from hangwatch.judge import Case, Finding
from hangwatch.rules.finding import Rule


@pytest.fixture(autouse=True)
def faults_are_raised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that fails fails the test; a user's verdict goes on without it (marker `faults_are_told`)."""

    def asked(rule: Rule, case: Case, faults: list[str]) -> Finding | None:
        return rule(case)

    if "faults_are_told" not in request.keywords:
        monkeypatch.setattr(diagnosis, "asked", asked)
