"""Ranks whose own watchdog says, when others have given a call up, that they had not enqueued it: beside dumps."""

from __future__ import annotations

from collections.abc import Iterator

from hangwatch import words

from ..queues.model import Queues
from .model import Logs, Progress, Timeout
from .queued import to_peers

_SHOWN = 3


def evidence(queues: Queues, logs: Logs) -> Iterator[str]:
    """rank 0 said when the others gave up number 2 of group 0 that it had enqueued 1 as its last call there

    Where there are dumps: without them the queues are made of these lines.
    """
    if queues.record != "dump":
        return
    given_up: dict[str, int] = {}
    for far in logs.progress:
        if any(_is_of(each, far) for each in logs.timeouts):
            given_up[far.group] = min(far.number or far.completed + 1, given_up.get(far.group, 1 << 62))
    gave_up = {each.rank for each in logs.timeouts}
    last = {(far.group, far.rank): far for far in logs.progress if far.rank not in gave_up}
    for far in [each for each in last.values() if each.enqueued < given_up.get(each.group, -1)][:_SHOWN]:
        name = f" ({far.description})" if far.description else ""
        yield (
            f"{words.ranks([far.rank])} itself told when the others gave up number {given_up[far.group]} of group"
            f" {far.group}{name} that its last call there was number {far.enqueued}"
        )


def _is_of(timeout: Timeout, far: Progress) -> bool:
    return (timeout.rank, timeout.number) == (far.rank, far.number) and not to_peers(timeout)
