"""The self-contained HTML file: whole, safe, and not too large."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings

from hangwatch.model import (
    ChainEnd,
    Culprit,
    ExceptionFacts,
    Excerpt,
    Frame,
    GpuFacts,
    Incident,
    LoaderFacts,
    NextCheck,
    ProcessEvidence,
    ProcessFacts,
    Status,
    ThreadStack,
)
from hangwatch.report import html, titles, words
from hangwatch.report.html import markup
from scripts import judged
from tests import examples
from tests.strategies import record

VOID = {"meta"}


class _Page(HTMLParser):
    """What a browser would see: the text, the elements, and whether they close as they opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.open = "", list[str]()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of_class(self, name: str) -> int:
        return sum(name in (attributes.get("class") or "").split() for _, attributes in self.elements)


def test_it_says_what_the_terminal_says() -> None:
    made = examples.uneven_steps()
    text = _Page(html.render(made)).text
    verdict = made.verdict
    for said in (
        words.headline(made),
        verdict.summary,
        *verdict.details,
        verdict.fix,
        "rank 3, pid 4711 on node-b",
        *verdict.evidence,
        *(f"{titles.title(other.cause)} ({other.cause}): {other.why_not}" for other in verdict.alternatives),
        "native stacks of rank 3 (took longer than 2 s)",
        made.warnings[0].summary,
        "20 November 2026, 19:30:03 UTC",
    ):
        assert said in text


@pytest.mark.parametrize("name", ["gallery-worker-on-decoder", "gallery-checkpoint-stuck", "gallery-blocked-on-lock"])
def test_waits_are_said_in_the_sentences_of_the_terminal(name: str) -> None:
    # GIVEN reports of real jobs, and one whose waits end at a loader worker
    made = judged.incident(name)
    rank, pid = made.ranks[-1].rank, 88
    end = ChainEnd(
        rank, "waits (train.py:60) for loader worker 0 (pid 88), which sleeps", "loader worker 0 (pid 88)", pid
    )
    worker = Culprit(rank, pid, "node-a", "loader-worker")
    ended = replace(made, verdict=replace(made.verdict, ends=(end,), culprits=(worker,)))
    for each in (made, ended):
        text = re.sub(r"\s+", " ", _Page(html.render(each)).text)
        for sentence in words.chain(each.verdict):
            assert sentence in text
        assert "to blame" not in text
        assert "stage " not in text.split(made.verdict.summary)[0]
    # AND the style adds no words of its own
    style = html.render(ended)
    assert '<b class="culprit">loader worker 0 (pid 88)</b>' in style
    assert "waits in" not in style[: style.index("</style>")]


def test_the_home_of_a_worker_at_fault_is_not_at_fault_itself() -> None:
    made = examples.uneven_steps()
    worker = replace(made.verdict.culprits[0], process="loader-worker")
    text = html.render(replace(made, verdict=replace(made.verdict, culprits=(worker,))))
    assert "rank 3: one of its processes is at fault" in text
    assert "rank 3: at fault" not in text
    both = replace(made, verdict=replace(made.verdict, culprits=(made.verdict.culprits[0], worker)))
    assert "rank 3: at fault" in html.render(both)


def test_a_cell_knows_the_name_of_its_column() -> None:
    assert 'data-label="waits for"' in html.render(examples.uneven_steps())


def test_it_shows_the_evidence() -> None:
    text = _Page(html.render(examples.uneven_steps())).text
    for said in (
        "_engine_run_backward",
        "all_reduce [1000x2048] float32",
        "not yet there, or overwritten",
        "CardSampler (8031)",
        "futex in futex_wait_queue",
        "31 GiB of 141 GiB",
        "rank 3 issued 1; ranks 0-2 issued 2",
        "epoch 0 step 240 loss 0.3182",
    ):
        assert said in text


def test_nothing_is_loaded_and_no_script_can_run() -> None:
    text = html.render(examples.uneven_steps())
    page = _Page(text)
    assert {name for name, _ in page.elements}.isdisjoint({"script", "link", "img", "iframe", "form", "base", "object"})
    assert not any(key.startswith("on") or key in ("src", "style") for _, found in page.elements for key in found)
    # The policy allows this one style sheet and nothing else.
    policy = next(found["content"] for name, found in page.elements if found.get("http-equiv"))
    style = re.search(r"<style>(.*)</style>", text, re.DOTALL)
    assert policy is not None
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert not re.search(r"url\(|@import", style[1])


EVIL = "</style><script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[2J\u202e&amp;"


def test_strings_from_ranks_stay_text() -> None:
    made = examples.uneven_steps()
    frame = Frame(EVIL, 1, EVIL)
    verdict = replace(
        made.verdict,
        cause=EVIL,
        summary=EVIL,
        fix=EVIL,
        docs="javascript:alert(1)",
        evidence=(EVIL,),
        culprits=(Culprit(3, 1, EVIL, EVIL, frame, Excerpt(EVIL, 1, 1, (EVIL,))),),
    )
    rank = replace(
        made.ranks[3],
        host=EVIL,
        phase=EVIL,
        last_output=EVIL,
        exception=ExceptionFacts(EVIL, EVIL, (frame,)),
        stacks=(ThreadStack(1, EVIL, (frame,), main=True),),
        process=ProcessFacts(1, EVIL, command=EVIL, wait_channel=EVIL),
        loader=(LoaderFacts(0, 1, dataset=EVIL, sampler=EVIL),),
    )
    node = replace(made.nodes[0], host=EVIL, gpus=(GpuFacts(0, "", EVIL, errors=(EVIL,)),))
    job = replace(made.job, name=EVIL, launcher=EVIL)
    evil = replace(made, id=EVIL, job=job, verdict=verdict, ranks=(*made.ranks[:3], rank), nodes=(node,))
    page = _Page(html.render(evil))
    assert {name for name, _ in page.elements}.isdisjoint({"script", "img", "a"})
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text


