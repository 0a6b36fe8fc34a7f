"""A port that is free now, and that stays free until a rank listens on it seconds later."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from hangwatch import ports


def test_a_free_port_lies_below_the_range_of_the_kernel() -> None:
    first = int(ports.GIVEN.read_text().split()[0])
    if first <= ports.FIRST:
        pytest.skip("the range of this kernel has all ports")
    assert all(ports.FIRST <= ports.free_port() < first for _ in range(20))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_with_a_listener_is_not_free(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    other = ports.free_port()
    with socket.create_server((address, 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(random.SystemRandom, "sample", lambda *_: [taken, other])
        assert ports.free_port() == other


@pytest.mark.parametrize("given", ["1024 65535", "", None])
def test_any_port_is_taken_where_the_range_of_the_kernel_has_all_or_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    monkeypatch.setattr(ports, "GIVEN", tmp_path / "range")
    if given is not None:
        ports.GIVEN.write_text(given)
    with socket.create_server(("", ports.free_port())) as server:
        assert server.getsockname()[1] > 0
