"""Coverage's tracer is taken away where a test asks for it, and comes back."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from tests.tracing import untraced


def test_a_tracer_sees_what_is_around_and_not_what_is_within() -> None:
    seen: list[str] = []

    def tracer(frame: FrameType, event: str, argument: Any) -> None:
        seen.append(frame.f_code.co_name)

    def around() -> None: ...

    def within() -> None: ...

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        around()
        with untraced():
            within()
        around()
    finally:
        sys.settrace(before)
    assert [name for name in seen if name in ("around", "within")] == ["around", "around"]


@pytest.mark.untraced
def test_a_marked_test_has_no_tracer() -> None:
    assert sys.gettrace() is None
