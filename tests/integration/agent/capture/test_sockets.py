"""Bytes that the peer does not acknowledge: a link that is cut between two network namespaces."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator

import pytest

from hangwatch_agent.capture.proc import sockets
from hangwatch_agent.capture.proc.process import process_facts
from tests import needs
from tests.integration.agent.capture.conftest import Script

NEAR, FAR = f"near{os.getpid()}", f"far{os.getpid()}"
SEND = """
    import socket, sys, time
    if sys.argv[1] == "listen":
        server = socket.create_server(("10.77.0.2", 29000))
        print("ready", flush=True)
        connection, _ = server.accept()
        time.sleep(100)
    connection = socket.create_connection(("10.77.0.2", 29000))
    print("ready", flush=True)
    sys.stdin.readline()
    connection.sendall(bytes(5000))
    time.sleep(100)
    """


@pytest.fixture
def far() -> Iterator[str]:
    """A network namespace at the other end of a veth pair: 10.77.0.1 here, 10.77.0.2 there."""
    needs.root()
    ip = str(needs.program("ip"))
    name = f"hangwatch-{os.getpid()}"

    def run(*words: str) -> None:
        subprocess.run([ip, *words], check=True)

    run("netns", "add", name)
    try:
        run("link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", name)
        run("addr", "add", "10.77.0.1/24", "dev", NEAR)
        run("link", "set", NEAR, "up")
        run("-n", name, "addr", "add", "10.77.0.2/24", "dev", FAR)
        run("-n", name, "link", "set", FAR, "up")
        yield name
    finally:
        run("link", "delete", NEAR)
        run("netns", "delete", name)


def test_a_cut_link_shows_on_the_sender(script: Script, far: str) -> None:
    listening = script(SEND, "listen", prefix=(str(needs.program("ip")), "netns", "exec", far))
    sending = script(SEND, "send", stdin=subprocess.PIPE)
    assert sockets.network_namespace(listening.pid) != sockets.network_namespace(sending.pid)
    assert sockets.listener(29000, seen_from=listening.pid) == sockets.Listener(True, listening.pid)
    assert not sockets.listener(29000, seen_from=sending.pid).listening
    subprocess.run([needs.program("ip"), "link", "set", NEAR, "down"], check=True)
    assert sending.stdin is not None
    sending.stdin.close()  # now it sends
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        (stuck,) = process_facts(sending.pid).sockets
        if stuck.unacknowledged and stuck.retransmits:
            break
        time.sleep(0.1)
    assert (stuck.remote, stuck.state, stuck.unacknowledged) == ("10.77.0.2:29000", "established", 5000)
    assert stuck.retransmits > 0
    assert all(entry.unacknowledged == 0 for entry in process_facts(listening.pid).sockets)
