"""What calls bring, in elements and types."""

from __future__ import annotations

import pytest

from hangwatch.ranks.tensors import dtype_name, elements


@pytest.mark.parametrize(
    ("sizes", "count"),
    [(((4,), (2, 3)), 10), (((),), 1), (((0, 8),), 0), ((), None)],
    ids=["two", "scalar", "empty", "unknown"],
)
def test_the_elements_of_all_tensors_are_added_up(sizes: tuple[tuple[int, ...], ...], count: int | None) -> None:
    assert elements(sizes) == count


@pytest.mark.parametrize("written", ["torch.float32", "Float", "float", "float32"])
def test_one_type_has_one_name(written: str) -> None:
    assert dtype_name(written) == "float32"
