"""What Kubernetes says of pods whose containers have ended: `kubectl describe`, and `get` as a table or as JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.catalogue.deaths import advice
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from .ends import failures
from .model import Logs, Pod
from .slurm import of_shell

MARKS = ("    State:          ", "READY   STATUS")
_HEAD = re.compile(r"^(NAME +)READY +(?=STATUS)")
_NODE_COLUMN = re.compile(r"\bNODE\b")
_OF_MEMORY = re.compile(r"low on resource: memory|memory", re.IGNORECASE)
_OF_DISK = re.compile(r"ephemeral-storage|disk|inodes", re.IGNORECASE)
_DISK_FIX = (
    "write less to the node's own disk (checkpoints, caches, datasets in the container), or raise the pod's limit and"
    " request of ephemeral-storage; mount a volume for what is large"
)
_CONTAINER = re.compile(r"^  ([a-z0-9][a-z0-9-]*):$")
_SECTION = re.compile(r"^(?:Init |Ephemeral )?Containers:$")
_MAIN_SECTION = "Containers:"
# Containers that no job is made for: where one of these ended well, its pod may still have failed.
_SIDECAR = re.compile(r"proxy|sidecar|agent|exporter|fluent|logg|vault|metrics")
_FIELD = re.compile(r"^( *)([A-Z][\w ]*?):(?:\s+(\S.*))?$")
_NO_MEMORY = "OOMKilled"
_EVICTED = "Evicted"
_OF_ONE_JOB = 2  # pods, at least
_KILLED = -9


class Described:
    """Takes the lines of `kubectl describe pod`."""

    def __init__(self) -> None:
        self._pod: str | None = None
        self._about = self._container = ""
        self._node = ""
        self._main = True  # in the section of the containers that are no init containers

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if self._pod is None and not line.startswith("Name:"):
            return False
        if _SECTION.match(line):
            self._main, self._container, self._about = line == _MAIN_SECTION, "", ""
            return False
        if container := _CONTAINER.match(line):
            self._container, self._about = container[1], ""
            return False
        found = _FIELD.match(line)
        if found is None:
            return False
        name, said = found[2], (found[3] or "").strip()
        if not found[1] and name == "Name":
            self._pod, self._about, self._container, self._node, self._main = said, "", "", "", True
        elif self._pod is not None and not found[1]:
            return self._of_pod(self._pod, name, said, logs)
        elif self._pod is not None and name in ("State", "Last State"):
            self._about = name if self._main else ""
            if self._main:
                self._known(self._pod, logs).note(name == "State", said)
            return self._main
        elif self._pod is not None and self._about and name in ("Reason", "Exit Code"):
            self._known(self._pod, logs).note(
                self._about == "State", *(("", said) if name == "Reason" else ("", "", said))
            )
            return True
        return False

    def _known(self, pod: str, logs: Logs) -> Pod:
        """The container that the lines are about."""
        return logs.pods.setdefault((pod, self._container), Pod(pod, self._node, self._container))

    def _of_pod(self, pod: str, name: str, said: str, logs: Logs) -> bool:
        self._about = ""
        if name == "Node" and said:
            self._node = said.split("/")[0]
        elif name == "Reason" and said == _EVICTED:
            logs.pods.setdefault((pod, ""), Pod(pod, self._node)).reason = said
            return True
        elif name == "Message" and (pod, "") in logs.pods:
            logs.pods[pod, ""].message = said
        return False


class Listed:
    """Takes the lines of `kubectl get pods`, with `-o wide` or without."""

    def __init__(self) -> None:
        self._name = self._status = self._node = 0  # where the columns begin; 0 for none

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if line.startswith("NAME ") and (head := _HEAD.match(line)):
            column = _NODE_COLUMN.search(line)
            self._name, self._status = len(head[1]), head.end()
            self._node = column.start() if column else 0
            return True
        if not self._status:
            return False
        name, status = line[: self._name].strip(), line[self._status :].split()[:1]
        if not name or not status or line[self._name - 1 : self._name] != " ":
            self._status = 0  # another text begins
            return False
        node = line[self._node :].split()[:1] if self._node else []
        pod = logs.pods.setdefault((name, ""), Pod(name, node[0] if node else ""))
        if status[0] in (_EVICTED, _NO_MEMORY):
            pod.reason = status[0]
        elif status[0] == "Running":
            pod.note(now=True, state="Running")
        else:
            code = "0" if status[0] == "Completed" else ""
            pod.note(now=True, state="Terminated", reason=status[0], code=code)
        return True


def of_json(content: bytes, logs: Logs) -> bool:
    """Keep what `kubectl get pods -o json` says. False where it is something else."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return False
    items = _list(document["items"]) if isinstance(document, dict) and "items" in document else [document]
    pods = [each for each in items if isinstance(each, dict) and each.get("kind") == "Pod"]
    for each in pods:
        _keep(each, logs)
    return bool(pods)


