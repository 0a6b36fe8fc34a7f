"""Whose address a request counts for: the peer's, or the one that a trusted proxy names."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangwatch_dashboard import serve
from hangwatch_dashboard.config import Config, ConfigError, proxies_from
from tests.integration.dashboard.processes import Process
from tests.integration.dashboard.test_slow_senders import serving

TRIES = 60  # more than an address has, on however slow a machine
INGEST, READ = "ingest-0123456789abcdef", "read-0123456789abcdef"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(database=str(tmp_path / "d.db"), ingest_token=INGEST, read_token=READ, static=tmp_path)


def guesses(port: int, client: str = "127.0.0.1") -> set[int]:
    """What answers one client that shows wrong tokens, each time under another address by its own word."""
    found = set()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(client, 0))
    for number in range(TRIES):
        headers = {"authorization": f"Bearer guess-{number}", "x-forwarded-for": f"10.0.0.{number}"}
        connection.request("GET", "/api/v1/jobs", headers=headers)
        answer = connection.getresponse()
        answer.read()
        found.add(answer.status)
    connection.close()
    return found


def test_wrong_tokens_count_for_the_client_whatever_address_it_names(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's own variable, which opens it to every client
    with serving(config) as port:
        assert guesses(port) == {401, 429}


def test_a_trusted_proxy_says_whom_it_asks_for(config: Config) -> None:
    with serving(replace(config, trusted_proxies=("127.0.0.0/30",))) as port:
        assert guesses(port, "127.0.0.2") == {401}, "each of its clients has tries of its own"
        assert guesses(port, "127.0.0.9") == {401, 429}, "another address is not believed"


@pytest.fixture
def behind_a_proxy(tmp_path: Path) -> Iterator[Process]:
    process = Process(
        str(tmp_path / "d.db"),
        HANGWATCH_INGEST_TOKEN=INGEST,
        HANGWATCH_READ_TOKEN=READ,
        HANGWATCH_TRUSTED_PROXY="127.0.0.2",
    )
    yield process
    process.stop()


def test_the_variable_names_it_to_the_command(behind_a_proxy: Process) -> None:
    assert guesses(behind_a_proxy.port, "127.0.0.2") == {401}
    assert guesses(behind_a_proxy.port, "127.0.0.1") == {401, 429}


def test_proxies_are_separated_by_blanks_or_commas() -> None:
    assert proxies_from({"HANGWATCH_TRUSTED_PROXY": "127.0.0.1, ::1 10.0.0.0/8"}) == ("127.0.0.1", "::1", "10.0.0.0/8")
    assert proxies_from({}) == ()


@pytest.mark.parametrize("proxy", ["*", "proxy.example", "10.0.0.1/8"])
def test_what_is_no_address_is_refused(config: Config, proxy: str) -> None:
    with pytest.raises(ConfigError, match="no address or network"):
        serve.serve(replace(config, trusted_proxies=(proxy,)))
