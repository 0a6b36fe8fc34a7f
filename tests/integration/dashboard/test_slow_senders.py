"""Clients that send half of something, over real connections: they cost themselves, and no other client."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import uvicorn

from hangwatch_dashboard import bodies, protocol
from hangwatch_dashboard.app import create_app
from hangwatch_dashboard.config import Config
from hangwatch_dashboard.protocol import Protocol
from hangwatch_dashboard.serve import settings_of
from tests.examples import uneven_steps
from tests.integration.dashboard.processes import until
from tests.nodes import JSON, FakeNode, body

SLOW_S = 60.0  # longer than a test waits for anything else


@contextmanager
def serving(config: Config) -> Iterator[int]:
    """A dashboard that is served as `hangwatch dashboard` serves it. Yields its port."""
    server = uvicorn.Server(settings_of(create_app(config), config))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(60)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    with serving(Config(database=str(tmp_path / "d.db"), static=tmp_path)) as found:
        yield found


def half_a_capture(port: int, client: str, more: str = "") -> socket.socket:
    """A connection that has sent a capture's headers, `more` of them, and the first bytes of its body."""
    connection = socket.create_connection(("127.0.0.1", port), source_address=(client, 0))
    connection.sendall(
        b"POST /api/v1/ingest/capture HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: 100000\r\n" + more.encode() + b"\r\n{"
    )
    return connection


def received(connection: socket.socket, end: bytes = b"") -> bytes:
    """What arrives up to `end`, in as many pieces as it comes; without one, until the connection ends."""
    answer = b""
    while not (end and end in answer) and (piece := connection.recv(4000)):
        answer += piece
    return answer


def send_incident(port: int, client: str) -> int:
    node = FakeNode(ranks=(0, 1, 2, 3))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW_S / 2, source_address=(client, 0))
    for kind, record in (("batch", node.batch(time.time())), ("incident", node.incident(uneven_steps()))):
        connection.request("POST", f"/api/v1/ingest/{kind}", body(record), JSON)
        answer = connection.getresponse()
        answer.read()
    connection.close()
    return answer.status


def test_half_sent_captures_of_one_client_block_no_other(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", SLOW_S)
    monkeypatch.setattr(bodies, "PAUSE_S", SLOW_S)
    with ExitStack() as open_ones:
        for _ in range(12):
            open_ones.enter_context(half_a_capture(port, "127.0.0.2"))
        time.sleep(0.5)
        assert send_incident(port, "127.0.0.3") == 200


def test_half_sent_captures_that_may_be_of_any_size_block_no_other(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN bodies of no known length, or as long as allowed THEN their client fills its own share only."""
    monkeypatch.setattr(bodies, "BODY_S", SLOW_S)
    monkeypatch.setattr(bodies, "PAUSE_S", SLOW_S)
    lengths = ("transfer-encoding: chunked", f"content-length: {32 << 20}", f"content-length: {'0' * 30}{32 << 20}")
    with ExitStack() as open_ones:
        for number in range(12):
            connection = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
            open_ones.enter_context(connection)
            head = "POST /api/v1/ingest/capture HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            connection.sendall(f"{head}{lengths[number % 3]}\r\n\r\n1\r\n".encode())
        time.sleep(0.5)
        assert send_incident(port, "127.0.0.3") == 200


def test_a_client_that_names_other_addresses_has_one_share(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", SLOW_S)
    monkeypatch.setattr(bodies, "PAUSE_S", SLOW_S)
    with ExitStack() as open_ones:
        for number in range(12):
            # uvicorn believes 127.0.0.1 unless it is told not to
            open_ones.enter_context(half_a_capture(port, "127.0.0.1", f"x-forwarded-for: 10.0.0.{number}\r\n"))
        time.sleep(0.5)
        assert send_incident(port, "127.0.0.3") == 200


def test_a_body_that_does_not_arrive_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PAUSE_S", 0.3)
    with half_a_capture(port, "127.0.0.1") as connection:
        connection.settimeout(SLOW_S)
        answer = received(connection, b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in answer
    assert send_incident(port, "127.0.0.1") == 200, "its place is free again"


def test_a_body_that_trickles_is_given_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 1.0)
    with half_a_capture(port, "127.0.0.1") as connection:
        connection.settimeout(0.05)
        deadline = time.monotonic() + SLOW_S
        answer = b""
        while not answer and time.monotonic() < deadline:
            connection.sendall(b" ")
            with suppress(TimeoutError):
                answer = connection.recv(1000)
        assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "])
def test_headers_that_do_not_arrive_end_the_connection(
    port: int, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(protocol, "HEADERS_S", 0.3)
    with socket.create_connection(("127.0.0.1", port), timeout=SLOW_S) as connection:
        connection.sendall(first)
        answer = received(connection)
        assert answer.startswith(b"HTTP/1.1 408 ")
    assert until(lambda: not Protocol.waiting)


def test_half_headers_after_a_whole_request_end_the_connection_too(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEADERS_S", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=SLOW_S) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert b'"ok"' in received(connection, b'"ok"')
        connection.sendall(b"GET /healthz HT")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_client_has_a_share_of_half_sent_headers(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "EACH", 4)
    with ExitStack() as open_ones:
        for _ in range(4):
            open_ones.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=SLOW_S, source_address=("127.0.0.2", 0))
            )
        until(lambda: Protocol.waiting["127.0.0.2"] == 4)
        one_more = socket.create_connection(("127.0.0.1", port), timeout=SLOW_S, source_address=("127.0.0.2", 0))
        with one_more:
            assert one_more.recv(10) == b"", "one connection too many is closed"
        assert send_incident(port, "127.0.0.3") == 200
