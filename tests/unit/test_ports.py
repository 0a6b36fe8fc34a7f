"""A port that is free now, and still free when a rank comes to listen on it."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from hangwatch import ports


def test_it_is_none_that_the_kernel_gives_to_others() -> None:
    first = int(ports.GIVEN.read_text().split()[0])
    if first <= ports.FIRST:
        pytest.skip("this kernel gives all ports to others")
    assert all(ports.FIRST <= ports.free_port() < first for _ in range(20))


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_one_on_which_somebody_listens_is_passed_over(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    other = ports.free_port()
    with socket.create_server((address, 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(random.SystemRandom, "sample", lambda *_: [taken, other])
        assert ports.free_port() == other


@pytest.mark.parametrize("given", ["1024 65535", "", None])
def test_where_the_kernel_gives_all_of_them_it_is_any(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: str | None
) -> None:
    monkeypatch.setattr(ports, "GIVEN", tmp_path / "range")
    if given is not None:
        ports.GIVEN.write_text(given)
    with socket.create_server(("", ports.free_port())) as server:
        assert server.getsockname()[1] > 0
