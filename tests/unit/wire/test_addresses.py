from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangwatch.model import Job
from hangwatch.settings import Settings
from hangwatch.wire import addresses
from hangwatch_agent.dashboard_client.connection import AddressError, Connection
from hangwatch_agent.watchdog import assemble
from hangwatch_agent.watchdog.incidents import Incidents


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://monitor:8470", "http://monitor:8470"),
        ("https://mia:geheim@monitor:8470/below?token=x#y", "https://monitor:8470/below"),
        ("mia:geheim@monitor:8470", "monitor:8470"),
        ("http://mia:ge/heim@monitor/", "http://monitor/"),
        ("http://[::1]:8470", "http://[::1]:8470"),
        ("", ""),
    ],
)
def test_user_and_password_are_not_shown(address: str, shown: str) -> None:
    assert addresses.shown(address) == shown


@given(st.text(max_size=30))
def test_nothing_makes_it_fail(text: str) -> None:
    assert "geheim" not in addresses.shown(f"http://mia:geheim@{text.replace('geheim', '')}")
    addresses.exposes_token(text)


@pytest.mark.parametrize(
    ("address", "exposed"),
    [
        ("http://monitor:8470", True),
        ("monitor:8470", True),
        ("http://10.0.0.7", True),
        ("https://monitor", False),
        ("http://127.0.0.1:8470", False),
        ("http://localhost:8470", False),
        ("http://[::1]:8470", False),
        ("http://[:x", False),
    ],
)
def test_a_token_in_the_clear(address: str, exposed: bool) -> None:
    assert addresses.exposes_token(address) is exposed


@pytest.mark.parametrize(
    "address", ["ftp://mia:geheim@x", "http://mia:geheim@x:port", "http://mia:geheim@", "http://mia:geheim@[x"]
)
def test_an_address_that_is_none_is_named_without_its_password(address: str) -> None:
    with pytest.raises(AddressError) as caught:
        Connection(address, "")
    assert "geheim" not in str(caught.value)
    assert "mia" not in str(caught.value)


@pytest.mark.parametrize(("token", "warned"), [("a-token-of-16-chars", True), ("", False)])
def test_a_token_that_travels_in_the_clear_is_warned_of(tmp_path: Path, token: str, warned: bool) -> None:
    said = io.StringIO()
    settings = Settings(dashboard="http://mia:geheim@host.invalid:1", token=token, report_dir=str(tmp_path))
    made = assemble._link(settings, Job("j", "j", 1, started_at=time.time()), Incidents(str(tmp_path), said))
    assert made is not None
    made.close(0)
    assert (
        "warning: the token travels in the clear to http://host.invalid:1; use https://" in said.getvalue()
    ) is warned
    assert "geheim" not in said.getvalue()
