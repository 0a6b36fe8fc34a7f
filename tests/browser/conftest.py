from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

import hangwatch_dashboard
from hangwatch.model import Certainty, Judgement, Snapshot, Stage, Status, Verdict
from hangwatch_dashboard import captures, watch
from hangwatch_dashboard.app import create_app
from hangwatch_dashboard.config import Config
from hangwatch_dashboard.service import Service
from tests import needs
from tests.browser.fleet import Fleet
from tests.examples import uneven_steps_judgement
from tests.ports import free_port

PATIENCE_S = 60.0  # for whatever is to appear; playwright's own five seconds are too few on a busy machine
STATIC = Path(hangwatch_dashboard.__file__).parent / "static"


def judge(snapshot: Snapshot) -> Judgement:
    """Stands in for the diagnosis: rank 3 ran out of data once no rank moves; else all is well."""
    if snapshot.ranks and all(rank.still_s > 1 for rank in snapshot.ranks):
        return uneven_steps_judgement(len(snapshot.ranks), 3, 2)
    return Judgement(Status.WAITING, Stage.STEP, Verdict("", Certainty.UNDETERMINED, ""))


class Served:
    """A dashboard that answers on a port of this machine, run by a thread of the test."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.url = f"http://127.0.0.1:{config.port}"
        self._start()

    def _start(self) -> None:
        app = create_app(self.config, diagnose=judge)
        settings = uvicorn.Config(app, port=self.config.port, log_level="error", timeout_graceful_shutdown=1)
        self._app, self._server = app, uvicorn.Server(settings)
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True)
        self._thread.start()
        until(lambda: self._server.started)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve()

    def do(self, work: Callable[[], None]) -> None:
        """Has the service's own loop do it, between two of its looks."""

        async def once() -> None:
            work()

        asyncio.run_coroutine_threadsafe(once(), self._loop).result(PATIENCE_S)

    @property
    def service(self) -> Service:
        found: Service = self._app.state.service
        return found

    def stop(self) -> None:
        self._app.state.service.hub.close_soon()
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)

    def restart(self) -> None:
        self._start()


def until(wanted: Callable[[], Any], timeout: float = PATIENCE_S) -> Any:
    """Waits until `wanted()` is true, and returns it."""
    deadline = time.monotonic() + timeout
    while not (found := wanted()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


REST = """
() => new Promise((rests, fails) => {
  const rest = () => { changes.disconnect(); rests(true); };
  let timer = setTimeout(rest, 100);
  const changes = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(rest, 100); });
  changes.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  setTimeout(() => fails(new Error("the page changes all the time")), 60000);
})
"""


def visit(page: Page, address: str) -> None:
    """Opens a page of evidence and waits until everything that it asks for has come, and is drawn."""
    under_way: set[Request] = set()

    def asks(request: Request) -> None:
        if request.resource_type == "fetch" and "/api/v1/events" not in request.url:  # whose answer never ends
            under_way.add(request)

    def answered(request: Request) -> None:
        under_way.discard(request)

    listeners = (("request", asks), ("requestfinished", answered), ("requestfailed", answered))
    for event, listener in listeners:
        page.on(event, listener)  # type: ignore[call-overload]
    page.goto(address)
    page.locator(".verdict").wait_for()
    until(lambda: page.evaluate(REST) and not under_way)
    for event, listener in listeners:
        page.remove_listener(event, listener)


def fits(page: Page, width: int) -> bool:
    """The page is no wider than the screen. Chromium lays it out a frame after a new size, so this waits for it."""

    def widths() -> tuple[int, int]:
        screen, content = page.evaluate("[innerWidth, document.documentElement.scrollWidth]")
        return screen, content

    return bool(until(lambda: max(widths()) <= width))


@pytest.fixture(scope="session")
def page_is_built() -> None:
    if not (STATIC / "index.html").exists():
        pytest.fail("the page has not been built: make page")


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    expect.set_options(timeout=1000 * PATIENCE_S)
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright, page_is_built: None) -> Iterator[Browser]:
    chromium = needs.program("chromium-headless-shell")
    options = ["--no-sandbox", "--disable-quic", "--disable-background-networking"]
    launched = playwright.chromium.launch(executable_path=str(chromium), args=options)
    yield launched
    launched.close()


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watch, "TICK_S", 0.1)
        # Beside a browser, nodes may answer late: a verdict without some of them is another one than the test expects.
        for deadline in ("DEADLINE_S", "LONGEST_S"):
            patch.setattr(captures, deadline, 2 * PATIENCE_S)
        dashboard = Served(Config(port=free_port(), database=str(folder / "dashboard.db")))
        yield dashboard
        dashboard.stop()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as dashboard:
        yield dashboard


