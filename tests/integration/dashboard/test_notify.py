"""Telling people: once an incident, once more when it is over, and never in the way of a job."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hangwatch.model import Status
from hangwatch_dashboard import notify
from hangwatch_dashboard.app import create_app
from hangwatch_dashboard.config import Config, ConfigError
from hangwatch_dashboard.notify import Message, apprise_notifier, message_of
from tests.examples import uneven_steps
from tests.nodes import Dashboard, FakeNode


@dataclass
class Notifier:
    """Remembers messages; fails or hangs when told to."""

    sent: list[Message] = field(default_factory=list)
    works: bool = True
    hangs: bool = False
    called: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, message: Message) -> bool:
        self.called.set()
        if self.hangs:
            self.let_go.wait(100)
        if not self.works:
            raise OSError("unreachable")
        self.sent.append(message)
        return True


@pytest.fixture
def notifier() -> Notifier:
    return Notifier()


@pytest.fixture
def telling(database: str, notifier: Notifier, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(notify, "POLL_S", 0.1)
    monkeypatch.setattr(notify, "FIRST_PAUSE_S", 0.1)
    app = create_app(Config(database=database, public_url="https://monitor.example/"), notifier=notifier)
    with TestClient(app, base_url="http://127.0.0.1:8470") as client:
        yield Dashboard(client, app.state.service)


def hang(dashboard: Dashboard) -> FakeNode:
    node = FakeNode(ranks=(0, 1, 2, 3))
    dashboard.send(node)
    assert dashboard.post("incident", node.incident(uneven_steps())).status_code == 200
    return node


def test_one_message_an_incident_and_one_when_it_recovers(telling: Dashboard, notifier: Notifier) -> None:
    node = hang(telling)
    telling.until(lambda: notifier.sent)
    telling.post("incident", node.incident(uneven_steps()))
    ended = replace(uneven_steps(), status=Status.RECOVERED, closed_at=uneven_steps().opened_at + 60)
    telling.post("incident", node.incident(ended))
    telling.post("incident", node.incident(ended))
    telling.until(lambda: len(notifier.sent) == 2)
    time.sleep(0.5)
    opened, recovered = notifier.sent
    assert opened.title.endswith("HUNG, proven, 3.1 s after the last step; cause proven")
    assert "RECOVERED" in recovered.title
    assert "Rank 3 ran out of data" in opened.body
    assert "fix: " in opened.body
    assert "who: rank 3, pid 4711 on node-b" in opened.body
    assert "more: https://monitor.example/incidents/3f2a" in opened.body


def test_a_dead_notifier_is_tried_again_and_blocks_nothing(telling: Dashboard, notifier: Notifier) -> None:
    notifier.works = False
    hang(telling)
    time.sleep(0.5)
    assert telling.job["state"] == "hung"
    notifier.works = True
    telling.until(lambda: notifier.sent)


def test_a_hanging_notifier_blocks_nothing(telling: Dashboard, notifier: Notifier) -> None:
    notifier.hangs = True
    hang(telling)
    assert notifier.called.wait(60)
    assert telling.job["state"] == "hung"
    assert telling.send(FakeNode("other", job="other"))["accepted"] == 0
    assert notifier.sent == [], "it hangs still"
    notifier.let_go.set()


def test_a_message_that_never_goes_out_is_given_up(
    telling: Dashboard, notifier: Notifier, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notify, "MOST_ATTEMPTS", 2)
    notifier.works = False
    hang(telling)
    assert telling.until(lambda: "giving up" in caplog.text)


def test_hostile_sentences_mention_no_user() -> None:
    evil = "@everyone <!channel>\n\x1b[31m" + "x" * 5000
    incident = uneven_steps()
    incident = replace(incident, verdict=replace(incident.verdict, summary=evil, fix="", culprits=()))
    message = message_of(incident, "http://x")
    assert "@everyone" not in message.body
    assert "<!channel" not in message.body
    assert "\x1b" not in message.body
    assert message.body.count("\n") == 1
    assert len(message.body) < 2000


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise's own imports
def test_apprise_reaches_a_webhook() -> None:
    got: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *ignored: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        send = apprise_notifier([f"json://127.0.0.1:{server.server_address[1]}/hook"])
        assert send(message_of(uneven_steps(), "http://monitor"))
    finally:
        server.shutdown()
        server.server_close()
    assert "Rank 3 ran out of data" in got[0]["message"]
    assert got[0]["type"] == "failure"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (Status.HUNG, "failure"),
        (Status.FAILED, "failure"),
        (Status.LINGERING, "warning"),
        (Status.RECOVERED, "success"),
    ],
)
def test_messages_are_of_the_kind_of_what_happened(status: Status, kind: str) -> None:
    assert message_of(replace(uneven_steps(), status=status), "http://x").kind == kind


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_address_that_means_nothing_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="address 1") as refused:
        apprise_notifier(["nonsense-secret"])
    assert "secret" not in str(refused.value).replace("may hold a secret", "")
