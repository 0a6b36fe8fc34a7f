"""Error files of torchrun's processes."""

from __future__ import annotations

from hangwatch.logs import Logs
from hangwatch.logs.elastic import error_file


def test_a_file_that_is_nested_too_deep_is_no_error_file() -> None:
    assert not error_file(b"[" * 200_000, 0, Logs())
