"""Process groups that were destroyed and made again: torch's ring keeps the calls of both under one name.

Their numbers begin again with the new group, which has another identifier. So a call of the new group and the one of
the same number of the old group are no pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Entry = Mapping[str, Any]


def without_former_groups(entries: Sequence[Entry]) -> tuple[list[Entry], frozenset[str]]:
    """The entries without those of groups that were made again since, and the names of these groups."""
    newest = {name: made[-1] for name, made in _made(entries).items() if len(made) > 1}
    left = [entry for entry in entries if (name := _name(entry)) not in newest or _identifier(entry) == newest[name]]
    return left, frozenset(newest)


def _made(entries: Sequence[Entry]) -> dict[str, list[str]]:
    """By the name of a group the identifiers that it had, the last one last; the first one alone if it is not sure."""
    calls: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for place, entry in enumerate(entries):
        if "pg_id" in entry:
            number = int(entry.get("collective_seq_id") or 0)
            calls.setdefault(_name(entry), {}).setdefault(_identifier(entry), []).append((place, number))
    return {name: list(made) for name, made in calls.items() if _in_turn(list(made.values()))}


def _in_turn(made: Sequence[Sequence[tuple[int, int]]]) -> bool:
    """Whether each group made its first call behind all those of the one before, and counted from the beginning."""
    return all(before[-1][0] < after[0][0] and after[0][1] <= min(1, before[-1][1]) for before, after in pairwise(made))


def _name(entry: Entry) -> str:
    return str((entry.get("process_group") or (entry.get("pg_name", ""),))[0])


def _identifier(entry: Entry) -> str:
    return str(entry["pg_id"])
