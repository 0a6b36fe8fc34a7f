"""The verdict as Markdown, and the report without the evidence of each rank."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from hangwatch.report import files, markdown, summary, titles
from hangwatch.wire import codec
from tests import examples

PLAIN = frozenset(  # what the text consists of, whatever its sentences hold
    f"{name}{end}"
    for name in ("paragraph", "blockquote", "bullet_list", "list_item", "strong")
    for end in ("_open", "_close")
) | {"inline", "text", "text_special", "code_inline", "fence", "softbreak"}


def test_it_says_what_the_terminal_says() -> None:
    text = markdown.render(examples.uneven_steps(), report="incident-1.json")
    for part in (
        "**HUNG, proven, 3.1 s after the last step; cause proven** in `",
        "> Rank 3 ran out of data",
        " Ranks 0-2 wait in loss.backward (train.py:71)",
        "- **Cause:** Ranks ran out of data at different batches (`uneven-steps`), cause proven",
        "- **Who:** rank 3, pid 4711 on node-b at `/home/mia/vision/train.py:88`",
        "- **Chain:** ranks 0-2 wait for rank 3 in all_reduce 501 of group 0 (train.py:71); rank 3 waits for ranks 0-2",
        "- **Fix:** give every rank the same number of batches",
        ">   88 ",
        "**Evidence**\n\n- rank 3 drew 250 batches",
        "**Ruled out**\n\n- A collective on one rank only (`rank-zero-only-collective`): no rank is alone",
        "More: `incident-1.json`",
    ):
        assert part in text, part


def test_hostile_sentences_are_no_markup_and_mention_no_user() -> None:
    made = examples.uneven_steps()
    evil = replace(made.verdict, summary="<img src=x> [a](http://evil) @everyone\n# b\x1b[31m", cause="`x`")
    text = markdown.render(replace(made, verdict=evil))
    assert "> \\<img src=x> \\[a\\](http://evil) @\u200beveryone \\# b\\\\x1b\\[31m" in text
    assert "@everyone" not in text


def test_an_arrow_in_a_sentence_stays_one() -> None:
    made = examples.uneven_steps()
    sentence = "it waits on socket 10.0.0.1:37404 -> 10.0.0.2:37369"
    text = markdown.render(replace(made, verdict=replace(made.verdict, summary=sentence, evidence=("> 3 s", ">> x"))))
    assert sentence in text
    assert "- \\> 3 s\n- \\>> x" in text, "at the start of a line it would be a quotation"


def test_code_in_a_sentence_is_shown_as_it_is() -> None:
    made = examples.uneven_steps()
    advice = replace(made.verdict, fix="wrap it in `with Join([model]):`, or use `a` ``b`c`` [x]")
    text = markdown.render(replace(made, verdict=advice))
    assert "wrap it in `with Join([model]):`, or use `a` ``b`c`` \\[x\\]" in text


@given(st.text(alphabet="`\\<b>[](x) *#|", max_size=30))
def test_whatever_a_sentence_holds_it_is_text_and_code(sentence: str) -> None:
    # GIVEN a sentence that a rank may have put together, WHEN it stands between other text and code
    made = examples.uneven_steps()
    culprit = replace(made.verdict.culprits[0], host=sentence)
    text = markdown.render(replace(made, verdict=replace(made.verdict, summary=f"x{sentence}", culprits=(culprit,))))
    # THEN no other markup comes of it
    tokens = [each for block in MarkdownIt("commonmark").parse(text) for each in (block, *(block.children or ()))]
    assert {token.type for token in tokens} <= PLAIN
    assert any(token.content == f"{made.verdict.culprits[0].where.file}:88" for token in tokens)  # type: ignore[union-attr]


def test_a_cause_of_a_newer_version_is_called_by_its_id() -> None:
    assert titles.title("uneven-steps") == "Ranks ran out of data at different batches"
    assert titles.title("not-yet-known") == "not-yet-known"


def test_a_summary_is_small_and_still_a_report() -> None:
    made = examples.uneven_steps(8, 5, 4)
    small = summary.of(made)
    text = codec.dumps(small)
    assert len(text) < len(codec.dumps(made)) / 3
    read = files.parse(text.encode(), "a summary")
    assert (read.verdict, read.status, len(read.ranks)) == (made.verdict, made.status, 8)
    assert read.ranks[5].progress == made.ranks[5].progress
    assert any("summary" in note.detail for note in read.capture)
