"""When a dump was made, by what it tells itself: a file's date is lost with the first copy, its content is not.

torch asks the events of an entry only in `FlightRecorder::update_state`, which runs in `retire_id` (the watchdog has
seen the call complete, or gives it up) and in `dump_entries`, there on copies. So the start of a call that is neither
complete nor retired is discovered by the dump, and the time of that is the dump's. It holds for each version of
upstream's recorder that tells these times (format 1.1, of torch 2.2, to 2.10, of torch 2.13; read in TraceUtils.h,
NCCLUtils, FlightRecorder.cpp and FlightRecorderDetail.hpp). Only where nothing has started the dump does not tell it.

There is a recorder whose watchdog marks starts by itself (`markStart`, in a branch of torch, and in forks). It shows in
the calls that are complete: there the start was discovered on its own, and not with the end. Such starts tell no time,
and neither does a dump in which no call is complete to show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from .entry_fields import is_without_events

_AT_ONCE_NS = 500_000  # one look at both events of a call: two queries of CUDA, which take some microseconds each
_OF_LOOKS = 10  # of so many looks one may have been interrupted between the two
_WRITING_NS = 60 * 10**9  # torch names the frames and writes the file then; a file server's clock may differ
_TOGETHER_NS = 60 * 10**9  # torch asks the other ranks for theirs through its store, and a person with one loop
_GRAIN_NS = 1_000_000_000  # a dump asks the events of its entries one after another; of 2,000 in less than a second


def written_ns(entries: Iterable[Mapping[str, Any]]) -> int:
    """When the dump was made, in nanoseconds since 1970 by the rank's own clock; 0 where it does not tell."""
    found, last, together, apart = 0, 0, 0, 0
    for entry in entries:
        started = int(entry.get("time_discovered_started_ns") or 0)
        ended = int(entry.get("time_discovered_completed_ns") or 0)
        last = max(last, started, ended, int(entry.get("time_created_ns") or 0))
        if started and ended:
            together += abs(ended - started) <= _AT_ONCE_NS
            apart += abs(ended - started) > _AT_ONCE_NS
        elif started and not entry.get("retired") and not is_without_events(entry):
            found = max(found, started)
    by_dump = together and apart * _OF_LOOKS <= together + apart and last - found <= _GRAIN_NS
    return found if by_dump else 0


def moments(told: Mapping[int, int], dates: Mapping[int, int], ranks: Iterable[int]) -> tuple[dict[int, int], set[int]]:
    """When the dump of each rank was made; and of which ranks that is taken from the dumps of others.

    Where dumps that tell it have files of other dates, the dates of that set are those of copies, and none counts.
    Those that tell it within one minute were asked for together, and so were the others of that set.
    """
    apart = [abs(dates[rank] - at) for rank, at in told.items() if rank in dates]
    kept = {} if apart and median(apart) > _WRITING_NS else dates
    first = min(told.values(), default=0)
    together = max(told.values(), default=0) - first <= _TOGETHER_NS
    others = {rank: first for rank in ranks if first and together and rank not in {*kept, *told}}
    return {**kept, **others, **told}, {*others}
