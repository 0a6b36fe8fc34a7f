from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hangwatch.records import Judgement, Snapshot
from hangwatch_dashboard.app import create_app
from hangwatch_dashboard.config import Config
from hangwatch_dashboard.service import Service
from tests.examples import uneven_steps_judgement
from tests.unit.dashboard.nodes import Dashboard


@dataclass
class Judge:
    """Stands in for the diagnosis: remembers what it was shown, and says what it is told to say."""

    says: Judgement = field(default_factory=uneven_steps_judgement)
    seen: list[Snapshot] = field(default_factory=list)

    def __call__(self, snapshot: Snapshot) -> Judgement:
        self.seen.append(snapshot)
        return self.says


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(database=str(tmp_path / "dashboard.db"), static=tmp_path / "static")


@pytest.fixture
def dashboard(config: Config, judge: Judge) -> Iterator[Dashboard]:
    app = create_app(config, diagnose=judge)
    with TestClient(app, base_url="http://127.0.0.1:8470") as client:
        service: Service = app.state.service
        yield Dashboard(client, service)
