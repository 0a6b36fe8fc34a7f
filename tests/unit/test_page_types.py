"""The page's types and titles are those of the records, of the dashboard's answers, and of the catalogue."""

from __future__ import annotations

import pytest

from scripts import generate_types


@pytest.mark.parametrize("name", generate_types.FILES)
def test_the_page_has_todays_types(name: str) -> None:
    written = (generate_types.FOLDER / name).read_text(encoding="utf-8")
    assert written == generate_types.FILES[name](), "run python -m scripts.generate_types"
