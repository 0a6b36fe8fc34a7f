"""The page's types of the records are those of hangwatch/model/."""

from scripts import generate_types


def test_the_page_has_todays_types_of_the_records() -> None:
    written = generate_types.TARGET.read_text(encoding="utf-8")
    assert written == generate_types.typescript(), "run python -m scripts.generate_types"
