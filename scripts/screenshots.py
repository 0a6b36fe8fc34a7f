"""Pictures of every view of the page, in both themes, from a real job that hangs: `make screenshots`.

Starts a dashboard, lets a job of the gallery hang below `hangwatch run --dashboard`, and takes docs/images/*.png.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, sync_playwright

import hangwatch.gallery

IMAGES = Path(__file__).parent.parent / "docs" / "images"
GALLERY = Path(hangwatch.gallery.__file__).parent
HANGWATCH = [sys.executable, "-m", "hangwatch"]
JOB = ["torchrun", "--standalone", "--nproc-per-node", "4", "train.py", "--culprit", "3", "--steps", "400"]
VIEWS = ("overview", "diff", "collectives", "steps", "health", "timeline", "stacks", "gpus", "loader", "evidence")
LISTS = ("incidents", "history")
OPTIONS = ["--no-sandbox", "--disable-quic", "--disable-background-networking"]
SIZE = (1280, 860)
PATIENCE_MS = 300_000  # a busy machine takes its time to start torch
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=IMAGES, help="the folder to write into (docs/images)")
    into = parser.parse_args().into
    into.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium-headless-shell")
    if chromium is None:
        sys.exit("hangwatch: chromium-headless-shell is needed: make apt")
    with tempfile.TemporaryDirectory(prefix="birds-") as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=OPTIONS)
        with dashboard(Path(folder)) as url:
            take(browser, f"{url}/", "empty", into)
            with job(url, Path(folder)):
                address = running(browser, url, into)
                hung(browser, address, into)
                take(browser, f"{url}/", "jobs", into)
                for name in LISTS:
                    take(browser, f"{url}/{name}", name, into, wait_ms=900)
                one_file(browser, Path(folder), into)
        browser.close()
    print(f"hangwatch: {len(list(into.glob('*.png')))} pictures in {into}")


@contextmanager
def dashboard(folder: Path) -> Iterator[str]:
    """A dashboard of its own: its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [*HANGWATCH, "dashboard", "--port", str(port), "--database", str(folder / "dashboard.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@contextmanager
def job(url: str, folder: Path) -> Iterator[None]:
    """A job that hangs after some seconds."""
    reports = folder / "reports"
    shutil.copy(GALLERY / "uneven_steps.py", folder / "train.py")  # pictures show a user's path, not that of a checkout
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    watch = [*HANGWATCH, "run", "--dashboard", url, "--job", "birds", "--report-dir", str(reports), "--"]
    with (folder / "job.log").open("w") as log:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path}
        with subprocess.Popen([*watch, *JOB], stdout=log, stderr=log, env=environment, cwd=folder) as process:
            try:
                yield
            finally:
                process.terminate()


def running(browser: Browser, url: str, into: Path) -> str:
    """Pictures of the job while it runs. Returns its page's address."""
    page = opened(browser, f"{url}/", "light")
    page.get_by_role("link", name="birds", exact=True).click(timeout=PATIENCE_MS)
    page.locator(".facts-line").get_by_text(re.compile(r"^steps? \d")).wait_for(timeout=PATIENCE_MS)
    address = page.url
    page.context.close()
    take(browser, address, "running", into, wait_ms=1500)
    return address


def hung(browser: Browser, address: str, into: Path) -> None:
    """Pictures of every view once the verdict is there."""
    page = opened(browser, address, "light")
    page.locator(".verdict .fix").wait_for(timeout=PATIENCE_MS)
    page.get_by_text("nothing has moved for").wait_for(timeout=PATIENCE_MS)
    page.get_by_role("link", name="Capture of").wait_for(timeout=PATIENCE_MS)
    page.wait_for_timeout(8000)  # until the first captures are over
    page.context.close()
    for view in VIEWS:
        take(browser, address if view == "overview" else f"{address}/{view}", view, into, wait_ms=900)
    take(browser, f"{address}/ranks/3", "rank", into, wait_ms=900)
    take(browser, address, "narrow", into, width=390, wait_ms=900)


def one_file(browser: Browser, folder: Path, into: Path) -> None:
    """A picture of the page beside the incident, opened from disk."""
    written = next(iter(sorted((folder / "reports").glob("incident-*.html"))))
    take(browser, written.as_uri(), "file", into)


def take(browser: Browser, url: str, name: str, into: Path, *, width: int = SIZE[0], wait_ms: int = 400) -> None:
    for scheme in SCHEMES:
        page = opened(browser, url, scheme, width)
        page.wait_for_timeout(wait_ms)
        page.screenshot(path=into / f"{name}-{scheme}.png")
        page.context.close()


def opened(browser: Browser, url: str, scheme: Literal["light", "dark"], width: int = SIZE[0]) -> Page:
    context = browser.new_context(viewport={"width": width, "height": SIZE[1]}, color_scheme=scheme, timezone_id="UTC")
    page = context.new_page()
    page.goto(url)
    page.locator("#main").wait_for()
    return page


if __name__ == "__main__":
    main()
