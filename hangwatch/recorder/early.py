"""Dumps of torch 2.2 and 2.3 in the shape of later ones.

Their entries have one number, `seq_id`, which counts the collectives, the sends and receives and the batches of a group
together, so that it says nothing by itself where ranks send to different peers. Groups are numbered by each rank for
itself; the first version is a bare list, with times in microseconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

NUMBER = "seq_id"
_NS_IN_US = 1000
_P2P = ("send", "recv")


def is_early(document: Any) -> bool:
    """Whether it is one of those; one without entries is read as it is."""
    entries = document.get("entries") if isinstance(document, dict) else document
    first = entries[0] if isinstance(entries, list) and entries else None
    return isinstance(first, dict) and NUMBER in first and "collective_seq_id" not in first


def modern(document: Any) -> dict[str, Any]:
    """The document as a later torch would have written it."""
    told = document if isinstance(document, dict) else {"entries": document}
    names, config = _groups(told.get("pg_config"))
    entries = [_timed(entry) for entry in told["entries"]]
    started_late = _lost(entries)
    for group in dict.fromkeys(entry["pg_id"] for entry in entries):
        _number([entry for entry in entries if entry["pg_id"] == group])
    for place, entry in enumerate(entries):
        entry.setdefault("record_id", place + started_late)
        entry["process_group"] = (names.get(str(entry["pg_id"]), str(entry["pg_id"])), "")
    return {**told, "entries": entries, "pg_config": config}


def _groups(config: Any) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """The names of groups by their numbers, and their members by name: the same name on all ranks."""
    names, members = {}, {}
    times: Counter[tuple[int, ...]] = Counter()
    for number, ranks in config.items() if isinstance(config, Mapping) else ():
        said = tuple(map(int, ranks["ranks"] if isinstance(ranks, Mapping) else ranks))
        again = f" #{times[said]}" if times[said] else ""
        times[said] += 1
        name = "0" if str(number) == "0" else f"{','.join(map(str, said))}{again}"
        names[str(number)] = name
        members[name] = {"name": name, "desc": "default_pg" if name == "0" else "", "ranks": list(said)}
    return names, members


def _timed(entry: Mapping[str, Any]) -> dict[str, Any]:
    found = {"pg_id": "0", **entry}
    if "time_created_us" in found:
        found["time_created_ns"] = int(found["time_created_us"]) * _NS_IN_US
    return found


def _lost(entries: Iterable[Mapping[str, Any]]) -> bool:
    """Whether older calls have left the ring: a group's numbers begin with 1."""
    first: dict[Any, int] = {}
    for entry in entries:
        first.setdefault(entry["pg_id"], int(entry[NUMBER]))
    return any(number > 1 for number in first.values())


def _number(entries: list[dict[str, Any]]) -> None:
    """Count collectives and exchanges of one group apart. A batch shares a number with the entry that ends it.

    Where older calls are lost, collectives keep the numbers that are left to them by the exchanges still on record.
    """
    exchanges = 0
    for number, together in groupby(entries, key=lambda entry: int(entry[NUMBER])):
        calls = list(together)
        exchange = any(_op(entry) in _P2P for entry in calls)
        exchanges += exchange
        for entry in calls:
            entry["is_p2p"] = exchange
            entry["p2p_seq_id"] = exchanges
            entry["collective_seq_id"] = number - exchanges


def _op(entry: Mapping[str, Any]) -> str:
    said = str(entry["profiling_name"]).rpartition(":")[2].split()
    return said[0] if said else ""
