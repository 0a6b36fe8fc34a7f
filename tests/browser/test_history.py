"""The history on the page: lists with addresses, groups that a person reviews, and many tabs at once."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from playwright.sync_api import Browser, Page, expect

from hangwatch.model import NodeIncident
from hangwatch_dashboard.store.rows import Wanted
from tests.browser.conftest import ALL, BOTH, Screen, Served, fits, until
from tests.browser.fleet import Fleet
from tests.browser.test_rules import barriers
from tests.examples import uneven_steps

TABS = 8


def seen(served: Served, number: int, opened_at: float) -> None:
    """A job on one node, which reports a hang and ends."""
    fleet = Fleet(served.url, per_node=4, job=f"10.0.1.{number}:29500", name=f"run-{number}")
    fleet.beat()
    incident = replace(uneven_steps(), id=f"seen-{number}", opened_at=opened_at)
    record = NodeIncident(fleet.job, fleet.nodes[0], fleet._boot, incident)
    connection = fleet.connection()
    fleet._post(connection, "incident", record)
    connection.close()
    fleet.finish()


@pytest.fixture
def week(served: Served) -> None:
    now = time.time()
    for number, days in enumerate((3, 2, 1)):
        seen(served, number, now - days * 86_400)


@ALL
def test_the_history_is_there_and_has_no_barrier(page: Page, served: Served, week: None, screen: Screen) -> None:
    lists = (("/", "Jobs", "run-2"), ("/incidents", "Incidents", "seen 3 times"), ("/history", "History", "run-1"))
    for path, heading, text in lists:
        page.goto(served.url + path)
        expect(page.locator("h1")).to_have_text(heading)
        expect(page.locator("main")).to_contain_text(text)
        assert fits(page, screen.width)
        assert barriers(page) == [], path


@BOTH
def test_jobs_that_ended_long_ago_are_in_the_history(page: Page, served: Served, week: None) -> None:
    # GIVEN a dashboard that knows jobs, none of which is in memory
    service = served.service
    until(lambda: service.store.lists.runs(Wanted(state="finished"), 10, 0).total == 3)

    def forget() -> None:
        for key in list(service.registry.jobs):
            service.registry.forget(key)

    served.do(forget)
    # THEN the first page says where they are, and not how to connect the first one
    page.goto(served.url)
    expect(page.locator("main")).to_contain_text("No job is running. The history has 3 jobs")
    page.get_by_role("link", name="3 jobs").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    # AND filters stand in the address
    page.get_by_role("searchbox", name="Search jobs").fill("run-1")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile(r"search=run-1"))
    page.get_by_label("State").select_option("running")
    expect(page.locator("main")).to_contain_text("No job matches")
    page.reload()
    expect(page.locator("main")).to_contain_text("No job matches")
    page.get_by_label("State").select_option("")
    page.get_by_label("Cause").select_option("uneven-steps")
    expect(page.get_by_role("link", name="run-1", exact=True)).to_be_visible()


@BOTH
def test_a_person_reviews_incidents_of_one_cause_and_line(page: Page, served: Served, week: None) -> None:
    page.goto(f"{served.url}/incidents")
    group = page.locator(".group")
    expect(group).to_have_count(1)
    expect(group).to_contain_text("Ranks ran out of data at different batches")
    expect(group).to_contain_text("train.py:88")
    expect(group).to_contain_text("seen 3 times in 3 job runs")
    # WHEN it is acknowledged with a note
    group.get_by_label("Note").fill("drop_last is missing")
    group.get_by_role("button", name="Acknowledge").click()
    expect(group.locator(".tag")).to_have_text("acknowledged")
    page.reload()
    expect(group.get_by_label("Note")).to_have_value("drop_last is missing")
    # THEN the page of each of the incidents says so, and it can be resolved there
    group.get_by_text("All 3").click()
    group.locator("details a").last.click()
    review = page.get_by_role("region", name="Review")
    expect(review).to_contain_text("acknowledged")
    review.get_by_role("button", name="Resolve").click()
    expect(review.locator(".tag")).to_have_text("resolved")
    # AND it is open again when it is seen again, on a page that is open all the time
    page.goto(f"{served.url}/incidents")
    expect(group.locator(".tag")).to_have_text("resolved")
    seen(served, 9, time.time() + 60)
    expect(group.locator(".tag")).to_have_text("open")
    expect(group).to_contain_text("seen 4 times")


def test_eight_tabs_are_live_over_one_stream(browser: Browser, served: Served, fleet: Fleet) -> None:
    other = Fleet(served.url, job="10.0.0.2:29500", name="llama")
    for each in (fleet, other):
        each.step = 100
        each.beat()
        each.live(0.5)
    context = browser.new_context()
    keys = [job.key for job in served.service.registry.jobs.values()]
    tabs = [context.new_page() for _ in range(TABS)]
    for number, tab in enumerate(tabs):
        tab.goto(served.url + ("" if number % 4 == 3 else f"/jobs/{keys[number % 2]}"))
    try:
        for number, tab in enumerate(tabs):
            expect(tab.locator(".line")).to_contain_text("live")
            if number % 4 != 3:
                expect(tab.locator("h1")).to_contain_text("running")
                expect(tab.locator(".situations")).to_be_visible()
        until(lambda: len(served.service.hub.readers) == 1)
        # WHEN one of them is used THEN it is answered, and all of them go on
        tabs[-2].get_by_role("link", name="Steps", exact=True).click()
        expect(tabs[-2].locator("main")).to_contain_text("Where the time goes")
        step = tabs[0].locator(".facts-line").inner_text()
        expect(tabs[0].locator(".facts-line")).not_to_have_text(step, use_inner_text=True)
        # WHEN all but one are closed THEN the stream tells of what is left
        for tab in tabs[1:]:
            tab.close()  # at once: no page has the time to say goodbye
        until(lambda: [reader.jobs for reader in list(served.service.hub.readers)] == [frozenset({keys[0]})])
        expect(tabs[0].locator(".line")).to_contain_text("live")
    finally:
        other.stop()
        context.close()
