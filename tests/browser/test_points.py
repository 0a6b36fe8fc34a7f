"""What a reader of the page needs, point by point: words while a job waits, its end, large jobs, narrow screens."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from playwright.sync_api import Page, expect

from hangwatch.model import CaptureNote, Culprit, Incident, NextCheck
from scripts import judged
from tests import examples
from tests.browser.conftest import MOSTLY, Screen, Served, fits, until, visit
from tests.browser.fleet import Fleet
from tests.browser.test_file import Open, open_file
from tests.browser.test_history import seen
from tests.browser.test_job import hang, open_job
from tests.browser.test_rules import barriers

__all__ = ["open_file"]

pytestmark = MOSTLY


def test_it_counts_down_and_says_why_a_job_waits(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN a job of which one rank is awaited by the others, which hangwatch does not judge yet
    fleet.step = 100
    fleet.beat()
    open_job(page, served)
    expect(page.locator(".countdown")).to_have_count(0)
    fleet.texts = {0: {"waiting_for": "all_reduce 201 of group 0"}}
    fleet.still = 20.0
    fleet.live(0.5)
    # THEN the page says for how long, until when, and why
    countdown = page.locator(".countdown")
    expect(countdown).to_contain_text(re.compile(r"No rank has moved for \d+ s: called hung in 1\d\d s"))
    expect(countdown).to_contain_text("Rank 0 waits for all_reduce 201 of group 0")
    before = countdown.inner_text()
    expect(countdown).not_to_have_text(before, use_inner_text=True)


def test_time_stands_still_when_a_job_has_ended(page: Page, served: Served, fleet: Fleet) -> None:
    hang(page, served, fleet)
    fleet.stop()
    expect(page.get_by_role("button", name="Capture now").first).to_be_visible()
    fleet.exit_code = 1
    fleet.finish()
    expect(page.locator(".verdict .after")).to_contain_text("the job ended")
    expect(page.locator(".facts-line")).to_contain_text("ended")
    expect(page.locator("header.title").get_by_role("button", name="Capture now")).to_have_count(0)
    expect(page.locator("h1")).to_contain_text("failed")


def test_ranks_of_a_job_that_has_ended_do_not_move(page: Page, served: Served, fleet: Fleet) -> None:
    fleet.step = 100
    fleet.beat()
    fleet.live(0.5)  # opening the page takes a busy machine longer than a rank may stand still
    open_job(page, served)
    expect(page.locator(".situations")).to_contain_text("on the move")
    fleet.stop()
    fleet.finish()
    expect(page.locator("h1")).to_contain_text("finished")
    expect(page.locator(".situations")).not_to_contain_text("on the move")
    page.goto(f"{page.url}/ranks/0")
    expect(page.locator(".facts")).to_contain_text("the job has ended")


def test_a_verdict_is_copied_as_markdown(hung: Page) -> None:
    hung.context.grant_permissions(["clipboard-read", "clipboard-write"])
    hung.get_by_role("button", name="Copy as Markdown").click()
    copied = until(lambda: hung.evaluate("navigator.clipboard.readText()"))
    for text in ("in `vision`", "> Rank 3 ran out of data", "(`uneven-steps`), cause proven", "train.py:88`", hung.url):
        assert text in copied


def test_rows_have_the_words_of_the_field(hung: Page) -> None:
    labels = hung.locator(".verdict .row dt")
    words = {"Who", "Fix", "Cause", "Evidence", "Proof", "Ruled out", "Unavailable"}
    until(lambda: set(labels.all_inner_texts()) == words)  # the last rows come with the incident itself
    expect(hung.locator(".row-why")).to_contain_text("Ranks ran out of data at different batches uneven-steps")


def test_a_line_has_an_address_and_keys_turn_pages(hung: Page) -> None:
    hung.get_by_role("link", name="Link to line 88").first.click()
    assert hung.url.endswith("#train.py-L88")
    hung.reload()
    expect(hung.locator(".excerpt .named").first).to_be_in_viewport()
    hung.keyboard.press("]")
    expect(hung.locator("nav.views [aria-current]")).to_have_text("Diff")
    hung.keyboard.press("[")
    hung.locator(".situations a").first.click()
    expect(hung.get_by_role("heading", name="Rank 3 on")).to_be_visible()
    hung.keyboard.press(",")
    expect(hung.get_by_role("heading", name="Rank 2 on")).to_be_visible()
    hung.goto("/")
    hung.keyboard.press("/")
    expect(hung.get_by_role("searchbox", name="Search jobs")).to_be_focused()


def test_the_keys_are_listed_where_a_reader_finds_them(hung: Page, screen: Screen) -> None:
    # WHEN the list is asked for by its key, or by the button in the header
    keys = hung.get_by_role("dialog", name="Keys")
    hung.keyboard.press("?")
    expect(keys).to_be_visible()
    expect(keys).to_contain_text("the view before, the view after")
    assert barriers(hung) == []
    # THEN other keys wait until it is closed, which gives the focus back
    hung.keyboard.press("]")
    expect(hung.locator("nav.views [aria-current]")).to_have_text("Overview")
    hung.keyboard.press("Escape")
    expect(keys).to_be_hidden()
    button = hung.get_by_role("button", name="keys", exact=True)
    button.click()
    expect(keys).to_be_visible()
    keys.get_by_role("button", name="Close").click()
    expect(keys).to_be_hidden()
    expect(button).to_be_focused()
    assert fits(hung, screen.width)


def test_long_names_and_messages_stay_within_the_page(page: Page, served: Served, fleet: Fleet, screen: Screen) -> None:
    fleet.name, fleet.command = "a-very-long-name-of-a-run-" * 8, "train.py --config " + "configs/" * 100
    fleet.beat()
    page.goto(served.url)
    row = page.locator("tbody tr")
    expect(row).to_contain_text("running")
    for text in ("4", "2"):  # ranks and nodes are on the screen, not beside it
        box = row.get_by_text(text, exact=True).first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= screen.width
    assert fits(page, screen.width)
    # AND the command is cut, and shown when it is asked for
    command = row.locator(".command")
    assert command.evaluate("one => one.scrollHeight > one.clientHeight + 1")
    row.locator("th").get_by_role("button", name="show more").click()
    assert not command.evaluate("one => one.scrollHeight > one.clientHeight + 1")
    assert fits(page, screen.width)
    page.locator("tbody th a").click()
    page.locator("canvas").first.wait_for()
    command = page.locator(".facts-line .one-line")
    assert command.evaluate("one => one.scrollWidth > one.clientWidth + 1")
    page.locator(".facts-line").get_by_role("button", name="show more").click()
    assert not command.evaluate("one => one.scrollWidth > one.clientWidth + 1")
    assert fits(page, screen.width)
    expect(page.locator("h1")).not_to_contain_text(fleet.name)
    page.locator("h1").get_by_role("button", name="show more").click()
    expect(page.locator("h1")).to_contain_text(fleet.name)
    assert fits(page, screen.width)
    assert barriers(page) == []


def test_the_culprits_branch_is_seen_at_once(hung: Page) -> None:
    hung.goto(f"{hung.url}/stacks")
    expect(hung.locator(".box[aria-pressed=true]")).to_be_in_viewport(ratio=0.9)
    expect(hung.locator("nav.views [aria-current]")).to_be_in_viewport(ratio=0.9)


def test_the_branch_of_one_of_many_ranks_can_be_read(open_file: Open) -> None:
    page = open_file(examples.uneven_steps(128, 37, 8))
    page.goto(page.url.split("#")[0] + "#/stacks")
    chosen = page.locator(".box[aria-pressed=true]")
    expect(chosen).to_contain_text("main train.py:88")
    expect(chosen).to_be_in_viewport(ratio=0.9)
    for box in page.locator(".box.blamed").all():
        where = box.bounding_box()
        assert where is not None
        assert where["width"] >= 110


def test_much_that_is_unavailable_does_not_fill_the_screen(open_file: Open) -> None:
    made = examples.uneven_steps()
    lost = tuple(CaptureNote("file", ok=False, detail=f"dump {number} is cut off") for number in range(30))
    page = open_file(replace(made, capture=lost))
    row = page.locator(".row-lacks")
    expect(row.locator("li")).to_have_count(6)
    row.get_by_role("button", name="show 24 more").click()
    expect(row.locator("li")).to_have_count(30)


def test_what_to_check_next_time_stands_in_the_report(open_file: Open) -> None:
    check = NextCheck("hangwatch doctor loader train.py:make", "loader lengths", "the loaders differ in length")
    page = open_file(replace(examples.uneven_steps(), check_next=(check,)))
    expect(page.locator(".row-next")).to_contain_text("hangwatch doctor loader train.py:make (loader lengths)")
    assert barriers(page) == []


def with_a_stuck_worker() -> Incident:
    """A loader worker of rank 1 is at fault; every rank of the job waits."""
    made = examples.uneven_steps()
    ranks = tuple(
        replace(
            rank,
            workers=tuple(
                replace(worker, rank=rank.rank, facts=replace(worker.facts, pid=9000 + 10 * rank.rank + number))
                for number, worker in enumerate(rank.workers or made.ranks[0].workers)
            ),
        )
        for rank in made.ranks
    )
    worker = ranks[1].workers[0]
    who = Culprit(1, worker.facts.pid, ranks[1].host, "loader-worker", made.verdict.culprits[0].where)
    verdict = replace(made.verdict, culprits=(who,), victims=(0, 1, 2, 3))
    return replace(made, ranks=ranks, verdict=verdict)


def test_a_worker_that_is_named_is_marked_and_its_stack_shown(open_file: Open) -> None:
    page = open_file(with_a_stuck_worker())
    page.goto(page.url.split("#")[0] + "#/loader")
    row = page.get_by_role("region", name="Loader workers").locator("tr.at-fault")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("9010")
    expect(row).to_contain_text("at fault")
    expect(page.locator(".chosen")).to_contain_text("Worker 0 of rank 1, pid 9010")
    expect(page.locator(".chosen .frames li").first).to_be_visible()
    expect(page.locator("#workers + .note")).to_have_text("worker 0 of rank 1 at fault")
    # AND in the drawing the worker alone is at fault, and in the table its rank is where it belongs to
    page.goto(page.url.split("#")[0] + "#/")
    expect(page.locator(".drawing .fault")).to_have_count(1)
    expect(page.locator(".drawing .fault .name")).to_have_text("loader worker of rank 1")
    expect(page.locator(".drawing .home")).to_have_text("rank 1its worker at fault")
    row = page.locator(".situations tr.home")
    expect(row.locator(".tag.home")).to_have_text("its worker at fault")
    expect(page.locator(".situations .at-fault")).to_have_count(0)
    assert barriers(page) == []


def test_a_worker_at_the_end_of_the_chain_is_at_fault_and_not_its_rank(open_file: Open) -> None:
    page = open_file(judged.incident("gallery-worker-on-socket"))
    expect(page.locator(".drawing .fault")).to_have_count(1)
    expect(page.locator(".drawing .fault .name")).to_contain_text("loader worker")
    expect(page.locator(".situations .at-fault")).to_have_count(0)
    expect(page.locator(".drawing .home .why")).to_have_text("its worker at fault")


def test_last_output_stands_beside_the_stacks(hung: Page, screen: Screen) -> None:
    hung.goto(f"{hung.url}/ranks/3")
    output = hung.get_by_label("Last output", exact=True)
    expect(output).to_contain_text("epoch 0 step 240")
    stack = hung.locator(".thread").first.bounding_box()
    beside = output.bounding_box()
    assert stack is not None
    assert beside is not None
    if screen.width == 400:  # below them, where there is no room beside
        assert beside["y"] >= stack["y"] + stack["height"]
    else:
        assert beside["x"] >= stack["x"] + stack["width"]


def test_many_ranks_are_found_and_calm_nodes_collapse(page: Page, served: Served, screen: Screen) -> None:
    large = Fleet(served.url, world_size=128, per_node=8)
    large.snapshot = examples.uneven_steps_snapshot(128, 3, 8)
    large.step = 249
    large.beat()
    open_job(page, served)
    expect(page.locator(".told")).to_contain_text("128 ranks on 16 nodes")
    large.live(0.5)
    large.hang()
    try:
        page.locator(".verdict").wait_for()
        expect(page.locator(".collapsed").first).to_contain_text("15 nodes with 120 ranks")
        expect(page.locator(".told")).to_contain_text("8 ranks on 1 node")
        # AND the table of nodes has the one of the rank at fault, below the incident
        rows = page.get_by_role("region", name="Nodes of the job").locator("tbody tr")
        expect(rows).to_have_count(1)
        incidents, nodes = (
            page.get_by_role("heading", name=name, exact=True) for name in ("Incidents of this job", "Nodes")
        )
        expect(incidents).to_be_visible()
        first, second = incidents.bounding_box(), nodes.bounding_box()
        assert first is not None
        assert second is not None
        assert first["y"] < second["y"]
        page.get_by_role("button", name="List all nodes").click()
        expect(rows).to_have_count(16)
        page.get_by_role("button", name="Show all nodes").click()
        expect(page.locator(".told")).to_contain_text("128 ranks on 16 nodes")
        page.get_by_label("Go to rank").fill("999")
        page.keyboard.press("Enter")
        expect(page.locator(".go-to")).to_contain_text("no such rank")
        assert fits(page, screen.width)
        page.get_by_label("Go to rank").fill("100")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Rank 100 on")).to_be_visible()
    finally:
        large.stop()


def test_what_is_alike_in_a_large_job_is_told_once(open_file: Open, screen: Screen) -> None:
    # GIVEN an incident of 128 ranks, of which the views of evidence had a row for each
    page = open_file(examples.uneven_steps(128, 37, 8))
    address = page.url.split("#")[0]
    # THEN the culprit's rows come first, and the others are one line, which a button opens
    page.goto(f"{address}#/gpus")
    expect(page.locator(".part h2").first).to_have_text("node-e")
    expect(page.get_by_role("region", name=re.compile("^GPUs of"))).to_have_count(1)
    expect(page.locator(".collapsed").first).to_contain_text("15 nodes with 120 GPUs on which nothing stands out")
    assert page.evaluate("document.documentElement.scrollHeight") < 2500
    assert barriers(page) == []
    page.get_by_role("button", name="Show all nodes").first.click()
    expect(page.get_by_role("region", name=re.compile("^GPUs of"))).to_have_count(16)
    page.goto(f"{address}#/loader")
    rows = page.get_by_role("region", name="Loaders by rank").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_have_class("at-fault")
    expect(rows.last).to_contain_text("0-36 and 38-127 (127)")
    workers = page.get_by_role("region", name="Loader workers").locator("tbody tr")
    expect(workers).to_have_count(1)
    assert fits(page, screen.width)
    assert barriers(page) == []
    page.get_by_role("button", name="Show all 128").click()
    expect(rows).to_have_count(64)
    page.goto(f"{address}#/evidence")
    expect(page.locator(".thread")).to_have_count(1)
    expect(page.locator(".collapsed")).to_contain_text("15 others in the same state and place")
    page.get_by_role("button", name="Show all 16").click()
    expect(page.locator(".thread")).to_have_count(16)


def test_calls_are_read_on_a_narrow_screen(hung: Page, screen: Screen) -> None:
    """Who is missing in a call, and from where it was made, stood beside the screen."""
    visit(hung, f"{hung.url}/collectives")
    for name in ("Last calls in group 0", "How far the members of group 0 are"):
        table = hung.get_by_role("region", name=name)
        assert table.evaluate("one => one.scrollWidth <= one.clientWidth"), name
    mismatch = hung.locator(".calls .mismatch")
    for text in ("train.py:71", "train.py:88"):
        box = mismatch.get_by_text(text).bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= screen.width
    missing = hung.locator(".calls .missing").first.bounding_box()
    assert missing is not None
    assert missing["x"] + missing["width"] <= screen.width
    numbers = mismatch.locator("td.number").first.bounding_box()
    assert numbers is not None
    assert numbers["height"] < 80  # on one line, not a letter a line
    # AND in the second row of a call, which lacks its number and its step, each value has its own column's name
    labels = mismatch.locator("tr").nth(1).locator("td").evaluate_all("cells => cells.map(cell => cell.dataset.label)")
    assert labels == ["Call", "Arrived", "Called from"]


def test_where_the_time_goes_shows_the_culprit_among_many(open_file: Open) -> None:
    page = open_file(examples.uneven_steps(128, 37, 8))
    page.goto(page.url.split("#")[0] + "#/steps")
    part = page.get_by_role("region", name="Where the time goes")
    expect(part.locator("tbody tr")).to_have_count(32)
    expect(part.locator("tr.at-fault th")).to_have_text("37")
    # AND why its mean is small under a chart of a step that takes long: that one has not ended
    expect(part).to_contain_text("Mean of the steps that have ended")
    expect(part).to_contain_text("32 of 128")


def test_a_part_of_the_time_is_chosen_for_all_charts(page: Page, served: Served, fleet: Fleet) -> None:
    # GIVEN a job with some seconds of history
    fleet.step = 100
    fleet.beat()
    fleet.live(0.5)
    open_job(page, served)
    page.get_by_role("link", name="Steps", exact=True).click()
    chart = page.get_by_role("img", name=re.compile("^Time of each rank"))
    expect(chart.locator("canvas")).to_be_visible()
    chosen = page.get_by_label("Time range")
    expect(chosen.locator("option").first).to_contain_text(re.compile(r"all, \d\.\d s"))
    until(lambda: float(chosen.locator("option").first.inner_text().split()[1]) > 5)
    # WHEN a reader drags over a chart
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    chart.scroll_into_view_if_needed()
    box = chart.locator(".u-over").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=4)
    page.mouse.up()
    # THEN all charts show that part, the timeline too
    expect(chosen.locator("option:checked")).to_have_text(re.compile(r"^\d\.\d s$"))
    part = chosen.locator("option:checked").inner_text()
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page.get_by_role("application", name=re.compile(f"over {part}"))).to_be_visible()
    # AND it is left by keyboard, and by a double click on a chart
    page.get_by_label("Time range").select_option("0")
    expect(page.get_by_role("application", name=re.compile(f"over {part}"))).to_have_count(0)
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("link", name="Steps", exact=True).click()
    expect(chosen).to_have_value("some")
    chart.locator(".u-over").dblclick()
    expect(chosen).to_have_value("0")


def test_incidents_say_the_day_on_which_they_were_seen(page: Page, served: Served) -> None:
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    now = datetime.now(ZoneInfo("Europe/Berlin"))  # the reader's
    for number, ago in enumerate((5, 3)):
        seen(served, number, (now - timedelta(days=ago)).timestamp())
    page.goto(f"{served.url}/incidents")
    first, last = (days[(now - timedelta(days=ago)).weekday()] for ago in (5, 3))
    group = page.locator(".group")
    expect(group).to_contain_text(re.compile(rf"seen 2 times in 2 job runs, last on {last} at [\d:]+ in vision, first"))
    expect(group).to_contain_text(f", first on {first} at")


def test_a_row_says_what_it_is_about(hung: Page, screen: Screen) -> None:
    """On a narrow screen a row is a card: without the column's name above it, a bare "3" says nothing."""
    hung.goto(f"{hung.url}/loader")
    head = hung.get_by_role("region", name="Loaders by rank").locator("tbody th").first
    said = head.evaluate("cell => getComputedStyle(cell, '::before').content")
    assert said == ('"Rank "' if screen.width == 400 else "none")
