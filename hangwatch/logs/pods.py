"""What Kubernetes says of pods whose containers have ended: the text of `kubectl describe`, and `get -o json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.catalogue.deaths import advice
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from .ends import failures
from .model import Logs, Pod
from .slurm import of_shell

MARKS = ("    State:          ",)
_FIELD = re.compile(r"^( *)([A-Z][\w ]*?):(?:\s+(\S.*))?$")
_NO_MEMORY = "OOMKilled"
_EVICTED = "Evicted"
_KILLED = -9


class Described:
    """Takes the lines of `kubectl describe pod`."""

    def __init__(self) -> None:
        self._pod: str | None = None
        self._about = ""

    def take(self, line: str, logs: Logs) -> bool:
        """Keep what a line says. False for a line of no use."""
        if self._pod is None and not line.startswith("Name:"):
            return False
        found = _FIELD.match(line)
        if found is None:
            return False
        name, said = found[2], (found[3] or "").strip()
        if not found[1] and name == "Name":
            self._pod, self._about = said, ""
        elif self._pod is not None and not found[1]:
            return self._of_pod(self._pod, name, said, logs)
        elif self._pod is not None and name in ("State", "Last State"):
            self._about = name
            logs.pods.setdefault(self._pod, Pod(self._pod)).note(name == "State", said)
            return True
        elif self._pod is not None and self._about and name in ("Reason", "Exit Code"):
            logs.pods[self._pod].note(self._about == "State", *(("", said) if name == "Reason" else ("", "", said)))
            return True
        return False

    def _of_pod(self, pod: str, name: str, said: str, logs: Logs) -> bool:
        self._about = ""
        if name == "Node" and said:
            logs.pods.setdefault(pod, Pod(pod)).node = said.split("/")[0]
        elif name == "Reason" and said == _EVICTED:
            logs.pods.setdefault(pod, Pod(pod)).reason = said
        return False


def of_json(content: bytes, logs: Logs) -> bool:
    """Keep what `kubectl get pods -o json` says. False where it is something else."""
    try:
        document = json.loads(content)
    except ValueError:
        return False
    items = document.get("items", [document]) if isinstance(document, dict) else []
    pods = [each for each in items if isinstance(each, dict) and each.get("kind") == "Pod"]
    for each in pods:
        _keep(each, logs)
    return bool(pods)


def _keep(document: Mapping[str, Any], logs: Logs) -> None:
    name, status = str(document.get("metadata", {}).get("name", "")), document.get("status", {})
    pod = logs.pods.setdefault(name, Pod(name, node=str(document.get("spec", {}).get("nodeName", ""))))
    pod.reason = _EVICTED if status.get("reason") == _EVICTED else pod.reason
    for container in status.get("containerStatuses", ()):
        for key in ("state", "lastState"):
            for kind, said in container.get(key, {}).items():
                pod.note(key == "state", kind.capitalize(), str(said.get("reason", "")), str(said.get("exitCode", "")))


def judged(logs: Logs) -> Judgement | None:
    """The verdict on pods that the machine or the cluster ended; their ranks, which no line tells, are not named."""
    ended = [pod for pod in logs.pods.values() if _by_itself(pod, logs)]
    if not ended or failures(logs).keys() - {each.rank for each in logs.timeouts}:
        return None
    entry, memory = cause("rank-died"), all(pod.ended_by == _NO_MEMORY for pod in ended)
    return Judgement(
        Status.FAILED,
        entry.stage or Stage.STEP,
        Verdict(
            cause=entry.id,
            certainty=Certainty.LIKELY if len(ended) == 1 and not ended[0].runs else Certainty.UNDETERMINED,
            summary=f"{words.capital(words.listed(map(_said, ended)))}; no line tells which ranks ran there.",
            fix=advice(_KILLED, out_of_memory=memory) or entry.fix,
            culprits=tuple(Culprit(None, host=pod.node or pod.name) for pod in ended),
            victims=tuple(sorted({each.rank for each in logs.timeouts})),
            evidence=tuple(said for pod in logs.pods.values() if pod not in ended and (said := _other(pod))),
        ),
    )


def sentences(logs: Logs) -> Iterable[str]:
    """What is told of pods where no verdict is on them."""
    return filter(None, map(_other, logs.pods.values()))


def _by_itself(pod: Pod, logs: Logs) -> bool:
    """Ended by the machine for lack of memory, or evicted; one that runs again only where others wait."""
    stands = not pod.well or (pod.runs and bool(logs.timeouts))
    return stands and pod.ended_by in (_NO_MEMORY, _EVICTED)


def _said(pod: Pod) -> str:
    again = ", and it has been started again since" if pod.runs else ""
    return f"Kubernetes says of pod {pod.name}{_details(pod)}: {pod.ended_by}{_code(pod)}{again}"


def _other(pod: Pod) -> str:
    return _said(pod) if pod.ended_by and pod.exit_code != 0 else ""


def _details(pod: Pod) -> str:
    return f" on node {pod.node}" if pod.node else ""


def _code(pod: Pod) -> str:
    if not pod.exit_code:
        return ""
    signal = of_shell(pod.exit_code)
    return f", exit code {pod.exit_code}{f' (signal {-signal})' if signal < 0 else ''}"
