"""Reports of earlier formats stay readable, and claim no more than they knew."""

from __future__ import annotations

import json

import pytest

from hangwatch.model import SCHEMA, Certainty, Status
from hangwatch.report import files, versions
from hangwatch.wire import codec
from tests import examples


def of_format_1(status: str, certainty: str) -> bytes:
    """A report as version 1 wrote it: one certainty, and nothing said of the hang."""
    document = codec.encode(examples.uneven_steps()) | {"schema": "hangwatch.incident/1", "status": status}
    verdict = {name: value for name, value in document["verdict"].items() if name not in ("hang", "argument")}
    return json.dumps(document | {"verdict": verdict | {"certainty": certainty}}).encode()


@pytest.mark.parametrize(
    ("status", "certainty", "hang", "cause"),
    [
        ("hung", "proven", Certainty.PROVEN, Certainty.LIKELY),
        ("hung", "likely", Certainty.LIKELY, Certainty.LIKELY),
        ("hung", "undetermined", Certainty.LIKELY, Certainty.UNDETERMINED),
        ("lingering", "proven", Certainty.PROVEN, Certainty.LIKELY),
        ("failed", "proven", None, Certainty.LIKELY),
        ("failed", "undetermined", None, Certainty.UNDETERMINED),
        ("waiting", "likely", None, Certainty.LIKELY),
    ],
)
def test_the_one_certainty_of_format_1_spoke_for_the_hang(
    status: str, certainty: str, hang: Certainty | None, cause: Certainty
) -> None:
    found = files.parse(of_format_1(status, certainty), "old.json")
    assert (found.schema, found.status) == (SCHEMA, Status(status))
    assert (found.verdict.hang, found.verdict.certainty, found.verdict.argument) == (hang, cause, ())


def test_the_present_format_is_left_as_it_is() -> None:
    document = codec.encode(examples.uneven_steps())
    assert versions.upgraded(document) == document


@pytest.mark.parametrize("document", [{}, {"schema": "hangwatch.incident/1"}, {"verdict": 3}, {"schema": ["x"]}])
def test_what_is_no_report_is_left_to_the_reader(document: dict[str, object]) -> None:
    assert "hang" not in versions.upgraded(document)
