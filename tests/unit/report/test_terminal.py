"""The voice of hangwatch in the terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangwatch.model import Alternative, Certainty, Culprit, HealthWarning, Incident
from hangwatch.report import terminal
from hangwatch.report.incident import recovered
from tests import examples
from tests.strategies import record

REPORT = "hangwatch-reports/incident-20261120T193003Z-3f2a.html"


def test_a_hang() -> None:
    assert terminal.render(examples.uneven_steps(), 100, False, REPORT) == (
        """\
hangwatch: HUNG, proven, 3.1 s after the last step; cause proven

  Rank 3 ran out of data: it drew 250 of 251 batches in epoch 0 and has left the loop (dist.barrier,
  train.py:88).
  Ranks 0-2 wait in loss.backward (train.py:71) for its all_reduce, which will never come.

  fix     give every rank the same number of batches: DistributedSampler(..., drop_last=True), or
          pad the last one
  who     rank 3, pid 4711 on node-b
  chain   ranks 0-2 wait for rank 3 in all_reduce 501 of group 0 (train.py:71); rank 3 waits for
          ranks 0-2 in barrier 501 of group 0 (train.py:88)
  proof   Ranks 0-2 wait in all_reduce (train.py:71), which cannot complete without rank 3
          Rank 3 waits in barrier (train.py:88), which cannot complete without ranks 0-2
  seen    rank 3 drew 250 batches in epoch 0, then its loader ended; others 251
          rank 3 is in barrier, number 501 of group 0; elsewhere that is all_reduce
          len(loader) is 250 on rank 3 and 251 elsewhere
  not     rank-zero-only-collective: no rank is alone in a collective reached from a rank-guarded
          branch
          early-exit: the loader of rank 3 is exhausted, not left
  lacks   native stacks of rank 3 (took longer than 2 s)
  also    len(loader) differs across ranks: 250 on rank 3, 251 elsewhere; the job will hang at step
          250
  report  hangwatch-reports/incident-20261120T193003Z-3f2a.html
"""
    )


def test_other_states() -> None:
    assert terminal.render(examples.waiting(), width=120).startswith(
        "hangwatch: WAITING, 42 s after the last step; cause likely\n\n"
        "  Ranks 1-3 wait for rank 0, which is at work in evaluate (train.py:112): 38 of 60 batches.\n"
    )
    assert terminal.render(examples.lingering()).startswith("hangwatch: LINGERING, proven, 12 s after the end of")
    assert terminal.render(examples.undetermined()).startswith(
        "hangwatch: HUNG, likely, 2 min 6 s after the last step; cause not known\n"
    )
    made = examples.uneven_steps()
    again = terminal.render(recovered(made, made.opened_at + 90))
    assert again.startswith("hangwatch: RECOVERED after 93 s without progress\n")


def _large() -> Incident:
    """A verdict that has much to say of everything."""
    made = examples.uneven_steps()
    sentence = "this is a long sentence that goes on and on, as sentences of careful people do, " * 3
    verdict = replace(
        made.verdict,
        summary=sentence * 2,
        details=(sentence,) * 5,
        fix=sentence * 2,
        culprits=tuple(Culprit(rank, rank, f"node-{rank}") for rank in range(500)),
        evidence=(sentence,) * 9,
        alternatives=(Alternative("cause", Certainty.LIKELY, sentence),) * 4,
    )
    return replace(made, verdict=verdict, warnings=(HealthWarning("data-bound", sentence),) * 3)


def test_much_to_say_still_fits_one_screen() -> None:
    text = terminal.render(_large(), 100, False, REPORT)
    assert len(text.splitlines()) <= terminal.SCREEN
    for label in ("fix", "who", "report"):
        assert f"\n  {label.ljust(8)}" in text


@pytest.mark.parametrize("width", [10, 40, 60, 80, 100, 300])
@pytest.mark.parametrize("example", [*examples.EXAMPLES.values(), _large])
def test_lines_keep_to_the_width(example: Callable[[], Incident], width: int) -> None:
    lines = terminal.render(example(), width).splitlines()
    assert max(map(len, lines)) <= max(width, terminal.NARROWEST)


def test_the_path_of_the_report_can_be_copied_from_a_narrow_terminal() -> None:
    assert f"  report  {REPORT}\n" in terminal.render(examples.uneven_steps(), 40, False, REPORT)


def test_colours_change_nothing_else() -> None:
    plain = terminal.render(examples.uneven_steps(), 80, False, REPORT)
    colored = terminal.render(examples.uneven_steps(), 80, True, REPORT)
    assert colored != plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain


def test_escape_sequences_from_a_rank_do_not_reach_the_terminal() -> None:
    made = examples.uneven_steps()
    evil = "\x1b]0;owned\x07\x1b[2J\r\nhangwatch: all is well\u202e"
    verdict = replace(made.verdict, summary=evil, fix=evil, details=(evil,), culprits=(Culprit(0, 1, evil),))
    text = terminal.render(replace(made, verdict=verdict), 100, False, evil)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert "\nhangwatch: all is well" not in text


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(incident=record(Incident), width=st.integers(0, 200), color=st.booleans())
def test_whatever_an_incident_holds_it_can_be_printed(incident: Incident, width: int, color: bool) -> None:
    assert "hangwatch: " in terminal.render(incident, width, color, "x")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it() -> None:
    assert terminal.colorful(_Terminal(), {"TERM": "xterm"})
    assert not terminal.colorful(_Terminal(), {"TERM": "xterm", "NO_COLOR": "1"})
    assert not terminal.colorful(_Terminal(), {"TERM": "dumb"})
    assert not terminal.colorful(io.StringIO(), {"TERM": "xterm"})


def test_show_is_plain_in_a_file_and_survives_its_encoding() -> None:
    made = examples.uneven_steps()
    made = replace(made, verdict=replace(made.verdict, summary="naïve – 漢字"))
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, "ascii", write_through=True)
    terminal.show(made, stream, REPORT)
    assert rb"na\xefve \u2013 \u6f22\u5b57" in raw.getvalue()
    assert b"\x1b" not in raw.getvalue()


def test_show_is_colourful_in_a_terminal() -> None:
    out = _Terminal()
    terminal.show(examples.uneven_steps(), out, environment={"TERM": "xterm"})
    assert "\x1b[1;31m" in out.getvalue()


def test_verbose_prints_the_whole_argument() -> None:
    sentence = "rank 0 waits for rank 1"
    made = _large()
    made = replace(made, verdict=replace(made.verdict, argument=(sentence,) * 12))
    assert terminal.render(made, 100).count(sentence) <= 2
    whole = terminal.render(made, 100, verbose=True)
    assert whole.count(sentence) == 12
    assert whole.count("\n  proof   ") == 1


def test_verbose_cuts_no_sentence() -> None:
    made = _large()
    assert " ...\n" in terminal.render(made, 100)
    whole = terminal.render(made, 100, verbose=True)
    assert " ...\n" not in whole
    told = " ".join(whole.split())
    assert all(" ".join(sentence.split()) in told for sentence in made.verdict.details)


def test_why_an_unproven_hang_is_called_hung() -> None:
    assert "\n  hung    no counter of ranks 0-3 has moved for 2 min 6 s" in terminal.render(
        examples.undetermined(), 100
    )
