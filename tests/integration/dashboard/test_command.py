"""`hangwatch dashboard` where it cannot start: one line that says what to do, and exit code 2."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from hangwatch.commands import main
from hangwatch_dashboard import serve
from hangwatch_dashboard.config import Config, default_database


@pytest.fixture(autouse=True)
def _no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INGEST_TOKEN", "READ_TOKEN", "ADMIN_TOKEN", "NOTIFY", "DATABASE", "STATIC", "TRUSTED_PROXY"):
        monkeypatch.delenv(f"HANGWATCH_{name}", raising=False)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["dashboard", *arguments]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("hangwatch: ")
    return line


def test_elsewhere_than_on_loopback_without_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert "HANGWATCH_INGEST_TOKEN" in said(capsys, "--host", "0.0.0.0")


def test_on_a_port_that_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = said(capsys, "--port", str(port), "--database", str(tmp_path / "d.db"))
    assert f"cannot listen on 127.0.0.1 port {port}: address already in use" in line


def test_with_a_database_that_cannot_be_reached(capsys: pytest.CaptureFixture[str]) -> None:
    line = said(capsys, "--database", "postgresql://hangwatch:secret@127.0.0.1:1/x")
    assert "cannot be used" in line
    assert "secret" not in line


def test_with_a_file_that_is_no_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "d.db").write_text("this is no database, but long enough to be looked at as one " * 20)
    assert "file is not a database" in said(capsys, "--database", str(tmp_path / "d.db"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise's own imports
def test_with_an_address_that_means_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = said(capsys, "--notify", "nonsense", "--database", str(tmp_path / "d.db"))
    assert "address 1 of those to notify" in line


def test_without_what_it_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hangwatch_dashboard", None)
    assert "pip install '.[dashboard]'" in said(capsys)


def test_what_it_is_given_reaches_the_service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[Config] = []
    monkeypatch.setattr(serve, "serve", given.append)
    monkeypatch.setenv("HANGWATCH_INGEST_TOKEN", "ingest-0123456789")
    monkeypatch.setenv("HANGWATCH_READ_TOKEN", "read-0123456789ab")
    monkeypatch.setenv("HANGWATCH_NOTIFY", "json://a json://b")
    monkeypatch.setenv("HANGWATCH_STATIC", str(tmp_path))
    assert main(["dashboard", "--host", "::", "--port", "1", "--notify", "json://c", "--public-url", "https://x/"]) == 0
    (config,) = given
    assert (config.host, config.port, config.url, config.static) == ("::", 1, "https://x", tmp_path)
    assert config.notify == ("json://a", "json://b", "json://c")
    assert config.ingest_token == "ingest-0123456789"
    assert config.database == default_database()


def test_addresses_that_people_are_told() -> None:
    assert Config().url == "http://127.0.0.1:8470"
    assert Config(host="::1").url == "http://[::1]:8470"
    assert Config(certificate="c", key="k", host="monitor").url == "https://monitor:8470"
