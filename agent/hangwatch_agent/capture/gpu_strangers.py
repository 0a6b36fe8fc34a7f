"""Processes of this user that hold memory on GPUs of the job and are no part of it, with their facts and stacks.

NVML's pids are the host's. Only where a rank is found among them are they taken for processes that /proc shows here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from hangwatch.model import ProcessEvidence
from hangwatch_agent.capture.options import CaptureResult
from hangwatch_agent.capture.proc.process import process_facts
from hangwatch_agent.capture.stacks import py_spy
from hangwatch_agent.capture.stacks.py_spy import Dump
from hangwatch_agent.shared.procfs import PROC

STRANGER = "stranger"
MOST = 4  # that are looked into, half a second each at most
STACK_S = 0.5


def with_strangers(
    taken: CaptureResult,
    *,
    proc: Path = PROC,
    user: int | None = None,
    dump: Callable[[int], Dump] = lambda pid: py_spy.dump(pid, timeout_s=STACK_S),
) -> CaptureResult:
    """The evidence with those processes among `others`, under the role "stranger". Never raises."""
    owner = os.getuid() if user is None else user
    found = [pid for pid in _unknown(taken) if _belongs_to(proc / str(pid), owner)][:MOST]
    strangers = (
        ProcessEvidence(STRANGER, facts, dump(pid).stacks)
        for pid in found
        if (facts := process_facts(pid, proc=proc)).state != "X"
    )
    return replace(taken, others=(*taken.others, *strangers))


def _unknown(taken: CaptureResult) -> Iterator[int]:
    """The pids of those that hold most first."""
    ranks = {rank.pid for rank in taken.ranks}
    own = {os.getpid(), *ranks, *(each.facts.pid for each in (*taken.launchers, *taken.others))}
    own |= {each.facts.pid for rank in taken.ranks for each in (*rank.workers, *rank.children)}
    bound = {rank.gpu for rank in taken.ranks}
    gpus = [gpu for gpu in taken.node.gpus if gpu.index in bound]
    if not any(pid in ranks for gpu in gpus for pid in gpu.processes):
        return
    held: dict[int, int] = {}
    for gpu in gpus:
        for pid, size in gpu.processes.items():
            held[pid] = held.get(pid, 0) + size
    yield from sorted(held.keys() - own, key=lambda pid: -held[pid])


def _belongs_to(folder: Path, owner: int) -> bool:
    try:
        return folder.stat().st_uid == owner
    except OSError:
        return False
