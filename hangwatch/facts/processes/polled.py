"""The file for which a rank looks again and again in a loop of its own code, and what is known of that file."""

from __future__ import annotations

from pathlib import PurePosixPath

from hangwatch import words
from hangwatch.facts.processes.locks import SHARED
from hangwatch.model import PolledFile
from hangwatch.ranks.view import RankView

OLDER_S = 5.0  # a file that the job makes as it starts may be some seconds older than a process of it


def polled(view: RankView) -> PolledFile | None:
    """The file, while the rank sleeps between two looks in a loop that nothing but what it looks for ends."""
    loop = view.now.loop
    return view.evidence.polled if view.sleeps and loop is not None and not loop.bounded else None


def left_over(view: RankView) -> PolledFile | None:
    """The file that it waits to see removed, which was there before its process, and which no process here has open.

    A loop that looks for a file goes on while it is there: it would have ended if it were to come.
    """
    file, reading = polled(view), view.reading
    if file is None or not file.exists or file.held or reading is None:
        return None
    runs_s = max(reading.taken_at - reading.identity.started_at, 0.0)
    return file if file.age_s > runs_s + OLDER_S else None


def on_shared(file: PolledFile) -> bool:
    """Processes of other machines may use it too."""
    return file.filesystem.startswith(SHARED)


def namesake(file: PolledFile) -> str:
    """The folder, next to that of a file which is not there, to which one of that name has come; "" for none."""
    folder, slash, _ = file.beside.partition("/")
    return str(PurePosixPath(file.path).parent.with_name(folder)) if slash and not file.exists else ""


def looks_for(view: RankView) -> str:
    """`rank 1 looks for /data/cache_1.pt, which is not there; the newest file like it is cache_0.pt, 12 s old`."""
    file = polled(view)
    if file is None:
        return ""
    if file.exists:
        held = "a process here has it open" if file.held else "no process here has it open"
        age = words.duration(file.age_s)
        return f"rank {view.rank} looks until {file.path} is gone: it was last written {age} ago, and {held}"
    age = words.duration(file.beside_age_s)
    if folder := namesake(file):
        return (
            f"rank {view.rank} looks for {file.path}, which is not there; one of that name came to {folder} {age} ago"
        )
    beside = f"; the newest file like it there is {file.beside}, {age} old" if file.beside else ""
    return f"rank {view.rank} looks for {file.path}, which is not there{beside}"
