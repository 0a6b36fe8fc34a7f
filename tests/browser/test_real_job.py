"""A real job under `hangwatch run --dashboard`, with the real diagnosis, as a user sees it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import hangwatch.gallery
from hangwatch.catalogue import BY_ID
from tests.browser.conftest import Watched, until
from tests.ports import free_port

SCRIPT = Path(hangwatch.gallery.__file__).parent / "uneven_steps.py"
HANGWATCH = [sys.executable, "-m", "hangwatch"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("torch")


@pytest.fixture
def dashboard(tmp_path: Path, page_is_built: None) -> Iterator[str]:
    """A dashboard in a process of its own, as a user starts it: its address."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [*HANGWATCH, "dashboard", "--port", str(port), "--database", str(tmp_path / "dashboard.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert url in process.stdout.readline()
        yield url
        process.terminate()


@pytest.fixture
def job(dashboard: str, tmp_path: Path) -> Iterator[Path]:
    """A job of two ranks that hangs after a few seconds: the folder of its reports."""
    reports = tmp_path / "reports"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    watch = [*HANGWATCH, "run", "--dashboard", dashboard, "--job", "birds", "--report-dir", str(reports), "--"]
    command = [*watch, *launcher, str(SCRIPT), "--culprit", "1", "--steps", "150"]
    log = (tmp_path / "job.log").open("w")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=log, stderr=log, env=environment) as process:
        yield reports
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    log.close()


def test_a_real_hang_is_seen_without_a_reload(browser: Browser, dashboard: str, job: Path) -> None:
    # GIVEN the page, opened before the job hangs
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    watch = Watched(context, dashboard)
    page = context.new_page()
    page.goto(dashboard)
    page.get_by_role("link", name="birds", exact=True).click(timeout=120_000)
    page.evaluate("window.sameDocument = true")
    # WHEN it hangs
    banner = page.get_by_role("region", name="Verdict")
    # THEN the banner appears and names the rank, the line and the fix
    expect(banner).to_contain_text("Rank 1 ran out of data", timeout=240_000)
    expect(banner.locator(".who .number")).to_have_text("1")
    expect(banner).to_contain_text(re.compile(r"uneven_steps\.py:\d+"))
    expect(banner).to_contain_text("DistributedSampler")
    assert page.evaluate("window.sameDocument") is True
    # AND the cause leads to its explanation
    banner.get_by_text("Ranks ran out of data at different batches").click()
    expect(banner.get_by_text(BY_ID["uneven-steps"].explanation)).to_be_visible()
    # AND grid, collectives and stacks show it
    expect(page.locator("tr.at-fault")).to_contain_text("out of the loop")
    # AND the ranks wait for the same calls in the table, in the drawing and in the proof
    proof = banner.locator(".row-proof")
    expect(proof).to_be_visible()
    (number,) = set(re.findall(r"(?:all_reduce|barrier) (\d+) of", proof.inner_text()))
    waits = (f"all_reduce {number} of group 0", f"barrier {number} of group 0")
    for call in waits:
        expect(page.locator(".situations")).to_contain_text(call)
    drawn = page.locator("svg.drawing[role=img]")
    expect(drawn).to_have_attribute("aria-label", re.compile(f"rank 0 waits for rank 1 in {waits[0]}"))
    expect(drawn).to_have_attribute("aria-label", re.compile(f"rank 1 waits for rank 0 in {waits[1]}"))
    page.get_by_role("link", name="Collectives", exact=True).click()
    expect(page.locator(".calls .mismatch")).to_contain_text("barrier")
    page.get_by_role("link", name="Stacks", exact=True).click()
    expect(page.locator(".box.blamed").last).to_be_visible()
    expect(page.locator(".icicle")).to_contain_text("_engine_run_backward")
    # AND evidence can be taken anew
    page.get_by_role("button", name="Capture now").first.click()
    expect(page.get_by_role("link", name=re.compile("Capture of"))).to_be_visible()
    # AND the file beside the incident opens without the dashboard and says the same
    written = until(lambda: sorted(job.glob("incident-*.html")))[0]
    assert written.stat().st_size <= 2_000_000
    alone = context.new_page()
    alone.goto(written.as_uri())
    expect(alone.get_by_role("region", name="Verdict")).to_contain_text("Rank 1 ran out of data")
    alone.get_by_text("Ranks ran out of data at different batches").first.click()
    expect(alone.get_by_text(BY_ID["uneven-steps"].explanation)).to_be_visible()
    for call in waits:
        expect(alone.locator(".situations")).to_contain_text(call)
    context.close()
    watch.check()
