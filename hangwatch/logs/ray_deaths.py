"""What Ray says of workers that died without an exception of their own: by process and address, and why if it knows."""

from __future__ import annotations

import re
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.catalogue.deaths import advice
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from .ends import failures
from .going_on import Turns
from .model import DeadWorker, Logs
from .ray_errors import RANK

MARKS = (
    "ray.exceptions.ActorDiedError",
    "ray.exceptions.RayActorError",
    "ray.exceptions.OutOfMemoryError",
    "Worker exit type: SYSTEM_ERROR",
    "killed due to memory pressure (OOM)",
)
_WORKER = re.compile(r"Worker IP address: (\S+) .*Worker PID: (\d+) Worker exit type: SYSTEM_ERROR")
_ACTOR = re.compile(r"^ray\.exceptions\.(?:ActorDied|RayActor)Error\b")
_FIELD = re.compile(r"^\s+(pid|ip): (\S+)")
_MEMORY = re.compile(r"^Memory on the node \(IP: ([^,)\s]+).*\bpid=(\d+)(?:, memory used=([\d.]+\w+))?")
_NODE = re.compile(r"killed due to memory pressure \(OOM\).* at node \(ID: \w+, IP: ([^,)\s]+)\)")
_KILLED = -9
_WHY_FIX = "look at the kernel log of {host} (dmesg: out of memory, a crash), and at the worker's own log"
_TURNS_BEHIND = 10  # of a program that went on without the worker, or with another one


class Lines:
    """Takes the lines of one log, one after another."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, str], int] = {}  # by pid and address
        self._fields: dict[str, str] | None = None  # of an actor of which is being told
        self._turns, self._turned = Turns(), 0

    def take(self, whole: str, line: str, logs: Logs) -> bool:
        """Keep what a line says; `line` is `whole` without labels. False for a line of no use."""
        if "[rank=" in whole and (told := RANK.search(whole)):
            self._ranks[told[1], told[2] or ""] = int(told[3])
        if self._fields is not None and (field := _FIELD.match(line)):
            self._fields[field[1]] = field[2]
            if self._fields.keys() >= {"pid", "ip"}:
                self._keep(DeadWorker(int(self._fields["pid"]), self._fields["ip"]), logs)
                self._fields = None
            return True
        if _ACTOR.match(line):
            self._fields = {}
        elif "Worker exit type" in whole and (worker := _WORKER.search(whole)):
            self._keep(DeadWorker(int(worker[2]), worker[1]), logs)
        elif "Memory on the node" in line and (memory := _MEMORY.match(line)):
            self._keep(DeadWorker(int(memory[2]), memory[1], of_memory=True, used=memory[3] or ""), logs)
        elif "memory pressure" in whole and (node := _NODE.search(whole)):
            self._keep(DeadWorker(None, node[1], of_memory=True), logs)
        else:
            return False
        return True

    def _keep(self, found: DeadWorker, logs: Logs) -> None:
        """One worker is told of several times, and of a node's lack of memory also without the worker."""
        self._turns, self._turned = Turns(), 0
        dead = logs.dead_workers
        known = next((each for each in dead if each.host == found.host and {found.pid, None} & {each.pid}), None)
        if known is None and found.pid is None:
            known = next((each for each in dead if each.host == found.host), None)
        if known is not None:
            dead.remove(known)
            found = replace(
                found,
                pid=found.pid or known.pid,
                of_memory=found.of_memory or known.of_memory,
                used=found.used or known.used,
            )
        dead.append(replace(found, rank=self._ranks.get((str(found.pid), found.host))))

    def goes_on(self, line: str, logs: Logs) -> None:
        """An ordinary line: where the program counts up behind the death again and again, it did without the worker."""
        if logs.dead_workers and self._turns.take(line):
            self._turned += 1
            if self._turned >= _TURNS_BEHIND:
                logs.dead_workers.clear()


def judged(logs: Logs) -> Judgement | None:
    """The verdict on workers that Ray saw die, where no exception tells more."""
    dead = logs.dead_workers
    entry, memory = cause("rank-died"), all(each.of_memory for each in dead)
    aborted = bool(logs.timeouts) and not memory  # torch's watchdog ends its process as well, and Ray sees no more
    if not dead or aborted or failures(logs).keys() - {each.rank for each in logs.timeouts}:
        return None
    why = (
        "Ray killed it, since its node was low on memory"
        if memory
        else "it died unexpectedly, and Ray does not know why"
    )
    return Judgement(
        Status.FAILED,
        entry.stage or Stage.STEP,
        Verdict(
            cause=entry.id,
            certainty=Certainty.LIKELY if len(dead) == 1 else Certainty.UNDETERMINED,
            summary=f"{words.capital(words.listed(list(map(_who, dead))))}: {why}.",
            fix=advice(_KILLED, out_of_memory=True) if memory else _WHY_FIX.format(host=dead[0].host),
            culprits=tuple(Culprit(each.rank, each.pid, each.host) for each in dead),
            victims=tuple(sorted({each.rank for each in logs.timeouts} - {each.rank for each in dead})),
            evidence=tuple(f"{_who(each)} used {each.used} of memory" for each in dead if each.used),
        ),
    )


def _who(worker: DeadWorker) -> str:
    """rank 3, a worker of Ray (pid 5102 on 10.0.0.8)"""
    pid = f"pid {worker.pid} " if worker.pid is not None else ""
    who = f"a worker of Ray ({pid}on {worker.host})"
    return f"rank {worker.rank}, {who}" if worker.rank is not None else who
