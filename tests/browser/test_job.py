"""A job on the page, live: from the first batch to the verdict, without a reload."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, expect

from hangwatch_dashboard import views
from tests.browser.conftest import MOSTLY, Served, Watched, until
from tests.browser.fleet import Fleet

VIEWS = ("Diff", "Collectives", "Steps", "Health", "Timeline", "Stacks", "GPUs", "Loader", "Evidence")


def open_job(page: Page, served: Served, name: str = "vision") -> None:
    page.goto(served.url)
    page.get_by_role("link", name=name, exact=True).click()
    page.locator("canvas").first.wait_for()


def hang(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.step = 249
    fleet.beat()
    fleet.live(0.5)
    open_job(page, served)
    fleet.hang()
    page.locator(".verdict").wait_for()


def test_without_a_job_it_says_how_to_connect_one(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN a dashboard that no job has reported to
    page.goto(served.url)
    # THEN the page says what to type, with its own address
    expect(page.get_by_text(f"hangwatch run --dashboard {served.url}")).to_be_visible()
    # WHEN a job comes
    fleet.beat()
    # THEN it stands there without a reload
    expect(page.get_by_role("link", name="vision", exact=True)).to_be_visible()


@MOSTLY
def test_the_verdict_comes_without_a_reload_and_names_the_rank(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN the page of a job that runs
    fleet.step = 249
    fleet.beat()
    fleet.live(0.5)
    open_job(page, served)
    page.evaluate("window.sameDocument = true")
    expect(page.get_by_role("heading", name=re.compile("vision"))).to_contain_text("running")
    expect(page.locator(".verdict")).to_have_count(0)
    # WHEN the job hangs
    fleet.hang()
    # THEN the banner appears by itself and names the rank, the line, the fix, how certain it is and what it is not
    banner = page.get_by_role("region", name="Verdict")
    expect(banner).to_contain_text("Rank 3 ran out of data")
    assert page.evaluate("window.sameDocument") is True
    expect(banner.locator(".who .number")).to_have_text("3")
    for part in ("hung", "proven", "train.py:88", "DistributedSampler", "rank-zero-only-collective", "node-b"):
        expect(banner).to_contain_text(part)
    # AND the line stands there among its neighbours
    expect(banner.locator(".excerpt [aria-current] code")).to_have_text("dist.barrier()", use_inner_text=True)
    # AND a screen reader is told
    expect(page.get_by_role("status").filter(has_text="Rank 3 ran out of data")).to_have_count(1)
    # AND the grid, in words, and the waits say the same
    expect(page.locator("tr.at-fault")).to_contain_text("out of the loop")
    expect(page.get_by_role("img", name=re.compile("rank 3 waits for ranks 0-2"))).to_be_visible()


def test_the_record_of_an_incident_is_its_own_after_a_later_capture(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN a hung job, and evidence that was taken later than its incident
    hang(page, served, fleet)
    (job,) = served.service.registry.jobs.values()
    incident = until(lambda: job.incident)
    page.get_by_role("link", name="Evidence", exact=True).click()
    page.get_by_role("button", name="Capture now").first.click()
    page.get_by_role("link", name=re.compile("^Capture of")).wait_for()
    # THEN the record is that of the incident, and says which capture the evidence is of
    record = page.get_by_role("region", name="This incident")
    expect(record.locator("div").filter(has_text="Evidence taken")).to_contain_text("capture ")
    expect(record.locator("div").filter(has_text=re.compile("^Id"))).to_contain_text(incident)
    opened_at = page.request.get(f"{served.url}/api/v1/incidents/{incident}").json()["opened_at"]
    noticed = datetime.fromtimestamp(opened_at, ZoneInfo("Europe/Berlin")).strftime("%H:%M:%S")
    expect(record.locator("div").filter(has_text="Noticed")).to_contain_text(noticed)


@MOSTLY
def test_every_view_shows_the_hang(hung: Page) -> None:
    shown = {
        "Diff": ("Calls in epoch 0, batch 250 (step 250)", "missing on rank 3"),
        "Collectives": ("mismatch", "barrier", "train.py:88", "Where the ranks parted"),
        "Steps": ("Steps behind the fastest", "rank 3, at fault", "Where the time goes"),
        "Health": ("No pace yet", "GPU memory"),
        "Timeline": ("out of the loop", "nothing moves"),
        "Stacks": ("_engine_run_backward", "rank 3"),
        "GPUs": ("NVIDIA H200", "rank 3", "31 GiB"),
        "Loader": ("exhausted", "250 of 250", "CardSampler"),
        "Evidence": ("native stacks", "took longer than 2 s", "Launchers"),
    }
    for view in VIEWS:
        hung.get_by_role("link", name=view, exact=True).click()
        expect(hung.get_by_role("navigation", name="Views").locator("[aria-current=page]")).to_have_text(view)
        for text in shown[view]:
            expect(hung.locator("main")).to_contain_text(text)
        expect(hung.get_by_role("region", name="Verdict")).to_contain_text("Rank 3 ran out of data")


@MOSTLY
def test_the_diff_shows_the_calls_of_equal_ranks_side_by_side(hung: Page) -> None:
    hung.get_by_role("link", name="Diff", exact=True).click()
    table = hung.get_by_role("region", name="Calls of the ranks in epoch 0, batch 250 (step 250)")
    # THEN there is a column for each group of equal ranks
    expect(table.locator("thead th")).to_have_text(["ranks 0-2", "rank 3", "Difference"])
    # AND a row for each call, with the function that made it and the user's line, and what is remarkable in it
    missing, extra = table.locator("tbody tr").nth(0), table.locator("tbody tr").nth(1)
    expect(missing.get_by_role("cell")).to_have_text(
        [
            "gradients x2 (backward, accelerator.py:204, below train.py:71), waiting",
            "-",
            "missing on rank 3, which made this call in 7 earlier iterations",
        ]
    )
    expect(extra.get_by_role("cell")).to_have_text(
        ["-", "barrier (train.py:88), waiting", "only rank 3: no other rank was ever here"]
    )
    expect(table.locator("tbody tr")).to_have_count(2)


def test_without_a_difference_the_view_says_so(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.beat()
    open_job(page, served)
    page.get_by_role("link", name="Diff", exact=True).click()
    expect(page.locator("main")).to_contain_text("do not differ")


def test_views_and_ranks_have_addresses(watched: tuple[Page, Watched], served: Served, fleet: Fleet) -> None:
    page, watch = watched
    watch.expected = ["404"]
    hang(page, served, fleet)
    address = page.url
    # WHEN a view and a rank are opened by their addresses
    page.goto(f"{address}/stacks")
    expect(page.get_by_role("heading", name="Stacks of all ranks")).to_be_visible()
    page.goto(f"{address}/ranks/3")
    expect(page.get_by_role("heading", name="Rank 3 on")).to_be_visible()
    expect(page.locator(".frames").first).to_contain_text("barrier")
    # THEN going back goes back
    page.get_by_role("link", name="‹ rank 2").click()
    expect(page.get_by_role("heading", name="Rank 2 on")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Rank 3 on")).to_be_visible()
    # AND an address that means nothing says so
    page.goto(f"{served.url}/jobs/no-such-job")
    expect(page.locator("main")).to_contain_text("There is no job no-such-job")
    page.goto(f"{served.url}/nowhere")
    expect(page.locator("main")).to_contain_text("nothing at this address")


@MOSTLY
def test_a_rank_is_opened_from_the_grid_by_mouse_and_by_keyboard(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.beat()
    open_job(page, served)
    grid = page.get_by_role("application", name=re.compile("4 ranks"))
    # WHEN the keyboard goes to the second rank
    grid.focus()
    page.keyboard.press("ArrowRight")
    # THEN it is told of, and Enter opens it
    expect(page.locator(".told")).to_contain_text("rank 1 on node-a, pid 4709")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Rank 1 on")).to_be_visible()
    # AND the mouse does the same
    page.get_by_role("link", name="all ranks").click()
    grid.click(position={"x": 30, "y": 40})
    expect(page.get_by_role("heading", name="Rank 0 on")).to_be_visible()


@MOSTLY
def test_a_capture_on_demand_comes_live(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN a running job of which no evidence has been taken
    fleet.step = 100
    fleet.beat()
    fleet.live(0.3)
    open_job(page, served)
    page.get_by_role("link", name="Stacks", exact=True).click()
    expect(page.locator("main")).to_contain_text("when you ask for them")
    # WHEN it is asked for
    page.get_by_role("button", name="Capture now").first.click()
    # THEN the stacks come by themselves
    expect(page.locator(".icicle")).to_contain_text("_engine_run_backward")
    # AND the capture has an address of its own, with the same views
    page.get_by_role("link", name=re.compile("Capture of")).click()
    expect(page.locator("main")).to_contain_text("no rank is blamed")
    expect(page.locator(".icicle")).to_contain_text("barrier")


@MOSTLY
def test_a_frame_leads_to_the_ranks_in_it(hung: Page) -> None:
    hung.get_by_role("link", name="Stacks", exact=True).click()
    # THEN the frame of the rank at fault is chosen at first, with its own stacks
    expect(hung.locator(".box[aria-pressed=true]")).to_contain_text("main train.py:88")
    expect(hung.locator(".chosen")).to_contain_text("rank 3 is in it")
    # WHEN another frame is chosen
    hung.get_by_role("button", name=re.compile("^_engine_run_backward")).click()
    expect(hung.locator(".chosen")).to_contain_text("ranks 0-2 are in it")
    hung.locator(".chosen").get_by_role("link", name="rank 1").click()
    expect(hung.get_by_role("heading", name="Rank 1 on")).to_be_visible()
    # AND torch's frames can be left out
    hung.get_by_role("link", name="Stacks", exact=True).click()
    hung.get_by_label("your code only").check()
    expect(hung.locator(".icicle")).not_to_contain_text("_engine_run_backward")


def test_it_says_when_it_is_stale_and_reconnects(watched: tuple[Page, Watched], served: Served, fleet: Fleet) -> None:
    page, watch = watched
    watch.expected = ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY"]
    fleet.beat()
    open_job(page, served)
    expect(page.locator(".line")).to_contain_text("live")
    # WHEN the dashboard goes
    served.stop()
    # THEN the page says that what it shows is old
    expect(page.locator(".stale")).to_contain_text("Nothing has been heard from the dashboard since")
    # WHEN it comes back
    served.restart()
    fleet.step = 777
    fleet.beat()
    # THEN the page goes on by itself
    expect(page.locator(".line")).to_contain_text("live")
    expect(page.locator(".stale")).to_have_count(0)
    expect(page.locator(".facts-line")).to_contain_text("step 778")


@MOSTLY
def test_incidents_are_kept_with_their_downloads(hung: Page) -> None:
    # WHEN the incident is opened from the job's list
    hung.get_by_role("table").filter(has_text="What happened").get_by_role("link").first.click()
    expect(hung.get_by_role("heading", name=re.compile("incident of"))).to_be_visible()
    expect(hung.get_by_role("region", name="Verdict")).to_contain_text("after the last step")
    # THEN everything can be downloaded
    with hung.expect_download() as download:
        hung.get_by_role("link", name="JSON", exact=True).click()
    document = json.loads(download.value.path().read_text())
    assert document["verdict"]["culprits"][0]["rank"] == 3
    with hung.expect_download() as download:
        hung.get_by_role("link", name="HTML", exact=True).click()
    assert "Rank 3 ran out of data" in download.value.path().read_text()
    hung.get_by_role("link", name="Stacks", exact=True).click()
    with hung.expect_download() as download:
        hung.get_by_role("link", name="Download for speedscope").click()
    assert json.loads(download.value.path().read_text())["$schema"].startswith("https://www.speedscope.app/")
    # AND the way leads back to the job
    hung.get_by_role("link", name="vision", exact=True).click()
    expect(hung.get_by_role("button", name="Capture now")).to_be_visible()


@MOSTLY
def test_jobs_can_be_searched_and_finished_ones_stay(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.beat()
    other = Fleet(served.url, job="10.0.0.2:29500", name="llama-pretrain", command="train_llm.py")
    other.beat()
    other.finish()
    page.goto(served.url)
    ended = page.get_by_role("region", name="Jobs that have ended")
    expect(ended.get_by_role("row").filter(has_text="llama-pretrain")).to_contain_text("finished")
    expect(page.get_by_role("region", name="Jobs", exact=True)).to_contain_text("vision")
    expect(ended).not_to_contain_text("vision")
    # WHEN a user searches
    page.get_by_role("searchbox", name="Search jobs").fill("llama")
    # THEN the other is gone
    expect(page.get_by_role("link", name="vision", exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="llama-pretrain")).to_be_visible()
    page.get_by_role("searchbox", name="Search jobs").fill("no such thing")
    expect(page.locator("main")).to_contain_text("No job matches")


def test_the_fix_can_be_copied(hung: Page) -> None:
    hung.context.grant_permissions(["clipboard-read", "clipboard-write"])
    hung.get_by_role("button", name="Copy the fix").first.click()
    copied = until(lambda: hung.evaluate("navigator.clipboard.readText()"))
    assert "DistributedSampler" in copied


def test_times_are_in_the_readers_zone(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.beat()
    open_job(page, served)
    expect(page.locator(".facts-line time")).to_have_text(re.compile(r"GMT\+[12]|CES?T"))


HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.mark.parametrize("view", ["", "/ranks/1", "/collectives", "/stacks", "/loader", "/evidence"])
def test_strings_from_ranks_stay_text(
    page: Page, served: Served, fleet: Fleet, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOVES_S", math.inf)  # what ranks say stays, also once there is a verdict
    # GIVEN a job whose every string is an attack
    fleet.name, fleet.command = f"n {HOSTILE}", f"c {HOSTILE}"
    fleet.texts = {1: {"waiting_for": f"w {HOSTILE}\u202e"}, 2: {"exception": f"e {HOSTILE}\x1b[31m"}}
    fleet.beat()
    page.goto(served.url)
    page.locator("tbody tr th a").first.click()
    page.locator("canvas").first.wait_for()
    page.goto(page.url + view)
    page.locator("h1").wait_for()
    # THEN they are seen as they are, and nothing of them runs
    expect(page.locator("h1")).to_contain_text("<img src=x")
    assert page.locator("img").count() == 0
    assert page.locator("main script").count() == 0
    if not view:
        expect(page.locator(".situations")).to_contain_text("\\u202e")
        expect(page.locator(".situations")).to_contain_text("\\x1b[31m")
    assert page.title() != "owned"


def test_ranks_that_never_came_are_named(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.absent = (2, 3)
    fleet.beat()
    open_job(page, served)
    expect(page.locator(".absent")).to_contain_text("ranks 2-3")
    expect(page.locator(".facts-line")).to_contain_text("2 of 4 ranks")
