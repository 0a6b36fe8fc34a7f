"""Ranks that are awaited in a collective, and wait in a send or receive themselves: the cause lies behind them."""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.model import Culprit, Judgement

from ..queues.model import Queues
from .model import Logs
from .queued import to_peers

_FIX = "give the flight recorder's dumps too: they name the peer of each send and receive"


def told(judged: Judgement, queues: Queues, logs: Logs) -> Judgement:
    """The judgement without the blame of ranks whose own send or receive torch gave up; dumps show that themselves."""
    verdict = judged.verdict
    waiting = {each.rank for each in logs.timeouts if to_peers(each)}
    freed = sorted(each.rank for each in verdict.culprits if each.rank in waiting and each.rank is not None)
    if queues.record == "dump" or verdict.cause != "undetermined" or not freed:
        return judged
    left: tuple[Culprit, ...] = tuple(each for each in verdict.culprits if each.rank not in freed)
    who = f"{words.ranks(freed)} {words.verb(len(freed), 'waits', 'wait')}"
    verdict = replace(
        verdict,
        details=(
            f"But {who} in a send, receive or batch of calls that torch gave up as well.",
            *(said for said in verdict.details if left),
        ),
        fix=verdict.fix if left else _FIX,
        culprits=left,
        victims=tuple(sorted({*verdict.victims, *freed})),
    )
    return replace(judged, verdict=verdict)
