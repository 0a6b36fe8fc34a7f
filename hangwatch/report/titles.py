"""What people call a cause, beside its id."""

from __future__ import annotations

from functools import cache


def title(cause: str) -> str:
    """The title in the catalogue; the id itself where the catalogue has none, as for causes of a newer hangwatch."""
    return _titles().get(cause, cause)


@cache
def _titles() -> dict[str, str]:
    from hangwatch.catalogue import CATALOGUE

    return {cause.id: cause.title for cause in CATALOGUE}