@pytest.fixture
def fleet(served: Served) -> Iterator[Fleet]:
    """A job of four ranks on two nodes; nothing has been sent yet."""
    nodes = Fleet(served.url)
    yield nodes
    nodes.stop()


@pytest.fixture(scope="module")
def hung_job(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a job whose rank 3 ran out of data. It is shared: tests look at it, and change nothing."""
    with serving(tmp_path_factory.mktemp("hung")) as dashboard:
        nodes = Fleet(dashboard.url, step=249)
        for _ in range(3):
            nodes.beat()
        nodes.hang()
        nodes.live(0.5)
        (job,) = dashboard.service.registry.jobs.values()
        until(lambda: job.incident)
        yield f"{dashboard.url}/jobs/{job.key}"
        nodes.stop()


class Watched:
    """What a page did that it must not do: errors on the console, requests to elsewhere."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self.expected: list[str] = []  # errors that a test provokes
        self._origin = origin
        context.on("console", self._said)
        context.on("weberror", lambda error: self.errors.append(str(error.error)))
        context.on("request", lambda request: self._seen(request.url))

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} ({message.location['url']})")

    def _seen(self, url: str) -> None:
        if not url.startswith((self._origin, "data:", "blob:", "file:")):
            self.elsewhere.append(url)

    def check(self) -> None:
        left = [error for error in self.errors if not any(part in error for part in self.expected)]
        assert left == []
        assert self.elsewhere == []


@dataclass(frozen=True)
class Screen:
    """What a page is looked at with."""

    width: int = 1440
    scheme: Literal["light", "dark"] = "light"

    def __str__(self) -> str:
        return f"{self.width}-{self.scheme}"


WIDE, NARROW = Screen(), Screen(400, "dark")
LONG = pytest.mark.gallery  # only for `make gallery`
MOSTLY = pytest.mark.parametrize("screen", [NARROW, pytest.param(WIDE, marks=LONG)], indirect=True, ids=str)
BOTH = pytest.mark.parametrize("screen", [WIDE, NARROW], indirect=True, ids=str)
WIDTHS = pytest.mark.parametrize("screen", [Screen(400), pytest.param(WIDE, marks=LONG)], indirect=True, ids=str)
BOTH_WIDTHS = pytest.mark.parametrize("screen", [Screen(400), WIDE], indirect=True, ids=str)
ALL = pytest.mark.parametrize("screen", [WIDE, Screen(scheme="dark"), Screen(400), NARROW], indirect=True, ids=str)


@pytest.fixture
def screen(request: pytest.FixtureRequest) -> Screen:
    """A wide one in light colours, unless a test asks for others: with the marks MOSTLY, BOTH and ALL."""
    found: Screen = getattr(request, "param", WIDE)
    return found


@contextlib.contextmanager
def opened(browser: Browser, url: str, screen: Screen) -> Iterator[tuple[Page, Watched]]:
    """A page of its own, not at that address yet, and what it must not do until the end."""
    size = ViewportSize(width=screen.width, height=900)
    context = browser.new_context(base_url=url, viewport=size, color_scheme=screen.scheme, timezone_id="Europe/Berlin")
    watched = Watched(context, url)
    yield context.new_page(), watched
    context.close()
    watched.check()


@pytest.fixture
def watched(browser: Browser, served: Served, screen: Screen) -> Iterator[tuple[Page, Watched]]:
    with opened(browser, served.url, screen) as page:
        yield page


@pytest.fixture
def page(watched: tuple[Page, Watched]) -> Page:
    """A page of its own. After the test: no error stood on its console, and it sent requests to the dashboard alone."""
    return watched[0]


@pytest.fixture
def hung(browser: Browser, hung_job: str, screen: Screen) -> Iterator[Page]:
    """The same, at the job that hangs, which shows its verdict."""
    with opened(browser, hung_job[: hung_job.index("/jobs/")], screen) as (page, _):
        page.goto(hung_job)
        page.locator(".verdict").wait_for()
        yield page
