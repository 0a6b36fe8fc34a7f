"""The places in the user's code where recorded calls were issued: the ways past them, and the loops around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from hangwatch.model import CallSite, Frame, RankEvidence
from hangwatch.ranks.view import RankView
from hangwatch.source.hints import follows_from_a_hash, hooks_of, inner_loop, rank_check_of, turns_above, ways_past_call
from hangwatch.stacks.frames import origin
from hangwatch_agent.capture.source.files import Sources, shown
from hangwatch_agent.capture.source.lines import one_line

MOST = 64  # call sites of a node; a training loop has a handful
MOST_WAYS = 16  # past one of them


def call_sites(ranks: Iterable[RankEvidence], sources: Sources, proc: Path) -> tuple[CallSite, ...]:
    """The call sites of recorded collectives that a turn of the loop can pass by, or that an inner loop holds.

    DDP's own collectives are recorded without their place, and those of a rank that ended may not be recorded at all:
    where it stood says it. Below an actor that is not the main thread.
    """
    places: dict[tuple[Frame, ...], tuple[Path | None, tuple[Frame, ...]]] = {}
    for rank in ranks:
        lives = rank.process is not None and rank.process.state != "X"
        root = proc / str(rank.pid) / "root" if lives else None
        calls = rank.collectives.recent or (rank.reading.calls if rank.reading is not None else ())
        stood = _training_stacks(rank)
        for frames in {call.frames: None for call in calls} | dict.fromkeys(stood):
            own = tuple(frame for frame in frames if not frame.native and _is_source(frame.file))
            if own and len(places) < MOST:
                places.setdefault(own, (root, frames))
    sites = (_site(own, *known, sources) for own, known in places.items())
    return tuple(site for site in sites if site.bypasses or site.loop is not None or site.hashed is not None)


def _training_stacks(rank: RankEvidence) -> Iterator[tuple[Frame, ...]]:
    """Where its main thread stands, and the thread that trains where a package hosts that in another one."""
    now = RankView(rank.rank, rank, sampled_twice=False).now
    yield from (stack.frames for stack in rank.stacks if stack.main or stack.thread_id == now.thread_id)


def _is_source(file: str) -> bool:
    """A rank can put any path into a frame: only Python files are read, and none relative to a folder of ours."""
    return origin(file) == "user" and file.startswith("/") and file.endswith(".py")


def _site(own: tuple[Frame, ...], root: Path | None, frames: tuple[Frame, ...], sources: Sources) -> CallSite:
    source_of = sources.reader(root)
    hooks = hooks_of(frames, source_of)
    ways = ways_past_call(own, source_of, hooks)[:MOST_WAYS]
    check = rank_check_of(frames, source_of)
    told = tuple(replace(way, text=one_line(way.text), given_text=one_line(way.given_text)) for way in ways)
    below = turns_above(frames, own[hooks - 1], source_of) if hooks else None
    loop = inner_loop(own[:hooks] if below is not None else own, source_of, below)
    hashed = follows_from_a_hash(own, source_of)
    return CallSite(
        own,
        (*told, check) if check is not None else told,
        shown(loop),
        replace(hashed, text=one_line(hashed.text)) if hashed is not None else None,
    )
