"""The verdict on events of Kubernetes: pods that were ended, nodes that are lost, pods that never started."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from . import events, rendezvous
from .ends import failures
from .model import Event, Logs

_SHOWN = 3
_NODE_LOST = ("NodeNotReady", "NodeShutdown", "TaintManagerEviction")
_MEMORY = re.compile(r"low on resource: memory|memory", re.IGNORECASE)
_FIXES = {
    "Evicted": "give the node or the pod more of what ran out ({said}), and set the pod's requests to what it uses",
    "Preempted": "give the job a higher priority class, or let it save checkpoints and start again",
    "Killing": "let the probe wait longer, or take it out: a rank in a long collective or compilation answers late",
    "FailedScheduling": "free what the pod asks for, or ask for less: GPUs, memory, node selectors and taints",
    "FailedMount": "see that the volume, secret or config map exists and can be attached to that node",
    "image": "see that the image's name and tag exist, and that the node may pull it (imagePullSecrets)",
}


def judged(logs: Logs) -> Judgement | None:
    """The verdict on pods that were ended, or whose node was lost; their ranks, which no line tells, are not named."""
    if failures(logs).keys() - {each.rank for each in logs.timeouts}:
        return None
    found = [event for event, again in events.ended(logs) if not again or logs.timeouts]
    again = {event for event, again in events.ended(logs) if again}
    nodes = {event.name for event in found if event.kind == "node"}
    if not found:
        return None
    own = [event for event in found if event.kind == "pod"] or found
    lost = all(event.reason in _NODE_LOST for event in own)
    entry = cause("node-lost" if lost else "rank-died")
    told = [_said(event) + (", and it came back since" if event in again else "") for event in own[:_SHOWN]]
    more = f" and of {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
    sure = len(own) == 1 and own[0].kind == "pod" and not again & {*own}
    return Judgement(
        Status.FAILED,
        entry.stage or Stage.STEP,
        Verdict(
            cause=entry.id,
            certainty=Certainty.LIKELY if sure else Certainty.UNDETERMINED,
            summary=f"{words.listed(told)}{more}; no line tells which ranks ran there.",
            fix=_fix(own, entry.fix),
            culprits=tuple(Culprit(None, host=event.name) for event in own[:_SHOWN]),
            victims=tuple(sorted({each.rank for each in logs.timeouts})),
            evidence=tuple(_said(event) for event in found if event.name in nodes and event not in own)[:_SHOWN],
        ),
    )


def not_started(logs: Logs) -> Judgement | None:
    """The verdict on pods that have not started: their ranks cannot come to the rendezvous."""
    waiting = events.kept_back(logs)
    if not waiting or logs.timeouts or logs.progress or logs.communicators:
        return None
    awaited = rendezvous.judged(logs)
    named = words.listed([f"pod {event.name}" for event in waiting[:_SHOWN]])
    more = f" and {len(waiting) - _SHOWN} more" if len(waiting) > _SHOWN else ""
    verb = words.verb(len(waiting), "has", "have")
    why = dict.fromkeys(f"{event.reason}: {event.said}" for event in waiting)
    found = Verdict(
        cause="node-not-started",
        certainty=Certainty.LIKELY,
        summary=f"{words.capital(named)}{more} {verb} not started: {words.command(next(iter(why)), 300)}",
        fix=_fix(waiting, cause("node-not-started").fix),
        culprits=tuple(Culprit(None, host=event.name) for event in waiting[:_SHOWN]),
        evidence=tuple(list(why)[1:_SHOWN]),
    )
    if awaited is None:
        return Judgement(Status.WAITING, Stage.START, found)
    before = awaited.verdict
    found = replace(found, details=(before.summary,), victims=before.victims, evidence=before.evidence)
    return Judgement(awaited.status, Stage.START, found)


def sentences(logs: Logs) -> tuple[str, ...]:
    """What is told of pods where no verdict is on them."""
    back = (f"{_said(event)}, and it came back since" for event, again in events.ended(logs) if again)
    failing = {event.name: event for event in logs.events if event.reason == "BackOff" and not events.of_image(event)}
    crashed = (f"pod {name} is started again and again, since its container ends; see its log" for name in failing)
    waiting = (_said(event) for event in events.kept_back(logs))
    return (*list(back)[:_SHOWN], *list(crashed)[:_SHOWN], *list(waiting)[:_SHOWN])


def _said(event: Event) -> str:
    return f"Kubernetes says of {event.kind} {event.name}: {event.reason} ({words.command(event.said, 160)})"


def _fix(found: Sequence[Event], otherwise: str) -> str:
    first = found[0]
    key = "image" if events.of_image(first) else first.reason
    key = {"Preempting": "Preempted", "FailedAttachVolume": "FailedMount"}.get(key, key)
    what = "memory" if _MEMORY.search(first.said) else "what the event names"
    return _FIXES.get(key, otherwise).format(said=what)
