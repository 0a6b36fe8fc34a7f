"""What the page says of jobs that hang, of jobs that have ended, and of unknown jobs, each in the right tense."""

from __future__ import annotations

import itertools
import re

from playwright.sync_api import Page, expect

from tests.browser.conftest import MOSTLY, Screen, Served, Watched, fits, until
from tests.browser.fleet import Fleet
from tests.browser.test_health import trained
from tests.browser.test_job import hang, open_job
from tests.browser.test_rules import barriers

BACKGROUND = "element => getComputedStyle(element).backgroundColor"


@MOSTLY
def test_an_unknown_job_is_told_quietly(
    watched: tuple[Page, Watched], served: Served, fleet: Fleet, screen: Screen
) -> None:
    page, watch = watched
    watch.expected = ["404"]
    fleet.beat()
    # GIVEN another tab, which shares the stream
    page.goto(served.url)
    expect(page.locator(".line")).to_contain_text("live")
    other = page.context.new_page()
    # WHEN an address is opened that names no job
    other.goto(f"{served.url}/jobs/xyz")
    expect(other.get_by_role("heading", name="No such job")).to_be_visible()
    # THEN neither tab says that the dashboard is away, though the stream begins anew
    until(lambda: [reader.jobs for reader in list(served.service.hub.readers)] == [frozenset()])
    for tab in (page, other):
        expect(tab.locator(".line")).to_have_class(re.compile("live"))
        expect(tab.locator(".stale")).to_have_count(0)
        expect(tab.locator("body")).not_to_contain_text("does not answer")
    assert fits(other, screen.width)


def test_a_job_that_is_deleted_while_the_dashboard_is_away_is_told(
    watched: tuple[Page, Watched], served: Served, fleet: Fleet
) -> None:
    page, watch = watched
    watch.expected = ["404", "ERR_"]
    fleet.beat()
    open_job(page, served)
    (key,) = served.service.registry.jobs
    fleet.stop()
    served.stop()
    served.restart()
    served.service.store.delete_run(key).result(60)
    served.do(lambda: served.service.registry.forget(key))
    expect(page.get_by_role("heading", name="Deleted")).to_be_visible()
    expect(page.locator(".line")).to_have_class(re.compile("live"))


@MOSTLY
def test_a_dashboard_that_never_answered_is_told_in_a_bar(watched: tuple[Page, Watched], served: Served) -> None:
    page, watch = watched
    watch.expected = ["ERR_FAILED"]
    page.add_init_script("delete window.SharedWorker")  # whose requests a test cannot answer
    page.route("**/api/v1/events*", lambda route: route.abort())
    page.goto(served.url)
    bar = page.get_by_role("status").filter(has_text="The dashboard does not answer")
    expect(bar).to_be_visible()
    assert bar.evaluate("element => parseInt(getComputedStyle(element).paddingLeft)") >= 14
    assert barriers(page) == []


@MOSTLY
def test_the_table_names_the_call_that_the_verdict_names(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN ranks whose nodes know only which call was issued last, which is one after the one they wait for
    fleet.texts = {rank: {"waiting_for": "collective 502 of group 0"} for rank in (0, 1, 2)}
    hang(page, served, fleet)
    # THEN table, drawing and proof have one number
    situations = page.locator(".situations")
    expect(situations).to_contain_text("all_reduce 501 of group 0")
    expect(situations).not_to_contain_text("502")


@MOSTLY
def test_a_job_that_hung_and_was_killed_is_told_in_the_past(
    page: Page, served: Served, fleet: Fleet, screen: Screen
) -> None:
    hang(page, served, fleet)
    banner = page.get_by_role("region", name="Verdict")
    expect(banner.locator(".status")).to_have_text("hung")
    red = banner.locator(".who").evaluate(BACKGROUND)
    # WHEN it is killed
    fleet.stop()
    fleet.exit_code = -15
    fleet.finish()
    # THEN the banner says what it was and how it ended, and the screen is not red any more
    expect(banner.locator(".status")).to_have_text("was hung, then ended (signal 15)")
    assert banner.locator(".who").evaluate(BACKGROUND) != red
    expect(page.locator("h1")).to_contain_text("was hung")
    assert fits(page, screen.width)
    assert barriers(page) == []
    # AND the list of jobs that hung has it, with a gap between its state and what else is told of it
    page.goto(f"{served.url}/history?state=hung")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator(".state")).to_have_text("failed")
    expect(row.locator(".tags .tag")).to_have_text(["was hung", "1 warning"])
    boxes = [each.bounding_box() for each in (row.locator(".state"), *row.locator(".tags .tag").all())]
    for left, right in itertools.pairwise(boxes):
        assert left is not None
        assert right is not None
        assert right["x"] - left["x"] - left["width"] >= 5
    assert fits(page, screen.width)


def test_a_forecast_and_a_calm_pace_are_past_once_the_job_hangs(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN a job with a pace, whose ranks are equally fast
    trained(served, fleet, slow=0.0)
    open_job(page, served)
    page.get_by_role("link", name="Health", exact=True).click()
    expect(page.locator(".calm")).to_contain_text("No rank is clearly slower")
    # WHEN it hangs, as was forecast
    fleet.live(0.5)
    fleet.hang()
    page.locator(".verdict").wait_for()
    # THEN no green bar says that all is well
    expect(page.locator(".calm")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("Before it stood still, no rank was clearly slower")
    # AND nothing says that it will hang
    page.get_by_role("link", name="Overview", exact=True).click()
    warning = page.locator(".warnings li").filter(has_text="uneven-forecast")
    expect(warning).to_contain_text("the job was going to hang at step")
    expect(warning).to_contain_text("Forecast before it")
    expect(page.locator("main")).not_to_contain_text(re.compile("will hang", re.IGNORECASE))


@MOSTLY
def test_badges_do_not_break(hung: Page, screen: Screen) -> None:
    """A state such as "hung, proven" stays on its line, on a narrow screen too."""
    badge = hung.get_by_role("region", name="Incidents").locator(".state")
    expect(badge).to_have_text("hung, proven")
    box = badge.bounding_box()
    assert box is not None
    assert box["height"] < 30


def test_the_api_is_one_click_away(page: Page, served: Served) -> None:
    page.goto(served.url)
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("hangwatch API"))).to_be_visible()
    page.get_by_role("navigation", name="Contents").get_by_text("GET /api/v1/jobs/{job}/health").click()
    expect(page.get_by_role("heading", name="GET /api/v1/jobs/{job}/health")).to_be_in_viewport()
