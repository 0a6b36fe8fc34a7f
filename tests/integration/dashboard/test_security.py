"""Who may do what: tokens, cookies, other pages, other names, and where the dashboard refuses to start."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from hangwatch_dashboard import auth
from hangwatch_dashboard.app import create_app
from hangwatch_dashboard.config import Config, ConfigError, Limits, is_loopback, notify_from, tokens_from
from tests.nodes import JSON, FakeNode, body

INGEST, READ, ADMIN = "ingest-0123456789abcdef", "read-0123456789abcdef", "admin-0123456789abcdef"
BATCH = "/api/v1/ingest/batch"


@pytest.fixture
def tokens(tmp_path: Path) -> Config:
    return Config(
        host="0.0.0.0",
        database=str(tmp_path / "d.db"),
        ingest_token=INGEST,
        read_token=READ,
        admin_token=ADMIN,
        static=tmp_path / "static",
    )


@pytest.fixture
def client(tokens: Config) -> Iterator[TestClient]:
    with TestClient(create_app(tokens), base_url="https://monitor.example") as made:
        yield made


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def batch() -> bytes:
    return body(FakeNode().batch(1e9))


@pytest.mark.parametrize(
    ("token", "sends", "reads", "deletes"),
    [
        ("", 401, 401, 401),
        ("wrong", 401, 401, 401),
        (INGEST, 200, 403, 403),
        (READ, 403, 200, 403),
        (ADMIN, 403, 200, 404),
    ],
)
def test_every_token_opens_its_own_doors(client: TestClient, token: str, sends: int, reads: int, deletes: int) -> None:
    headers = bearer(token) if token else {}
    assert client.post(BATCH, content=batch(), headers=JSON | headers).status_code == sends
    for path in ("/api/v1/jobs", "/api/v1/incidents", "/api/v1/about", "/metrics", "/api/v1/openapi.json"):
        assert client.get(path, headers=headers).status_code == reads, path
    assert client.delete("/api/v1/jobs/some-job", headers=headers).status_code == deletes
    assert client.get("/api/v1/nothing", headers=headers).status_code in (401, 403, 404)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/", "/jobs/x", "/api/v1/session"])
def test_what_says_nothing_of_jobs_is_open(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200


def test_a_browser_signs_in_and_out(client: TestClient) -> None:
    assert client.get("/api/v1/session").json() == {"required": True, "signed_in": False, "may_delete": False}
    answer = client.post("/api/v1/session", json={"token": READ})
    assert answer.json() == {"required": True, "signed_in": True, "may_delete": False}
    cookie = answer.headers["set-cookie"]
    assert READ not in cookie
    for part in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert part in cookie
    assert client.get("/api/v1/jobs").status_code == 200
    assert client.delete("/api/v1/jobs/some-job").status_code == 403
    assert client.post(BATCH, content=batch(), headers=JSON).status_code == 403
    assert client.delete("/api/v1/session").status_code == 204
    assert client.get("/api/v1/jobs").status_code == 401


@pytest.mark.parametrize("token", [INGEST, "wrong", "", None, 7, ["x"]])
def test_other_tokens_do_not_sign_in(client: TestClient, token: object) -> None:
    assert client.post("/api/v1/session", json={"token": token}).status_code == 401


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"{", b"[" * 4000])
def test_other_bodies_do_not_sign_in(client: TestClient, content: bytes) -> None:
    assert client.post("/api/v1/session", content=content, headers=JSON).status_code == 400


def test_forged_and_old_cookies_are_worth_nothing(tokens: Config) -> None:
    cookie = auth.new_session(tokens, auth.Role.READ, now=1e9)
    role, expires, mac = cookie.split(".")
    assert auth.role_of_session(tokens, cookie, 1e9 + 5) is auth.Role.READ
    forged = [
        f"admin.{expires}.{mac}",
        f"{role}.{int(expires) + 1}.{mac}",
        f"{role}.{expires}.{'0' * 64}",
        f"{role}.{expires}.",
        f"ingest.{expires}.{mac}",
        f"{role}.{'9' * 30}.{mac}",
        f"{role}.²³.{mac}",
        "",
        "...",
        "é",
    ]
    assert {auth.role_of_session(tokens, other, 1e9 + 5) for other in forged} == {auth.Role.NOBODY}
    assert auth.role_of_session(tokens, cookie, 1e9 + auth.SESSION_S + 1) is auth.Role.NOBODY
    assert auth.role_of_session(replace(tokens, read_token="another-0123456789"), cookie, 1e9) is auth.Role.NOBODY


def test_guessing_is_slowed_down(tokens: Config) -> None:
    app = create_app(tokens, clock=lambda: 1e9)  # all of it at one moment, however slow this machine is
    with TestClient(app, base_url="https://monitor.example") as client:
        answers = [client.get("/api/v1/jobs", headers=bearer(f"guess-{number}")).status_code for number in range(40)]
        assert answers[0] == 401
        assert answers[-1] == 429
        assert client.get("/api/v1/jobs", headers=bearer(READ)).status_code == 200


def test_what_browsers_are_told(client: TestClient) -> None:
    for path in ("/", "/api/v1/session", "/api/v1/jobs"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert client.get("/api/v1/session").headers["cache-control"] == "no-store"


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[TestClient]:
    config = Config(database=str(tmp_path / "d.db"), static=tmp_path / "static")
    with TestClient(create_app(config), base_url="http://127.0.0.1:8470") as made:
        yield made


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8470", "[", ""])
def test_on_loopback_other_names_are_not_answered(open_client: TestClient, host: str) -> None:
    assert open_client.get("/api/v1/jobs", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:1234", "127.0.0.1", "127.8.9.1:80", "[::1]:8470"])
def test_on_loopback_its_own_names_are(open_client: TestClient, host: str) -> None:
    assert open_client.get("/api/v1/jobs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:9999"},
    ],
)
def test_other_pages_can_change_nothing(open_client: TestClient, headers: dict[str, str]) -> None:
    assert open_client.post(BATCH, content=batch(), headers=JSON | headers).status_code == 403
    assert open_client.delete("/api/v1/jobs/some-job", headers=headers).status_code == 403
    same = {"origin": "http://127.0.0.1:8470", "sec-fetch-site": "same-origin"}
    assert open_client.post(BATCH, content=batch(), headers=JSON | same).status_code == 200


def test_readers_that_ask_too_often_are_slowed_down(tmp_path: Path) -> None:
    config = Config(database=str(tmp_path / "d.db"), limits=Limits(requests_per_s=2.0, streams=0))
    with TestClient(create_app(config, clock=lambda: 1e9), base_url="http://127.0.0.1:8470") as client:
        assert client.get("/api/v1/events").status_code == 429
        assert {client.get("/api/v1/jobs").status_code for _ in range(20)} == {200, 429}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"host": "0.0.0.0"}, "HANGWATCH_INGEST_TOKEN"),
        ({"host": "::"}, "HANGWATCH_INGEST_TOKEN"),
        ({"host": "monitor.example"}, "HANGWATCH_INGEST_TOKEN"),
        ({"ingest_token": INGEST}, "both tokens"),
        ({"read_token": READ}, "both tokens"),
        ({"ingest_token": READ, "read_token": READ}, "differ"),
        ({"ingest_token": "short", "read_token": READ}, "16 characters"),
        ({"ingest_token": "ü" * 20, "read_token": READ}, "ASCII"),
        ({"ingest_token": "new\nline-0123456789", "read_token": READ}, "ASCII"),
        ({"admin_token": ADMIN}, "protects nothing"),
        ({"certificate": "x"}, "certificate and a key"),
        ({"certificate": "/no/such", "key": "/no/such"}, "no such file"),
    ],
)
def test_where_it_does_not_start(values: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        create_app(Config(**values))  # type: ignore[arg-type]


def test_secrets_do_not_stand_in_the_configurations_text(tokens: Config) -> None:
    text = repr(replace(tokens, notify=("slack://hush",)))
    assert not any(secret in text for secret in (INGEST, READ, ADMIN, "hush"))


def test_tokens_come_from_variables_and_files(tmp_path: Path) -> None:
    (tmp_path / "read").write_text(f"{READ}\n")
    environment = {"HANGWATCH_INGEST_TOKEN": INGEST, "HANGWATCH_READ_TOKEN_FILE": str(tmp_path / "read")}
    assert tokens_from(environment) == {"ingest_token": INGEST, "read_token": READ}
    assert notify_from({"HANGWATCH_NOTIFY": "a://b c://d"}) == ("a://b", "c://d")
    (tmp_path / "notify").write_text("a://b\nc://d\n")
    assert notify_from({"HANGWATCH_NOTIFY_FILE": str(tmp_path / "notify")}) == ("a://b", "c://d")


def test_what_loopback_is() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "10.0.0.1", "localhost.evil", "")] == [False] * 4
