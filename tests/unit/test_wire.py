"""Records from JSON: what is no number of JSON's is no number."""

from __future__ import annotations

import pytest

from hangwatch import wire
from hangwatch.records import Progress


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1" + 400 * "0", '"3"', "true", "null"])
def test_what_is_no_finite_number_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(wire.WireError, match=r"Progress\.at: expected float"):
        wire.loads(Progress, f'{{"at": {text}}}')


@pytest.mark.parametrize("text", ["3", "3.0", "-0.5", "1e300"])
def test_numbers_of_either_kind_are_numbers(text: str) -> None:
    assert wire.loads(Progress, f'{{"at": {text}}}').at == float(text)
