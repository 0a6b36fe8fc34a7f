"""What must hold for every page: no barrier, no style or script from elsewhere, quick, and small."""

from __future__ import annotations

import contextlib
import gzip
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect
from starlette.applications import Starlette

from tests.browser.conftest import BOTH, BOTH_WIDTHS, PATIENCE_S, STATIC, WIDTHS, Screen, Served, fits, until, visit
from tests.browser.fleet import Fleet
from tests.browser.large import KEY, app
from tests.browser.test_job import open_job
from tests.ports import free_port

WEB = Path(__file__).parents[2] / "dashboard" / "web"
AXE = WEB / "node_modules" / "axe-core" / "axe.min.js"
COLOURS = ("color-contrast", "link-in-text-block")  # all of its rules on colours but one, which is off by itself
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


def barriers(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """What axe-core finds on the page, of every impact, by all of its rules or by some."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make page")
    # Colours fade into each other: half-way they have no contrast.
    page.evaluate("() => Promise.all(document.getAnimations().map((each) => each.finished.catch(() => null)))")
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())  # by the debugger: the page's policy forbids it to everybody else
    options = {"resultTypes": ["violations"], **({"runOnly": {"type": "rule", "values": rules}} if rules else {})}
    found: dict[str, Any] = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{violation['impact']} {violation['id']}: {node['target']} {node['html'][:120]}"
        for violation in found["violations"]
        for node in violation["nodes"]
    ]


def barriers_in_both_schemes(page: Page) -> list[str]:
    """What axe-core finds, and what its rules on colours find in the other scheme, which differs in nothing else."""
    found = barriers(page)
    page.emulate_media(color_scheme="dark")
    found += [f"dark: {barrier}" for barrier in barriers(page, COLOURS)]
    page.emulate_media(color_scheme="light")
    return found


@WIDTHS
def test_no_page_without_a_job_has_a_barrier(page: Page, served: Served) -> None:
    page.goto(served.url)
    page.get_by_text("No job has reported yet").wait_for()
    assert barriers_in_both_schemes(page) == []


@BOTH_WIDTHS
def test_no_view_of_a_job_has_a_barrier(hung: Page, screen: Screen) -> None:
    address = hung.url
    for view in (*VIEWS, "/health"):
        visit(hung, address + view)
        assert fits(hung, screen.width), view
        assert barriers_in_both_schemes(hung) == [], view
    hung.goto("/")
    hung.get_by_role("link", name="vision", exact=True).wait_for()
    assert barriers_in_both_schemes(hung) == []
    for path in ("/nowhere", "/api/v1/docs"):
        hung.goto(path)
        hung.locator("h1").wait_for()
        assert fits(hung, screen.width), path
        assert barriers_in_both_schemes(hung) == [], path


@BOTH
def test_no_view_of_an_incident_has_a_barrier(hung: Page, screen: Screen) -> None:
    hung.get_by_role("table").filter(has_text="What happened").get_by_role("link").first.click()
    hung.get_by_role("heading", name=re.compile("incident of")).wait_for()
    address = hung.url
    for view in VIEWS:
        visit(hung, address + view)
        assert fits(hung, screen.width), view
        assert barriers(hung) == [], view


NAME_OF_FOCUSED = "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent"


def test_everything_can_be_reached_by_keyboard(hung: Page) -> None:
    page = hung
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
def test_narrow_screens_do_not_scroll_sideways(hung: Page, width: int) -> None:
    hung.set_viewport_size({"width": width, "height": 800})
    address = hung.url
    for view in VIEWS:
        visit(hung, address + view)
        assert fits(hung, width), view


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
    """A job of 10,000 ranks on 1,250 nodes, all of which report once a second, in a view, and what that costs."""

    view: str
    app: Starlette
    page: Page
    since: tuple[float, int] = (0.0, 0)  # the main thread's milliseconds, and the updates

    def __post_init__(self) -> None:
        self._debugger = self.page.context.new_cdp_session(self.page)
        # processor time: the machine may be busy
        self._debugger.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cost(self) -> tuple[float, int]:
        metrics = {
            metric["name"]: metric["value"] for metric in self._debugger.send("Performance.getMetrics")["metrics"]
        }
        return 1000 * float(metrics["TaskDuration"]), self.app.state.sent

    def each_ms(self) -> float:
        """What an update has cost the page's main thread."""
        (before, sent), (after, sent_by_now) = self.since, self.cost()
        return (after - before) / (sent_by_now - sent)


@pytest.fixture
def large(browser: Browser) -> Iterator[list[Large]]:
    """Views of such jobs, side by side, for most of the time passes in waiting; each has a process for its page."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_large(browser, view)) for view in VIEWS_OF_MANY]


@contextlib.contextmanager
def _large(browser: Browser, view: str) -> Iterator[Large]:
    made, port = app(STATIC), free_port()
    server = uvicorn.Server(uvicorn.Config(made, port=port, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    shown = Large(view, made, page)
    page.goto(f"http://127.0.0.1:{port}/jobs/{KEY}{view}")
    yield shown
    page.close()
    server.should_exit = server.force_exit = True
    thread.join(PATIENCE_S)


VIEWS_OF_MANY = ("", "/collectives", "/steps", "/health", "/timeline", "/gpus")


def test_ten_thousand_ranks_keep_the_page_responsive(large: list[Large]) -> None:
    # GIVEN views of the job
    for shown in large:
        shown.page.locator(".facts-line").wait_for()
    large[-1].page.wait_for_timeout(1000)
    for shown in large:
        shown.since = shown.cost()
    # WHEN it runs on for some updates, and hangs
    until(lambda: all(shown.app.state.sent - shown.since[1] >= 3 for shown in large))
    for shown in large:
        shown.app.state.hangs = True
    for shown in large:
        shown.page.locator(".verdict").wait_for()
    large[-1].page.wait_for_timeout(2500)
    # THEN an update keeps the page's main thread below 100 ms
    each = {shown.view or "/": round(shown.each_ms()) for shown in large}
    print(f"milliseconds of an update: {each}")
    assert {view: ms for view, ms in each.items() if ms >= 100} == {}
    assert large[0].page.evaluate("performance.getEntriesByName('grid').length") >= 3
