"""Ranks that others wait for and that wait for their devices, where no call in a queue says for what."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.own_code import awaited_views
from hangwatch.ranks.device_waits import queued
from hangwatch.ranks.view import RankView


def awaited_for_a_device(case: Case) -> list[RankView]:
    """The ranks that are awaited, where all of them wait for their devices with no collective outstanding."""
    awaited = awaited_views(case)
    if any(view.over or not case.waits.shows_device_wait(view) or queued(case.ledger, view.rank) for view in awaited):
        return []
    return awaited
