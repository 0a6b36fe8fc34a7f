"""Ranks whose program is a function that a package runs in a thread, as Ray Train does: what tells that it is over.

The process lives on in the package's own loop, and its board says nothing of an end: only the thread is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hangwatch.ranks.view import RankView


def with_returned(views: Mapping[int, RankView]) -> dict[int, RankView]:
    """The views, with those marked whose function has returned.

    That the program runs in a thread is known from the other ranks: a package may also run all of it in its main one.
    """
    hosted = any(view.hosted for view in views.values())
    returned = {rank for rank, view in views.items() if hosted and _has_returned(view)}
    return {rank: replace(view, returned=True) if rank in returned else view for rank, view in views.items()}


def _has_returned(view: RankView) -> bool:
    trained = view.step.step is not None and view.step.step >= 0
    return trained and view.serves_a_package and not view.dead and not view.hosted
