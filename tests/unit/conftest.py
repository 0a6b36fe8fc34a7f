"""What holds for all unit tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hangwatch import judge as diagnosis
from hangwatch.judge import Answer, Case


@pytest.fixture(autouse=True)
def faults_are_raised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that fails fails the test; a user's verdict goes on without it (marker `faults_are_told`)."""

    def asked(ask: Callable[[Case], Answer], case: Case, faults: list[str]) -> Answer | None:
        return ask(case)

    if "faults_are_told" not in request.keywords:
        monkeypatch.setattr(diagnosis, "asked", asked)
