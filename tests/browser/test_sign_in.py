"""A dashboard with tokens: the page asks for one, once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from hangwatch_dashboard.config import Config
from tests.browser.conftest import Served, Watched
from tests.browser.test_rules import barriers
from tests.ports import free_port

READ_TOKEN = "a-read-token-of-some-length"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    database = str(tmp_path / "dashboard.db")
    config = Config(
        port=free_port(), database=database, ingest_token="an-ingest-token-of-some-length", read_token=READ_TOKEN
    )
    dashboard = Served(config)
    yield dashboard
    dashboard.stop()


def test_the_page_asks_for_the_token_once(browser: Browser, guarded: Served) -> None:
    context = browser.new_context()
    watch = Watched(context, guarded.url)
    watch.expected = ["401", "403"]
    page = context.new_page()
    # GIVEN a reader without a token
    page.goto(guarded.url)
    token = page.get_by_label("Read token")
    expect(token).to_be_visible()
    assert barriers(page) == []
    # WHEN a wrong one is given
    token.fill("something else altogether")
    page.get_by_role("button", name="Sign in").click()
    # THEN the page says so
    expect(page.get_by_role("alert")).not_to_be_empty()
    # WHEN the right one is given
    token.fill(READ_TOKEN)
    page.get_by_role("button", name="Sign in").click()
    # THEN the page is there, also after a reload, and says which token jobs need
    expect(page.get_by_text("HANGWATCH_TOKEN=INGEST_TOKEN hangwatch run")).to_be_visible()
    page.reload()
    expect(page.get_by_text("No job has reported yet")).to_be_visible()
    # AND no script can read it
    assert READ_TOKEN not in page.evaluate("document.cookie + JSON.stringify(localStorage)")
    # WHEN the reader signs out
    page.get_by_role("button", name="Sign out").click()
    expect(token).to_be_visible()
    context.close()
    watch.check()
