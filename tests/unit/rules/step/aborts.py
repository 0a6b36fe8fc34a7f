"""Ranks that their backend aborted: the traces, the logs and the calls that they leave."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangwatch.model import (
    Collective,
    Collectives,
    ExceptionFacts,
    Frame,
    GroupHead,
    LoaderFacts,
    Phase,
    Progress,
    RankEvidence,
)
from tests.unit.job import C10D, NOW, SCRIPT, gone, rank

TRACE = f"""Fatal Python error: Aborted

Thread 0x00007f6822ca7b80 (most recent call first):
  File "{C10D}", line 3252 in all_reduce
  File "{SCRIPT}", line 27 in main
  File "{SCRIPT}", line 90 in <module>
"""
SIZES = "op.preamble.length <= op.nbytes. 676 vs 4. Received data size doesn't match expected size."
CLOSED = "[pair.cc:537] Read error [127.0.0.1]:61094: Connection reset by peer"
WATCHDOG = (
    "[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8,"
    " NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)
MODULE = Frame(SCRIPT, 90, "<module>")
USUAL, EXTRA = (Frame(SCRIPT, 24, "main"), MODULE), (Frame(SCRIPT, 27, "main"), MODULE)


def calls(
    steps: int, *last: tuple[Frame, ...], gap: int = 2, site: tuple[Frame, ...] = USUAL
) -> tuple[Collective, ...]:
    """A call from `site` in each of these steps, and the last ones; between two of them C++ code issues others."""
    sites = [*[site] * steps, *last]
    in_torch = Frame(C10D, 3252, "all_reduce")
    return tuple(
        Collective("0", 1 + gap * index, "all_reduce", ((2,),), ("Float",), frames=(in_torch, *path),
                   at=NOW - 99 + index, step=min(index, steps - 1), thread_name="MainThread")
        for index, path in enumerate(sites)
    )  # fmt: skip


def dead(
    number: int, ring: tuple[Collective, ...], code: int | None = -6, *, inside: bool = True, **evidence: Any
) -> RankEvidence:
    """A rank that has ended after these calls, `inside` the last of them."""
    found = gone(number, code, Phase.STEP, calls=ring, progress=Progress(step=5, epoch=0, batch=5), evidence=evidence)
    heads = (GroupHead("0", (0, 1), "", "gloo", ring[-1].seq, ring[-1].seq - 1),)
    reading = replace(found.reading, heads=heads, open_calls=ring[-1:] if inside else ())  # type: ignore[type-var]
    stacks = rank(number, ring[-1].frames).stacks if inside else ()
    return replace(found, reading=reading, collectives=Collectives(heads), stacks=stacks)


def lost(number: int, ring: tuple[Collective, ...], message: str = CLOSED) -> RankEvidence:
    """A rank that failed in its last call, and was then ended by its launcher."""
    found = dead(number, ring, -15, inside=False)
    assert found.reading is not None
    error = ExceptionFacts("RuntimeError", message, ring[-1].frames, at=NOW - 11)
    return replace(found, reading=replace(found.reading, phase=Phase.FINALIZING, exception=error))


def drew(evidence: RankEvidence, drawn: int, *finished: int, left: bool, dtype: str = "Float") -> RankEvidence:
    """It drew so many batches of this epoch, and its last call brought data of this type."""
    assert evidence.reading is not None
    loader = LoaderFacts(
        0, 40, epoch=len(finished), drawn=drawn, left=left, training=True,
        drawn_per_epoch=(*finished, drawn) if left else finished, exhausted_per_epoch=(True,) * (len(finished) + left),
    )  # fmt: skip
    ring = (*evidence.reading.calls[:-1], replace(evidence.reading.calls[-1], dtypes=(dtype,)))
    reading = replace(evidence.reading, loaders=(loader,), calls=ring, open_calls=ring[-1:])
    return replace(evidence, reading=reading)
