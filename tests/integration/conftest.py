from __future__ import annotations

import os

import pytest


def leave_unmeasured(patch: pytest.MonkeyPatch) -> None:
    """No process that is started from here on is measured for coverage.

    That costs them time, and what ranks and watchdogs run is measured in most tests of tests/integration/agent.
    """
    for name in [name for name in os.environ if name.startswith("COVERAGE_PROCESS")]:
        patch.delenv(name)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_unmeasured(monkeypatch)
