"""Native frames into evidence that has been taken already, where Python frames do not say enough."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from hangwatch.model import ProcessEvidence, RankEvidence, Snapshot, ThreadStack
from hangwatch.source.hints import TOLD
from hangwatch.stacks.frames import user_frame
from hangwatch_agent.capture.options import CaptureOptions, CaptureResult
from hangwatch_agent.capture.proc import cgroup
from hangwatch_agent.capture.stacks import py_spy
from hangwatch_agent.capture.stacks.py_spy import Dump
from hangwatch_agent.shared import procfs

ALL_TOGETHER_S = 10.0
PLENTY = 8  # times what one look may take at most: so much must be free for two at a time


T = TypeVar("T", CaptureResult, Snapshot)


def with_native_stacks(
    taken: T, pids: Iterable[int], *, options: CaptureOptions | None = None, most_s: float = ALL_TOGETHER_S
) -> T:
    """The same evidence with native frames in the stacks of `pids` (0.5 to 1 s, 350 MB each).

    Two are taken at a time where memory is plenty, else one. A process is paused while it is looked at. When `most_s`
    have gone by, the rest is left as it is; where it fails, the stacks stay as they were. Notes say both.
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

    def one(pid: int) -> Dump:
        left = deadline - time.monotonic()
        if left <= 0:
            return Dump(pid, failure=f"left out: the {most_s:g} s for native stacks were used up")
        limit = min(left, py_spy.NATIVE_TIMEOUT_S)
        return py_spy.dump_native(pid, program=options.py_spy, timeout_s=limit, proc=options.proc)

    with ThreadPoolExecutor(at_once(options), "hangwatch-native") as pool:
        return dict(zip(pids, pool.map(one, pids), strict=True))


def at_once(options: CaptureOptions) -> int:
    """How many processes may be looked at at a time: the job must not run out of memory for it."""
    free = [memory_available(options.proc)]
    with contextlib.suppress(OSError, ValueError):
        group = cgroup.memory_of(os.getpid(), options.proc, options.cgroups)
        free += [group.limit - group.used] if group.limit is not None and group.used is not None else []
    return 2 if min(free) > PLENTY * py_spy.NATIVE_MEMORY_BYTES else 1


def memory_available(proc: Path) -> int:
    """Bytes that the machine can give without swapping; 0 where it does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = procfs.read_text(proc / "meminfo").splitlines()
        return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    return 0


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
    """The native stacks, with what the source said of the user's lines, where those are the same.

    A main thread that has left the user's code meanwhile, as when its wait has timed out, shows another moment.
    """
    if _in_users_code(before) and not _in_users_code(native):
        return before
    known = {stack.thread_id: stack for stack in before}
    return tuple(_as_told(known.get(stack.thread_id), stack) for stack in native)


def _in_users_code(stacks: tuple[ThreadStack, ...]) -> bool:
    return any(stack.main and user_frame(stack.frames) is not None for stack in stacks)


def _as_told(before: ThreadStack | None, native: ThreadStack) -> ThreadStack:
    if before is None or user_frame(before.frames) != user_frame(native.frames):
        return native
    told = {name: getattr(before, name) for name in TOLD}
    return replace(native, **told)
