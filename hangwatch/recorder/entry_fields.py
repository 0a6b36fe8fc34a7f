"""The fields of one entry of a dump."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hangwatch.queues.model import COMPLETED, RETIRED, SCHEDULED, STARTED

# Backends whose recorder has no events of a device: an entry of theirs stays "scheduled", and is retired when done.
_WITHOUT_EVENTS = frozenset({"gloo", "mpi", "ucc"})
_STATES = {"scheduled": SCHEDULED, "started": STARTED, "completed": COMPLETED}


def is_p2p(entry: Mapping[str, Any]) -> bool:
    """Whether it is a send or a receive; torch before 2.4 tells by the name alone."""
    said = entry["profiling_name"].rpartition(":")[2]
    return bool(entry.get("is_p2p")) or said.startswith(("send ", "recv ")) or said in ("send", "recv")


def key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    """What entries must share to be the same call, quickly. Frames of one document are the same objects."""
    return (
        entry["profiling_name"],
        tuple(map(tuple, entry.get("input_sizes") or ())),
        tuple(map(tuple, entry.get("output_sizes") or ())),
        tuple(entry.get("input_dtypes") or ()),
        tuple(entry.get("output_dtypes") or ()),
        tuple(map(id, entry.get("frames") or ())),
    )


def state(entry: Mapping[str, Any]) -> tuple[int, int, int]:
    """The state of an entry, and when its start and its end were discovered."""
    started = int(entry.get("time_discovered_started_ns") or 0)
    completed = int(entry.get("time_discovered_completed_ns") or 0)
    state = _STATES.get(entry.get("state", ""), SCHEDULED)
    if entry.get("retired"):
        state = (COMPLETED if is_without_events(entry) else state) | RETIRED
    return state, started, completed


def is_without_events(entry: Mapping[str, Any]) -> bool:
    """Whether its backend records no events of a device."""
    return str(entry["profiling_name"]).partition(":")[0] in _WITHOUT_EVENTS


def sizes(said: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, size)) for size in said or ())


def dtypes(said: Any) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) and said else tuple(map(str, said or ()))


def ends(said: str) -> tuple[int | None, int | None]:
    """(source, target) of "0->1", which is how a send is written, and of "1<-0", a receive."""
    if sent := re.fullmatch(r"(\d+)->(\d+)", said):
        return int(sent[1]), int(sent[2])
    if received := re.fullmatch(r"(\d+)<-(\d+)", said):
        return int(received[2]), int(received[1])
    return None, None
