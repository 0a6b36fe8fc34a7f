"""Native frames into evidence that has been taken already, where Python frames do not say enough."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from hangwatch.model import ProcessEvidence, RankEvidence, Snapshot, ThreadStack
from hangwatch.stacks.frames import user_frame
from hangwatch_agent.capture.options import CaptureOptions, CaptureResult
from hangwatch_agent.capture.stacks import py_spy
from hangwatch_agent.capture.stacks.py_spy import Dump

ALL_TOGETHER_S = 10.0


T = TypeVar("T", CaptureResult, Snapshot)


def with_native_stacks(
    taken: T, pids: Iterable[int], *, options: CaptureOptions | None = None, most_s: float = ALL_TOGETHER_S
) -> T:
    """The same evidence with native frames in the stacks of `pids`, taken one at a time (0.5 to 1 s, 350 MB each).

    A process is paused while it is looked at. When `most_s` have gone by, the rest is left as it is; where it fails,
    the stacks stay as they were. Notes say both.
    """
    dumps: dict[int, Dump] = _dumps(tuple(dict.fromkeys(pids)), options or CaptureOptions(), most_s)
    ranks: dict[int | None, int] = {rank.pid: rank.rank for rank in taken.ranks}
    return replace(
        taken,
        ranks=tuple(_rank(rank, dumps) for rank in taken.ranks),
        launchers=tuple(_process(each, dumps) for each in taken.launchers),
        others=tuple(_process(each, dumps) for each in taken.others),
        notes=(*taken.notes, *(dump.note(ranks.get(pid), "native stacks") for pid, dump in dumps.items())),
    )


def _dumps(pids: tuple[int, ...], options: CaptureOptions, most_s: float) -> dict[int, Dump]:
    deadline = time.monotonic() + most_s
    dumps = {}
    for pid in pids:
        left = deadline - time.monotonic()
        if left <= 0:
            dumps[pid] = Dump(pid, failure=f"left out: the {most_s:g} s for native stacks were used up")
        else:
            limit = min(left, py_spy.NATIVE_TIMEOUT_S)
            dumps[pid] = py_spy.dump_native(pid, program=options.py_spy, timeout_s=limit, proc=options.proc)
    return dumps


def _rank(rank: RankEvidence, dumps: Mapping[int, Dump]) -> RankEvidence:
    dump = dumps.get(rank.pid or -1)
    return replace(
        rank,
        stacks=_in_place_of(rank.stacks, dump.stacks) if dump and dump.ok else rank.stacks,
        workers=tuple(_process(each, dumps) for each in rank.workers),
        children=tuple(_process(each, dumps) for each in rank.children),
    )


def _process(evidence: ProcessEvidence, dumps: Mapping[int, Dump]) -> ProcessEvidence:
    dump = dumps.get(evidence.facts.pid)
    return replace(evidence, stacks=_in_place_of(evidence.stacks, dump.stacks)) if dump and dump.ok else evidence


def _in_place_of(before: tuple[ThreadStack, ...], native: tuple[ThreadStack, ...]) -> tuple[ThreadStack, ...]:
    """The native stacks, with what the source said of the user's lines, where those are the same."""
    known = {stack.thread_id: stack for stack in before}
    return tuple(_as_told(known.get(stack.thread_id), stack) for stack in native)


def _as_told(before: ThreadStack | None, native: ThreadStack) -> ThreadStack:
    if before is None or user_frame(before.frames) != user_frame(native.frames):
        return native
    told = {name: getattr(before, name) for name in ("block", "handler", "in_loop", "loop", "guard")}
    return replace(native, **told)
