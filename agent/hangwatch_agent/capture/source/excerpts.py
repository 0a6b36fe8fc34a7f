"""The lines of code where ranks stand, with their surroundings, so that a verdict can show them everywhere.

Only Python files that a rank names as its own code are read. Ranks that stand at one line share one excerpt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from hangwatch.model import CallSite, Excerpt, Frame, ProcessEvidence, RankEvidence, ThreadStack
from hangwatch.stacks.frames import user_frame
from hangwatch_agent.capture.source.files import Source, Sources
from hangwatch_agent.capture.source.lines import clipped

AROUND = 3  # lines before and after
MOST = 48  # excerpts of a node
_SLACK_S = 2.0  # clocks of file servers differ a little


def excerpts(
    ranks: Iterable[RankEvidence],
    others: Iterable[ProcessEvidence],
    sources: Sources,
    proc: Path,
    sites: Iterable[CallSite] = (),
) -> tuple[Excerpt, ...]:
    """One for every line of the user's code that a thread stands at, those of the ranks' main threads first.

    Then the ways past calls: a verdict may name one of them.

    At most `MOST` of at most 7 lines of 160 characters, about 50 kB; usually one or two kilobytes.
    """
    known, rest = list(ranks), list(others)
    places: list[tuple[Frame, RankEvidence | ProcessEvidence]] = [
        *((frame, rank) for rank in known for frame in _first(rank)),
        *((frame, rank) for rank in known for frame in _further(rank)),
        *((frame, each) for rank in known for each in (*rank.workers, *rank.children) for frame in _stand(each.stacks)),
        *((frame, each) for each in rest for frame in _stand(each.stacks)),
        *((way.where, known[0]) for site in sites for way in site.bypasses if known),
    ]
    found: dict[tuple[str, int], Excerpt] = {}
    for frame, whose in places:
        key = frame.file, frame.line
        if key not in found and len(found) < MOST and _is_code(frame):
            pid, started_at = _process(whose)
            source = sources.of(frame.file, proc / str(pid) / "root" if pid is not None else None)
            quoted = excerpt(source, frame, started_at) if source is not None else None
            if quoted is not None:
                found[key] = quoted
    return tuple(found.values())


def excerpt(source: Source, frame: Frame, started_at: float = 0.0) -> Excerpt | None:
    """The lines around `frame`; None where the file has no such line. `started_at` is when its process started."""
    lines = source.text.split("\n")  # as Python counts: a form feed ends no line
    if not 0 < frame.line <= len(lines):
        return None
    first = max(frame.line - AROUND, 1)
    shown = [clipped(line) for line in lines[first - 1 : frame.line + AROUND]]
    while not shown[-1] and len(shown) > frame.line - first + 1:
        shown.pop()  # an empty line at the end tells nothing
    changed = started_at > 0.0 and source.changed_at > started_at + _SLACK_S
    return Excerpt(frame.file, frame.line, first, tuple(shown), changed)


def _is_code(frame: Frame) -> bool:
    """A rank can put any path into a frame: only Python files are read, and none relative to a folder of ours."""
    return not frame.native and frame.file.startswith("/") and frame.file.endswith((".py", ".pyx"))


def _first(rank: RankEvidence) -> Iterator[Frame]:
    """Where the rank is: its main thread, or what ended it."""
    exception = rank.reading.exception if rank.reading is not None else None
    if exception is not None:
        yield from _user(exception.frames)
    yield from _stand(stack for stack in rank.stacks if stack.main)


def _further(rank: RankEvidence) -> Iterator[Frame]:
    """Other places that a verdict may name: threads, open and last calls, loaders, new_group."""
    yield from _stand(stack for stack in rank.stacks if not stack.main)
    for call in (*rank.collectives.open_calls, *rank.collectives.recent[-2:]):
        yield from _user(call.frames)
    if rank.reading is not None:
        loaders = (each.where for each in rank.reading.loaders)
        made = (each.where for each in rank.reading.groups_made[-1:])
        yield from (frame for frame in (*loaders, *made) if frame is not None)


def _stand(stacks: Iterable[ThreadStack]) -> Iterator[Frame]:
    for stack in stacks:
        yield from _user(stack.frames)


def _user(frames: tuple[Frame, ...]) -> Iterator[Frame]:
    frame = user_frame(frames)
    if frame is not None:
        yield frame


def _process(whose: RankEvidence | ProcessEvidence) -> tuple[int | None, float]:
    """The living process whose files these are, and when it started; pids of the dead may be others' by now."""
    if isinstance(whose, ProcessEvidence):
        return whose.facts.pid, whose.facts.started_at or 0.0
    gone = whose.process is None or whose.process.state == "X"
    return None if gone else whose.pid, whose.reading.identity.started_at if whose.reading is not None else 0.0
