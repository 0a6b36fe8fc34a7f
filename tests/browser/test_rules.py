"""What must hold for every page: no barrier, no style or script from elsewhere, quick, and small."""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, CDPSession, Page, expect
from starlette.applications import Starlette

from tests.browser.conftest import ALL, BOTH, PATIENCE_S, STATIC, Screen, Served, fits, until
from tests.browser.fleet import Fleet
from tests.browser.large import KEY, app
from tests.browser.test_job import hang, open_job
from tests.ports import free_port

WEB = Path(__file__).parents[2] / "dashboard" / "web"
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = (
    "",
    "/ranks/3",
    "/diff",
    "/collectives",
    "/steps",
    "/timeline",
    "/stacks",
    "/gpus",
    "/loader",
    "/evidence",
)


def barriers(page: Page) -> list[str]:
    """What axe-core finds on the page, of every impact."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make page")
    # Colours fade into each other: half-way they have no contrast.
    page.evaluate("() => Promise.all(document.getAnimations().map((each) => each.finished.catch(() => null)))")
    page.evaluate(AXE.read_text())  # by the debugger: the page's policy forbids it to everybody else
    found: dict[str, Any] = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['impact']} {violation['id']}: {node['target']} {node['html'][:120]}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


@ALL
def test_no_view_of_a_job_has_a_barrier(page: Page, served: Served, fleet: Fleet, screen: Screen) -> None:
    page.goto(served.url)
    page.get_by_text("No job has reported yet").wait_for()
    assert barriers(page) == []
    hang(page, served, fleet)
    address = page.url
    for view in (*VIEWS, "/health"):
        _assert_no_barrier(page, address + view, screen)
    page.goto(served.url)
    page.get_by_role("link", name="vision", exact=True).wait_for()
    assert barriers(page) == []
    for path in ("/nowhere", "/api/v1/docs"):
        page.goto(served.url + path)
        page.locator("h1").wait_for()
        assert fits(page, screen.width), path
        assert barriers(page) == [], path


@BOTH
def test_no_view_of_an_incident_has_a_barrier(page: Page, served: Served, fleet: Fleet, screen: Screen) -> None:
    hang(page, served, fleet)
    fleet.stop()
    page.get_by_role("table").filter(has_text="What happened").get_by_role("link").first.click()
    page.get_by_role("heading", name=re.compile("incident of")).wait_for()
    address = page.url
    for view in VIEWS:
        _assert_no_barrier(page, address + view, screen)


def _assert_no_barrier(page: Page, address: str, screen: Screen) -> None:
    page.goto(address)
    page.locator(".verdict").wait_for()
    page.wait_for_timeout(300)
    assert fits(page, screen.width), address
    assert barriers(page) == [], address


NAME_OF_FOCUSED = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"


def test_everything_can_be_reached_by_keyboard(page: Page, served: Served, fleet: Fleet) -> None:
    hang(page, served, fleet)
    page.reload()
    page.locator(".verdict").wait_for()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(NAME_OF_FOCUSED))
    for name in ("Copy the fix", "Capture now", "Stacks", "Copy the place"):
        assert name in reached
    assert any("rank grid" in name or "Arrow keys" in name for name in reached)


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_do_not_scroll_sideways(page: Page, served: Served, fleet: Fleet, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    hang(page, served, fleet)
    address = page.url
    for view in VIEWS:
        page.goto(address + view)
        page.locator(".verdict").wait_for()
        page.wait_for_timeout(200)
        assert fits(page, width)


def test_the_theme_can_be_chosen(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.beat()
    open_job(page, served)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.get_by_role("button", name=re.compile("Theme: auto")).click()
    page.get_by_role("button", name=re.compile("Theme: light")).click()
    assert page.evaluate(paper) != light
    page.reload()
    page.get_by_role("button", name=re.compile("Theme: dark")).wait_for()
    assert page.evaluate(paper) != light


def test_a_job_is_painted_at_once(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.step = 100
    fleet.beat()
    open_job(page, served)
    address = page.url
    taken = []
    for _ in range(3):  # the best of three: the machine that runs the tests has other things to do
        page.goto("about:blank")
        started = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.locator(".situations tbody tr").first.wait_for()
        taken.append(time.perf_counter() - started)
    print(f"painted in {min(taken):.2f} s")  # a second is the goal, on a machine that has nothing else to do
    assert min(taken) <= 5.0, taken


def test_the_script_is_small() -> None:
    script = sum(len(gzip.compress(file.read_bytes(), 9)) for file in STATIC.rglob("*.js"))
    assert 0 < script <= 120_000


def test_what_is_built_names_no_other_host() -> None:
    allowed = {"www.w3.org", "www.speedscope.app", "hangwatch.readthedocs.io"}
    for file in STATIC.rglob("*"):
        if file.suffix in (".js", ".css", ".html"):
            hosts = set(re.findall(r"https?://([a-z0-9.-]+\.[a-z]+)", file.read_text()))
            assert hosts <= allowed, file


@dataclass
class Large:
    """A job of 10,000 ranks on 1,250 nodes, all of which report once a second."""

    url: str
    app: Starlette


@pytest.fixture
def large() -> Iterator[Large]:
    made, port = app(STATIC, hangs_after=4), free_port()
    server = uvicorn.Server(uvicorn.Config(made, port=port, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield Large(f"http://127.0.0.1:{port}/jobs/{KEY}", made)
    server.should_exit = server.force_exit = True
    thread.join(PATIENCE_S)


@pytest.mark.parametrize("view", ["", "/collectives", "/steps", "/health", "/timeline", "/gpus"])
def test_ten_thousand_ranks_keep_the_page_responsive(browser: Browser, large: Large, view: str) -> None:
    # GIVEN a view of the job
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    debugger = page.context.new_cdp_session(page)
    debugger.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time: the machine may be busy
    page.goto(large.url + view)
    page.locator(".facts-line").wait_for()
    page.wait_for_timeout(1000)
    before, sent = main_thread_ms(debugger), large.app.state.sent
    # WHEN it runs on for some seconds, and hangs
    page.locator(".verdict").wait_for(timeout=1000 * PATIENCE_S)
    page.wait_for_timeout(2500)
    # THEN an update keeps the page's main thread below 100 ms
    each = (main_thread_ms(debugger) - before) / (large.app.state.sent - sent)
    paints = page.evaluate("performance.getEntriesByName('grid').length")
    page.close()
    print(f"{view or '/'}: {each:.0f} ms an update")
    assert view or paints >= 3
    assert each < 100


def main_thread_ms(debugger: CDPSession) -> float:
    metrics = {metric["name"]: metric["value"] for metric in debugger.send("Performance.getMetrics")["metrics"]}
    return 1000 * float(metrics["TaskDuration"])
