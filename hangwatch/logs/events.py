"""Events of Kubernetes, as `kubectl get events` lists them, or `kubectl describe` below a pod: what ended a pod, or
keeps it from starting. Most events are routine, and one that a later one has settled is no fault any more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from .model import Event, Logs

MARKS = ("LAST SEEN", "Reason            Age", "  ----     ------")
_AGE = r"(?:<unknown>|<invalid>|(?:\d+[ywdhms])+)"
_ROW = re.compile(
    rf"^(?:[\w.-]+ +)?({_AGE})(?: +{_AGE} +\d+)?(?: \(x\d+ over {_AGE}\))? +(Normal|Warning) +(\w+) +"
    r"([A-Za-z.]+)/(\S+) +(.*)$"
)
_DESCRIBED = re.compile(
    rf"^  (Normal|Warning) +(\w+) +({_AGE})(?: \(x\d+ over {_AGE}\))?(?:,? +from \S+)? +(\S+(?:, \S+)?) +(.*)$"
)
# As kubectl listed them until 1.13: of the event's name the pod's own is all but the last part.
_OLD_ROW = re.compile(
    rf"^(?:[\w.-]+ +)?({_AGE}) +{_AGE} +\d+ +(\S+)\.[0-9a-f]{{10,}} +([A-Z]\w+) +(?:\S+\{{\S*\}} +)?"
    r"(?:Normal|Warning) +(\w+) +\S+(?:, \S+)? +(.*)$"
)
_NAME = re.compile(r"^Name: +(\S+)")
_OF_NODE = re.compile(r"^(?:Addresses|Capacity|Allocatable|System Info):")
_PART = re.compile(r"(\d+)([ywdhms])")
_SECONDS = {"y": 31_536_000, "w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_IMAGE = re.compile(r"pull(?:ing)? image|ErrImagePull|ImagePullBackOff|InvalidImageName", re.IGNORECASE)
_PROBE = re.compile(r"failed (?:liveness|startup) probe")
_CANCELLED = re.compile(r"\bCancelling deletion")
_LONGEST = 400
# By reason: what the event does to its pod, and what settles it.
ENDS = {"Evicted", "Preempted", "Preempting", "TaintManagerEviction", "Killing", "NodeNotReady", "NodeShutdown"}
KEEPS = {
    "FailedScheduling",
    "FailedMount",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
    "ErrImagePull",
    "ImagePullBackOff",
}
_STARTS = {"Started", "Scheduled", "Pulled", "NodeReady", "Created"}


class Lines:
    """Takes the lines of one log, one after another."""

    def __init__(self) -> None:
        self._name, self._kind = "", "pod"

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if line.startswith("Name:") and (name := _NAME.match(line)):
            self._name, self._kind = name[1], "pod"
        elif _OF_NODE.match(line):
            self._kind = "node"
        if "Normal " not in line and "Warning " not in line:
            return False
        if row := _ROW.match(line):
            age, _, reason, kind, name_, said = row.groups()
            return _keep(Event(kind.lower(), name_, reason, said.strip()[:_LONGEST], _age_s(age)), logs)
        if row := _OLD_ROW.match(line):
            age, name_, kind, reason, said = row.groups()
            return _keep(Event(kind.lower(), name_, reason, said.strip()[:_LONGEST], _age_s(age)), logs)
        if self._name and (row := _DESCRIBED.match(line)):
            _, reason, age, _, said = row.groups()
            return _keep(Event(self._kind, self._name, reason, said.strip()[:_LONGEST], _age_s(age)), logs)
        return False


def _age_s(said: str) -> float | None:
    parts = _PART.findall(said[:40])
    return float(sum(int(count) * _SECONDS[unit] for count, unit in parts)) if parts else None


def of_json(content: bytes, logs: Logs) -> bool:
    """Keep what `kubectl get events -o json` says. False where it is something else."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    items = document.get("items") if isinstance(document, dict) else None
    told = [each for each in (items if isinstance(items, list) else [document]) if _is_event(each)]
    for each in told:
        about = each.get("involvedObject") or each.get("regarding")
        if isinstance(about, dict):
            said = str(each.get("message") or each.get("note") or "")[:_LONGEST]
            kind, name = str(about.get("kind", "")).lower(), str(about.get("name", ""))
            _keep(Event(kind, name, str(each.get("reason", "")), said, _before_s(each)), logs)
    return bool(told)


def _is_event(document: object) -> bool:
    return isinstance(document, dict) and document.get("kind") == "Event"


def _before_s(document: Mapping[str, Any]) -> float | None:
    """Its age, from a moment that is the same for all."""
    at = document.get("lastTimestamp") or document.get("eventTime")
    try:
        return -datetime.fromisoformat(str(at)).timestamp()
    except (ValueError, OverflowError):
        return None


def _keep(event: Event, logs: Logs) -> bool:
    kept = event.reason in ENDS | KEEPS | _STARTS or of_image(event) or event.reason == "BackOff"
    if kept and event not in logs.events:
        logs.events.append(event)
    return True


def of_image(event: Event) -> bool:
    """The pod's image cannot be pulled."""
    failing = event.reason in ("Failed", "BackOff", "ErrImagePull", "ImagePullBackOff", "InspectFailed")
    return failing and _IMAGE.search(event.said) is not None


def ends(event: Event) -> bool:
    """The event ends its pod, or says that its node is lost; the routine stop of a container does not count."""
    if event.reason == "Killing":
        return _PROBE.search(event.said) is not None
    return event.reason in ENDS and not _CANCELLED.search(event.said)


def keeps(event: Event) -> bool:
    """The event tells why its pod has not started."""
    return event.kind == "pod" and (event.reason in KEEPS or of_image(event))


def ended(logs: Logs) -> Iterator[tuple[Event, bool]]:
    """The events that ended pods, and whether the pod, or the node, came back later: the last one of each."""
    yield from _last((event for event in logs.events if ends(event)), logs, ("Started", "NodeReady"))


def kept_back(logs: Logs) -> list[Event]:
    """The events of pods that have not started since: the last one of each."""
    waiting = (event for event in logs.events if keeps(event))
    return [event for event, settled in _last(waiting, logs, ()) if not settled]


def _last(events: Iterator[Event], logs: Logs, by: tuple[str, ...]) -> Iterator[tuple[Event, bool]]:
    found: dict[tuple[str, str], Event] = {}
    for event in events:
        known = found.get((event.kind, event.name))
        if known is None or _later(event, known):
            found[event.kind, event.name] = event
    for event in found.values():
        settles = by or _settling(event)
        later = (each for each in logs.events if (each.kind, each.name) == (event.kind, event.name))
        yield event, any(each.reason in settles and _later(each, event) for each in later)


def _settling(event: Event) -> tuple[str, ...]:
    """A container that has started has all it needs; a pod that has a node, and an image that is there, are steps."""
    if event.reason == "FailedScheduling":
        return ("Started", "Scheduled", "Pulled", "Created")
    return ("Started", "Pulled", "Created") if of_image(event) else ("Started",)


def _later(one: Event, other: Event) -> bool:
    """By the ages, which are rounded; where these are not told, a start counts."""
    return one.age_s is None or other.age_s is None or one.age_s <= other.age_s