def test_the_culprits_line_stands_out_among_its_neighbours() -> None:
    made = examples.uneven_steps()
    page = html.render(made)
    assert "<mark>    88          dist.barrier()</mark>\n<span>    89          if rank == 0:</span>" in page
    assert "other lines may be running" not in page
    (who,) = made.verdict.culprits
    edited = replace(who, excerpt=replace(examples.EXCERPT, changed=True))
    assert "other lines may be running" in html.render(replace(made, verdict=replace(made.verdict, culprits=(edited,))))


def test_only_addresses_of_the_web_are_linked() -> None:
    made = examples.uneven_steps()
    linked = replace(made, verdict=replace(made.verdict, docs="https://example.org/x"))
    assert ("a", {"href": "https://example.org/x", "rel": "noreferrer"}) in _Page(html.render(linked)).elements
    local = replace(made, verdict=replace(made.verdict, docs="docs/causes.md#uneven-steps"))
    assert not any(name == "a" for name, _ in _Page(html.render(local)).elements)


@pytest.mark.untraced
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(incident=record(Incident))
def test_whatever_an_incident_holds_it_becomes_a_page(incident: Incident) -> None:
    page = html.render(incident)
    assert page.encode("utf-8")
    assert _Page(page).elements


def test_the_parts_of_a_rank_are_told_apart_by_more_than_colour() -> None:
    made = examples.uneven_steps()
    moving = replace(made.ranks[1], moved=True)
    verdict = replace(made.verdict, victims=(0,))
    job = replace(made.job, world_size=6)
    page = _Page(html.render(replace(made, job=job, verdict=verdict, ranks=(made.ranks[0], moving, *made.ranks[2:]))))
    for said in ("✖3", "…0", "▸1", "·2", "∅4", "∅5", "never came", "still moves"):
        assert said in page.text


@pytest.mark.parametrize(
    ("status", "mood"), [(Status.RECOVERED, "good"), (Status.LINGERING, "warn"), (Status.FAILED, "bad")]
)
def test_states_have_their_colours(status: Status, mood: str) -> None:
    assert _Page(html.render(replace(examples.uneven_steps(), status=status))).of_class(mood) == 1


def _heavy() -> Incident:
    """Eight ranks with all that a capture can bring: deep native stacks, 16 workers, full rings."""
    made = examples.uneven_steps(8, 5, 4)
    stack = tuple(
        ThreadStack(number, f"thread {number}", examples.BACKWARD_STACK * 6, main=number == 0) for number in range(40)
    )
    worker = ProcessEvidence("loader-worker", ProcessFacts(7, "S", command="x" * 4000), stack[:4], worker=1)
    ranks = tuple(
        replace(
            rank,
            stacks=stack,
            workers=(worker,) * 16,
            last_output="a line of output\n" * 100_000,
            crash_trace="a line of a trace\n" * 100_000,
            collectives=replace(rank.collectives, recent=rank.collectives.recent * 250),
        )
        for rank in made.ranks
    )
    return replace(made, ranks=ranks)


def test_eight_ranks_with_much_evidence_stay_below_two_megabytes() -> None:
    assert len(html.render(_heavy()).encode()) < 2 << 20


@pytest.mark.untraced
def test_ten_thousand_ranks_become_a_page_too() -> None:
    text = html.render(examples.uneven_steps(10_000, 7, 8))
    assert len(text.encode()) < 2 << 20
    assert "ranks 0-6 and 8-9999: waits because of it" in _Page(text).text


def test_tables_are_cut_and_lose_empty_columns() -> None:
    made = markup.table(("a", "b", "c"), [(1, None, ""), (2, None, "x")] * 40)
    page = _Page(made)
    assert "and 16 more" in page.text
    assert [name for name, _ in page.elements].count("th") == 2
    assert markup.table(("a",), []) == ""


def test_marked_rows_are_not_cut_off() -> None:
    made = markup.table(("a",), [(number,) for number in range(100)], [number == 99 for number in range(100)])
    assert _Page(made).text.startswith("a990")


def test_a_long_block_keeps_its_end() -> None:
    made = markup.block("first\n" + "x\n" * markup.LONGEST_BLOCK + "<last>")
    assert "first" not in made
    assert made.endswith("&lt;last&gt;</pre>")


def test_code_in_a_sentence_is_set_as_code() -> None:
    made = examples.uneven_steps()
    page = html.render(replace(made, verdict=replace(made.verdict, fix="use `with Join([model]):`, or pad <all>")))
    assert "use <code>with Join([model]):</code>, or pad &lt;all&gt;" in page
    assert markup.prose("a lone ` stays") == "a lone ` stays"


def test_what_to_check_next_time_is_on_the_page() -> None:
    check = NextCheck("hangwatch doctor loader train.py:make", "loader lengths", "the loaders differ in `len`")
    page = html.render(replace(examples.uneven_steps(), check_next=(check,)))
    assert "Next time, check first" in page
    assert (
        "<code>hangwatch doctor loader train.py:make</code> (loader lengths): the loaders differ in <code>len" in page
    )
    assert "Next time" not in html.render(examples.uneven_steps())
