"""What all ranks of a machine share: its memory, its addresses, its GPUs, and the port of the rendezvous."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from hangwatch.model import CaptureNote, NodeFacts, ProcessFacts
from hangwatch_agent.capture.gpu import Gpus
from hangwatch_agent.capture.proc import cgroup, sockets
from hangwatch_agent.capture.proc.cgroup import CGROUPS, Memory
from hangwatch_agent.capture.proc.process import process_facts
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import PROC

T = TypeVar("T")

RESOLVE_S = 1.0


@dataclass(frozen=True)
class Place:
    """The machine as one capture sees it. `pid` is a living rank (for its cgroup and network), else the watchdog.

    `settings` are the distributed settings of the ranks, for MASTER_ADDR and MASTER_PORT. `oom_kills_before` is the
    cgroup's count when the watchdog started: what was killed before is not this job's.
    """

    host: str
    ranks: tuple[int, ...]
    pid: int
    settings: Mapping[str, str]
    oom_kills_before: int | None = None


def node_facts(
    place: Place, gpus: Gpus, *, proc: Path = PROC, cgroups: Path = CGROUPS
) -> tuple[NodeFacts, tuple[CaptureNote, ...]]:
    """The facts of this machine, and notes on what could not be had. Never raises; takes about 3 s at most."""
    found_gpus, gpu_note = gpus.read()
    notes = [gpu_note]

    def attempt(source: str, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except (OSError, ValueError) as error:
            notes.append(CaptureNote(source, False, procfs.reason(error) if isinstance(error, OSError) else str(error)))
            return None

    memory = attempt("cgroup", lambda: cgroup.memory_of(place.pid, proc, cgroups)) or Memory()
    shm = attempt("shared memory", cgroup.shm)
    addresses = attempt("addresses", local_addresses) or ()
    resolves, listener = attempt("master port", lambda: master(place, addresses, proc)) or (None, None)
    facts = NodeFacts(
        host=place.host,
        ranks=place.ranks,
        gpus=found_gpus,
        shm_total=shm and shm[0],
        shm_free=shm[1] if shm else None,
        memory_limit=memory.limit,
        memory_used=memory.used,
        oom_kills=_since(place.oom_kills_before, memory.oom_kills),
        master_listener=listener,
        master_resolves=resolves,
        addresses=addresses,
    )
    return facts, tuple(notes)


def oom_kills(pid: int | None = None, *, proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """The OOM kills of a process's cgroup so far (this process by default); None where they are not counted."""
    try:
        return cgroup.memory_of(pid or os.getpid(), proc, cgroups).oom_kills
    except (OSError, ValueError):
        return None


def _since(before: int | None, now: int | None) -> int | None:
    return None if now is None else max(now - (before or 0), 0)


def local_addresses() -> tuple[str, ...]:
    """The machine's own addresses without loopback and link-local ones."""
    families = (socket.AF_INET, socket.AF_INET6)
    found = [
        entry.address for entries in psutil.net_if_addrs().values() for entry in entries if entry.family in families
    ]
    return tuple(sorted(each for each in found if "%" not in each and not each.startswith(("127.", "::1"))))


def master(place: Place, addresses: tuple[str, ...], proc: Path = PROC) -> tuple[bool | None, ProcessFacts | None]:
    """Whether MASTER_ADDR resolves, and which process listens on MASTER_PORT if that is this machine. Raises OSError.

    A listener that may not be looked into is a process with pid 0.
    """
    host, port = place.settings.get("MASTER_ADDR"), place.settings.get("MASTER_PORT", "")
    if not host:
        return None, None
    found = sockets.resolve(host, RESOLVE_S)
    resolves = None if found is None else bool(found)
    if not port.isdigit() or not is_local(host, found or (), addresses):
        return resolves, None
    who = sockets.listener(int(port), seen_from=place.pid, proc=proc)
    if not who.listening:
        return resolves, None
    return resolves, process_facts(who.pid, proc=proc) if who.pid else ProcessFacts(
        0, "?", command="another user's process"
    )


def is_local(host: str, resolved: tuple[str, ...], addresses: tuple[str, ...]) -> bool:
    """Whether a host name means this machine."""
    if host in ("localhost", socket.gethostname()):
        return True
    return any(each in addresses or each.startswith("127.") or each == "::1" for each in resolved)
