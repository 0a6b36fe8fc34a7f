"""What hangwatch's agent would have taken of a simulated job: boards, stacks, recorders and facts of processes.

What is built here has the shape of real evidence (a test compares the two); what the job knows and an agent cannot
know stays out of it.
"""

from __future__ import annotations

import signal
from dataclasses import replace

from hangwatch.model import (
    Bypass,
    CallSite,
    Divergence,
    Frame,
    Job,
    NodeFacts,
    RankEvidence,
    Reading,
    Snapshot,
    ThreadStack,
)
from hangwatch.ranks.divergence import DivergenceWatch
from hangwatch.stacks.frames import stacks_of_calls, stacks_of_error

from .boards import answer_of, from_board, reading_of
from .camera import Camera
from .machine import Machine
from .places import CONDITIONS, LAST_IN_LOOP, SCRIPT, SKIP
from .processes import process_of, workers_of
from .ranks import Rank
from .stacks import crash_stacks, stacks_of


def snapshot(machine: Machine, camera: Camera) -> Snapshot:
    """The evidence of this moment."""
    now = machine.clock + camera.still_s
    seen = [rank for rank in machine.ranks if rank.number not in camera.silent]
    ranks = tuple(_rank(machine, rank, camera, now) for rank in seen)
    hosts = sorted({rank.host for rank in machine.ranks})
    return Snapshot(
        Job("j", "job", len(machine.ranks), launcher="torchrun", started_at=1_700_000_000.0),
        now,
        ranks,
        nodes=tuple(
            NodeFacts(f"node-{host}", tuple(rank.number for rank in seen if rank.host == host))
            for host in hosts
            if any(rank.host == host for rank in seen)
        ),
        last_progress_at=machine.clock,
        divergences=_remembered(machine, camera, now),
        sampled_twice=camera.sampled_twice,
        call_sites=_call_sites(ranks) if camera.skips else (),
    )


def _remembered(machine: Machine, camera: Camera, now: float) -> tuple[Divergence, ...]:
    """What the watch had found while the job ran; only where the rings have lost it since."""
    if not camera.watched:
        return ()
    whole = replace(camera, steps_kept=1 << 30, calls_kept=1 << 30)
    readings = (reading_of(machine, rank, whole, now) for rank in machine.ranks if rank.number not in camera.silent)
    return DivergenceWatch().update(readings, now)


def _call_sites(ranks: tuple[RankEvidence, ...]) -> tuple[CallSite, ...]:
    """The user's lines behind the `continue` of the loop over batches: a turn can pass them by."""
    lines = {
        frames: None
        for entry in ranks
        for call in entry.collectives.recent
        if (frames := tuple(frame for frame in call.frames if frame.file == SCRIPT)) and _behind(frames[0])
    }
    skip = Bypass(SKIP, "if not torch.isfinite(loss): continue")
    return tuple(CallSite(frames, (skip, *_condition(frames[0]))) for frames in lines)


def _condition(frame: Frame) -> tuple[Bypass, ...]:
    """The `if` right above a call that not every turn makes."""
    found = CONDITIONS.get(frame.line)
    return (Bypass(replace(frame, line=frame.line - 1), found[0], asks=found[1]),) if found is not None else ()


def _behind(frame: Frame) -> bool:
    return SKIP.line < frame.line < LAST_IN_LOOP


def _local_rank(machine: Machine, rank: Rank) -> int:
    """Its place among the ranks of its host: each has a GPU of its own."""
    return sum(other.host == rank.host for other in machine.ranks[: rank.number])


def _last_stacks(machine: Machine, rank: Rank, camera: Camera, reading: Reading | None) -> tuple[ThreadStack, ...]:
    """Of a process that has ended, as the agent takes them: what it wrote when it was aborted, or its board."""
    if rank.code == -signal.SIGABRT:
        return crash_stacks(machine, rank, camera)
    if reading is None:
        return ()
    return stacks_of_calls(reading.open_calls) or stacks_of_error(reading.exception)


def _rank(machine: Machine, rank: Rank, camera: Camera, now: float) -> RankEvidence:
    living, number = rank.living, rank.number
    reading = reading_of(machine, rank, camera, now) if number not in camera.no_board else None
    stacks = stacks_of(machine, rank, camera) if living else _last_stacks(machine, rank, camera, reading)
    stacks = () if number in camera.no_stacks else stacks
    earlier = stacks if camera.sampled_twice and living else ()
    asked = living and rank.state != "T" and not rank.destroyed and reading is not None
    answered = asked and number not in camera.no_answer
    return RankEvidence(
        number,
        host=f"node-{rank.host}",
        pid=4000 + number,
        reading=reading,
        process=process_of(machine, rank),
        stacks=stacks,
        earlier_stacks=earlier,
        collectives=answer_of(machine, rank, reading) if answered and camera.recorder else from_board(reading),
        workers=workers_of(rank) if living else (),
        gpu=_local_rank(machine, rank) if machine.nccl else None,
        still_s=camera.still_s,
        patience_s=camera.patience_s,
        moved=number in camera.moved,
        last_output=rank.output,
        ended_at=rank.ended_at,
    )