def _keep(document: Mapping[str, Any], logs: Logs) -> None:
    status = _object(document.get("status"))
    name = _text(_object(document.get("metadata")).get("name"))
    node = _text(_object(document.get("spec")).get("nodeName"))
    if status.get("reason") == _EVICTED:
        evicted = logs.pods.setdefault((name, ""), Pod(name, node))
        evicted.reason, evicted.message = _EVICTED, _text(status.get("message"))
    for each in _list(status.get("containerStatuses")):
        container = _object(each)
        own = _text(container.get("name"))
        pod = logs.pods.setdefault((name, own), Pod(name, node, own))
        for key in ("state", "lastState"):
            for kind, said in _object(container.get(key)).items():
                of = _object(said)
                pod.note(key == "state", kind.capitalize(), _text(of.get("reason")), _text(of.get("exitCode")))


def _object(said: object) -> Mapping[str, Any]:
    """What is no object says nothing, as null."""
    return said if isinstance(said, dict) else {}


def _list(said: object) -> list[Any]:
    return said if isinstance(said, list) else []


def _text(said: object) -> str:
    return str(said) if isinstance(said, str | int) else ""


def judged(logs: Logs) -> Judgement | None:
    """The verdict on pods that the machine or the cluster ended; their ranks, which no line tells, are not named."""
    ended = [pod for pod in logs.pods.values() if _by_itself(pod, logs)]
    if not ended or failures(logs).keys() - {each.rank for each in logs.timeouts}:
        return None
    of = {pod.name: pod for pod in ended}
    said = words.capital(words.listed([_said(pod, logs) for pod in ended]))
    entry = cause("rank-died")
    return Judgement(
        Status.FAILED,
        entry.stage or Stage.STEP,
        Verdict(
            cause=entry.id,
            certainty=_certainty(ended, logs),
            summary=f"{said}; no line tells which ranks ran there.",
            fix=_fix(ended),
            culprits=tuple(Culprit(None, host=pod.node or pod.name) for pod in of.values()),
            victims=tuple(sorted({each.rank for each in logs.timeouts})),
            evidence=tuple(told for pod in logs.pods.values() if pod not in ended and (told := _other(pod, logs))),
        ),
    )


def _certainty(ended: list[Pod], logs: Logs) -> Certainty:
    """One pod that has not come back is likely the cause, unless it is of another program than the others there."""
    names = {pod.name for pod in ended}
    alone = len(names) == 1 and not any(pod.runs for pod in ended)
    return Certainty.LIKELY if alone and not _of_another_program(names.pop(), logs) else Certainty.UNDETERMINED


def _of_another_program(name: str, logs: Logs) -> bool:
    """Several other pods share the beginning of their names, as those of a job do, and this one has another."""
    shared = Counter(other.partition("-")[0] for other in {pod.name for pod in logs.pods.values()} - {name})
    own = name.partition("-")[0]
    return own not in shared and max(shared.values(), default=0) >= _OF_ONE_JOB


def _fix(ended: Iterable[Pod]) -> str:
    """What to do about pods that ended for lack of one resource."""
    why = [pod.ended_by if pod.ended_by == _NO_MEMORY else pod.message for pod in ended]
    if all(_OF_DISK.search(each) for each in why):
        return _DISK_FIX
    memory = all(each == _NO_MEMORY or _OF_MEMORY.search(each) for each in why)
    return advice(_KILLED, out_of_memory=memory) or cause("rank-died").fix


def sentences(logs: Logs) -> Iterable[str]:
    """What is told of pods where no verdict is on them."""
    return filter(None, (_other(pod, logs) for pod in logs.pods.values()))


def _by_itself(pod: Pod, logs: Logs) -> bool:
    """Ended by the machine for lack of memory, or evicted; one that runs again only where others wait."""
    stands = not pod.well or (pod.runs and bool(logs.timeouts))
    whole = logs.pods.get((pod.name, ""), pod)
    if whole is not pod and whole.reason == _EVICTED:
        return False  # its containers ended with it
    return stands and pod.ended_by in (_NO_MEMORY, _EVICTED) and not _beside_a_good_end(pod, logs)


def _beside_a_good_end(pod: Pod, logs: Logs) -> bool:
    """Another container of its pod has come to its end as it should, and is not one that serves others."""
    return bool(pod.container) and any(
        other.name == pod.name and other.codes.get(True) == 0 and not _SIDECAR.search(other.container)
        for other in logs.pods.values()
        if other is not pod
    )


def _said(pod: Pod, logs: Logs) -> str:
    several = _several(pod, logs)
    again = ", and it has been started again since" if pod.runs else ""
    why = f" ({pod.message.partition('. ')[0]})" if pod.message else ""
    return f"Kubernetes says of {_who(pod, several=several)}{_details(pod)}: {pod.ended_by}{_code(pod)}{why}{again}"


def _who(pod: Pod, *, several: bool) -> str:
    """The pod, and which of its containers where it has several."""
    return f"container {pod.container} of pod {pod.name}" if several else f"pod {pod.name}"


def _several(pod: Pod, logs: Logs) -> bool:
    return bool(pod.container) and any(each is not pod and each.name == pod.name for each in logs.pods.values())


def _other(pod: Pod, logs: Logs) -> str:
    return _said(pod, logs) if pod.ended_by and pod.exit_code != 0 else ""


def _details(pod: Pod) -> str:
    return f" on node {pod.node}" if pod.node else ""


def _code(pod: Pod) -> str:
    if not pod.exit_code:
        return ""
    signal = of_shell(pod.exit_code)
    return f", exit code {pod.exit_code}{f' (signal {-signal})' if signal < 0 else ''}"
