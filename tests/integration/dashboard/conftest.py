"""A dashboard in this process, once on SQLite and once on a real PostgreSQL: every test here holds for both."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from hangwatch.model import Judgement, Snapshot
from hangwatch_dashboard import captures, live_node, watch
from hangwatch_dashboard.app import create_app
from hangwatch_dashboard.config import Config
from hangwatch_dashboard.store.engine import url_of
from tests import needs
from tests.examples import uneven_steps_judgement
from tests.nodes import Dashboard

SCRIPT = Path(__file__).parents[3] / "scripts" / "postgres-for-tests"
SILENT_S = 120.0  # a node as quiet as that is silent


@dataclass
class Judge:
    """Stands in for the diagnosis: remembers what it was shown, and says what it is told to say."""

    says: Judgement = field(default_factory=uneven_steps_judgement)
    seen: list[Snapshot] = field(default_factory=list)

    def __call__(self, snapshot: Snapshot) -> Judgement:
        self.seen.append(snapshot)
        return self.says


@dataclass
class Clock:
    """The dashboard's clock, which a test may set forward or stop: what takes minutes need not be raced against."""

    ahead_s: float = 0.0
    stopped_at: float | None = None

    def __call__(self) -> float:
        return (time.time() if self.stopped_at is None else self.stopped_at) + self.ahead_s

    def stop(self) -> None:
        self.stopped_at = time.time()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server for this test session."""
    needs.program("initdb")
    folder = Path(tempfile.mkdtemp(prefix="hangwatch-postgres-", dir="/tmp"))  # the path of a user's own may be closed
    started = subprocess.run([SCRIPT, "start", folder], capture_output=True, text=True, check=False)
    assert started.returncode == 0, started.stderr
    yield started.stdout.strip()
    subprocess.run([SCRIPT, "stop", folder], check=True)


EMPTY = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid();
DROP SCHEMA public CASCADE;
CREATE SCHEMA public;
"""


@pytest.fixture
def postgres_database(postgres: str) -> str:
    """A database on that server, with no table and no connection: emptied, for making one costs ten times as much."""
    engine = sa.create_engine(url_of(postgres), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(EMPTY))
    engine.dispose()
    return postgres


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "dashboard.db")
    found: str = request.getfixturevalue("postgres_database")
    return found


@pytest.fixture
def config(database: str, tmp_path: Path) -> Config:
    return Config(database=database, static=tmp_path / "static")


@pytest.fixture
def dashboard(config: Config, judge: Judge, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(watch, "TICK_S", 0.1)
    # The tests' nodes send when a test says so, and the machine may be busy with something else.
    monkeypatch.setattr(live_node, "SILENT_AFTER_S", SILENT_S)
    for deadline in ("DEADLINE_S", "LONGEST_S"):
        monkeypatch.setattr(captures, deadline, 120.0)
    app = create_app(config, clock=clock, diagnose=judge)
    with TestClient(app, base_url="http://127.0.0.1:8470") as client:
        yield Dashboard(client, app.state.service)
