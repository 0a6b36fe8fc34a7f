"""What a host's kernel log says of processes and GPUs: a process killed for lack of memory, an Xid of the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hangwatch.rules.device.gpu_fault import NO_FAULT, XIDS

from .model import Failure, KernelSaid, Logs

MARKS = ("NVRM: Xid", "Killed process ")
_XID = re.compile(r"NVRM: Xid \([^)]*\): (\d+)(?:, pid='?(\d+)'?)?")
_KILLED = re.compile(r"ut of memory: Killed process (\d+) ")
_KILL = -9


def take(line: str, logs: Logs) -> bool:
    """Keep what a line says. False for a line of no use."""
    if "Killed process" in line and (killed := _KILLED.search(line)):
        said = KernelSaid(int(killed[1]), _KILL, "the kernel killed it for lack of memory")
    elif "NVRM: Xid" in line and (xid := _XID.search(line)) and not NO_FAULT.match(f"Xid {xid[1]}"):
        meaning = XIDS.get(int(xid[1]))
        pid = int(xid[2]) if xid[2] else None
        said = KernelSaid(pid, None, f"Xid {xid[1]}{f' ({meaning})' if meaning else ''}")
    else:
        return False
    logs.kernel.setdefault((said.pid, said.text), said)
    return True


def failures(logs: Logs) -> Iterator[Failure]:
    """The ranks whose processes it names."""
    for said in logs.kernel.values():
        if said.pid is not None and (rank := logs.rank_of_pid(said.pid)) is not None:
            yield Failure(rank, pid=said.pid, exit_code=said.exit_code, text=said.text)


def unplaced(logs: Logs) -> Iterator[str]:
    """What it says of processes whose rank is not known."""
    for said in logs.kernel.values():
        if said.pid is None:
            yield f"the kernel log tells of {said.text}, and not of which process"
        elif logs.rank_of_pid(said.pid) is None:
            yield f"the kernel log says of process {said.pid}: {said.text}; its rank is not known"
