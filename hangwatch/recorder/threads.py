"""The threads that made a rank's calls: later versions of torch record the name and the number of each."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hangwatch.queues.model import Lane

# The threads of torch's own that run backward, while the thread that called it waits: their calls come in its order.
_OF_BACKWARD = "pt_autog"

Thread = tuple[str, str]  # name and number


def enter(entries: Sequence[Mapping[str, Any]], lanes: Iterable[Lane]) -> tuple[str, ...]:
    """The names of the threads that made a rank's calls, the one with most calls first; () where it is one thread.

    Of several, each lane is given the places of its calls' threads among them. What does not tell its thread, or runs
    backward, counts as the first one's.
    """
    if not entries or not any("thread_name" in entry or "thread_id" in entry for entry in (entries[0], entries[-1])):
        return ()
    made = [_thread(entry) for entry in entries]
    threads = [thread for thread, _ in Counter(filter(None, made)).most_common()]
    if len(threads) < 2:
        return ()
    places = {thread: place for place, thread in enumerate(threads)}
    for lane in lanes:
        lane.threads = array("h", (places.get(made[order] or threads[0], 0) for order in lane.order))
    return tuple(name for name, _ in threads)


def _thread(entry: Mapping[str, Any]) -> Thread | None:
    name, number = str(entry.get("thread_name") or ""), str(entry.get("thread_id") or "")
    return (name, number) if (name or number) and not name.startswith(_OF_BACKWARD) else None
