"""Watchdog threads of torch's that its own monitor found stuck: in a call of CUDA or NCCL, or for the interpreter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangwatch import words
from hangwatch.model import Alternative, Certainty, Culprit, Judgement, Stage, Status, Verdict

from .model import Logs
from .unknown import unknown


def judged(logs: Logs) -> Judgement:
    """torch's watchdog threads stood, and nothing else is told: in a call of CUDA or NCCL, or for the interpreter."""
    ranks = sorted(logs.stalls)
    return unknown(
        Status.HUNG,
        Stage.STEP,
        f"torch's watchdog {words.verb(len(ranks), 'thread', 'threads')} of {words.ranks(ranks)} stood, in"
        " a call of CUDA or NCCL or for the interpreter lock; these files do not tell in which collective.",
        fix=f"take the native stacks of {words.ranks(ranks)} (py-spy dump --native), or give the logs of all ranks",
        culprits=tuple(map(Culprit, ranks)) if len(ranks) == 1 else (),
        victims=tuple(ranks) if len(ranks) > 1 else (),
        evidence=tuple(told(logs)),
        alternatives=or_the_lock(logs),
        hang=Certainty.LIKELY,
        argument=("torch's own monitor found that its watchdog thread made no progress",),
    )


def told(logs: Logs) -> Iterator[str]:
    alike: dict[str, list[int]] = {}
    for rank, told in sorted(logs.stalls.items()):
        alike.setdefault("; ".join(told), []).append(rank)
    yield from (f"{words.ranks(ranks)}: {said}" for said, ranks in alike.items())


def or_the_lock(logs: Logs) -> tuple[Alternative, ...]:
    said = "torch's monitor did not get the interpreter lock: a thread may hold it in a call of CUDA"
    told = any("interpreter lock" in said for each in logs.stalls.values() for said in each)
    return (Alternative("gil-held", Certainty.UNDETERMINED, said),) if told else ()


def named(verdict: Verdict, logs: Logs) -> Verdict:
    """The awaited ranks are those whose watchdog thread torch found stuck: they stand in CUDA, NCCL or for the lock."""
    ranks = sorted(each.rank for each in verdict.culprits if each.rank is not None)
    if verdict.cause != "undetermined" or not ranks or not logs.stalls.keys() >= {*ranks}:
        return verdict
    return replace(
        verdict,
        summary=f"{verdict.summary} In torch's words the watchdog {words.verb(len(ranks), 'thread', 'threads')} of"
        f" {words.ranks(ranks)} got stuck: in a call of CUDA or NCCL, or for the interpreter lock.",
        fix=f"take the native stacks of {words.ranks(ranks)}: py-spy dump --native",
    )
