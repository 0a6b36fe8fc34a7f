"""Records from JSON: what is no number of JSON's is no number."""

from __future__ import annotations

import pytest

from hangwatch.model import Progress
from hangwatch.wire import codec


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1" + 400 * "0", '"3"', "true", "null"])
def test_what_is_no_finite_number_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(codec.WireError, match=r"Progress\.at: expected float"):
        codec.loads(Progress, f'{{"at": {text}}}')


@pytest.mark.parametrize("text", ["3", "3.0", "-0.5", "1e300"])
def test_numbers_of_either_kind_are_numbers(text: str) -> None:
    assert codec.loads(Progress, f'{{"at": {text}}}').at == float(text)
