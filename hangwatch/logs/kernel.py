"""What a host's kernel log says of processes and GPUs: a process killed for lack of memory, an Xid of the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Alternative, Certainty, Judgement, Stage, Status, Verdict
from hangwatch.rules.device.gpu_fault import GONE, NO_FAULT, XIDS

from . import communicators
from .model import Failure, KernelSaid, Logs
from .unknown import unknown

OF_CUDA = re.compile(r"(?:[\w.]+: )?CUDA error")  # the watchdog tells the error alone, a traceback its class too
MARKS = ("NVRM: Xid", "Killed process ")
_XID = re.compile(
    r"(?:(?P<host>[\w.-]+) kernel: .*?)?NVRM: Xid \((?:PCI:)?(?P<bus>[^)]*)\): (?P<number>\d+)"
    r"(?:, pid='?(?P<pid>\d+)'?)?(?:, name=(?P<name>[^,\s]+))?"
)
_KILLED = re.compile(r"ut of memory: Killed process (\d+) (?:\(([^)]*)\))?")
_OF_PYTHON = re.compile(
    r"python|^pt_|torch|train|ray::|accelerate|deepspeed", re.IGNORECASE
)  # as ranks call themselves
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{1,16}")
_KILL = -9
NO_MEMORY = "the kernel killed it for lack of memory"


def take(line: str, logs: Logs) -> bool:
    """Keep what a line says. False for a line of no use."""
    if "Killed process" in line and (killed := _KILLED.search(line)):
        said = KernelSaid(int(killed[1]), _KILL, NO_MEMORY, name=killed[2] or "")
    elif "NVRM: Xid" in line and (xid := _XID.search(line)) and not NO_FAULT.match(f"Xid {xid['number']}"):
        said = _of_gpu(xid)
    else:
        return False
    logs.kernel.setdefault((said.pid, said.gpu, said.text), said)
    return True


def _of_gpu(xid: re.Match[str]) -> KernelSaid:
    meaning = XIDS.get(int(xid["number"]))
    text = f"Xid {xid['number']}{f' ({meaning})' if meaning else ''}"
    pid, host = int(xid["pid"]) if xid["pid"] else None, xid["host"] or ""
    return KernelSaid(pid, None, text, pci_address(xid["bus"]), host, xid["name"] or "")


def pci_address(said: str) -> str:
    """0000:4f:00 of `0000:4f:00`, `0000:4f:00.0` and of NCCL's busId, `4f000`; what is no address as it is."""
    if ":" in said:
        return said.split(".")[0].lower()
    if not _HEXADECIMAL.fullmatch(said):
        return said
    number = int(said, 16)
    return f"{number >> 20:04x}:{number >> 12 & 0xFF:02x}:{number >> 4 & 0xFF:02x}"


def failures(logs: Logs) -> Iterator[Failure]:
    """The ranks whose processes it names, and those whose GPU has gone: that of an earlier job has left no log.

    Of several sentences on one rank the first counts: the others follow from it.
    """
    told = set[int]()
    for said in logs.kernel.values():
        rank = logs.rank_of_pid(said.pid) if said.pid is not None else None
        if rank is None and GONE.match(said.text):
            rank = _rank_of_gone(said, logs)
        if rank is not None and rank not in told:
            told.add(rank)
            yield Failure(rank, pid=said.pid, exit_code=said.exit_code, text=said.text)


def _rank_of_gone(said: KernelSaid, logs: Logs) -> int | None:
    """The rank of a GPU that has gone: by its address, or the only one whose calls of CUDA fail."""
    placed = logs.rank_at(said.gpu, said.host)
    failing = [rank for rank, raised in logs.raised.items() if OF_CUDA.match(raised.text)]
    return failing[0] if placed is None and len(failing) == 1 else placed


def unplaced(logs: Logs) -> Iterator[str]:
    """What it says of processes whose rank is not known."""
    for said in logs.kernel.values():
        lost = bool(GONE.match(said.text))
        rank = _rank_of_gone(said, logs) if lost else logs.rank_at(said.gpu, said.host)
        if rank is not None and not lost:
            yield f"the kernel log tells of {said.text}, at some time, of the GPU of {words.ranks([rank])} ({said.gpu})"
        elif rank is not None:
            continue
        elif said.pid is None:
            whose = f" of the GPU at {said.gpu}" if said.gpu else ""
            yield f"the kernel log tells of {said.text}{whose}, and not of which process"
        elif logs.rank_of_pid(said.pid) is None:
            named = f" ({said.name})" if said.name else ""
            yield f"the kernel log says of process {said.pid}{named}: {said.text}; its rank is not known"


def gone(logs: Logs) -> Judgement | None:
    """A GPU that has gone, of whatever rank: what other ranks and NCCL say of their peers follows from it."""
    return next((_lost(said, logs) for said in logs.kernel.values() if GONE.match(said.text)), None)


def of_a_lost_gpu(verdict: Verdict, logs: Logs) -> Verdict:
    """A verdict on calls that no rank is to blame for, where a GPU has gone: they wait for that one."""
    lost = gone(logs)
    if lost is None or verdict.culprits:
        return verdict
    return replace(
        lost.verdict,
        evidence=verdict.evidence,
        victims=verdict.victims,
        hang=verdict.hang,
        argument=verdict.argument,
        details=(verdict.summary, *verdict.details),
    )


def with_error(verdict: Verdict, logs: Logs) -> Verdict:
    """A verdict without a cause or a rank to blame, where the driver reports an error of a GPU and of no process."""
    said = next((each for each in logs.kernel.values() if each.gpu and each.pid is None), None)
    if said is None or verdict.culprits or verdict.certainty is not Certainty.UNDETERMINED:
        return verdict
    found = _lost(said, logs).verdict
    others = tuple(each for each in verdict.alternatives if each.cause != found.cause)
    if verdict.cause != "undetermined":
        others = (Alternative(verdict.cause, Certainty.UNDETERMINED, "nothing else tells why none completes"), *others)
    summary = f"{verdict.summary} {found.summary}"
    return replace(verdict, cause=found.cause, summary=summary, fix=found.fix, alternatives=others)


def judged(logs: Logs) -> Judgement | None:
    """What a kernel log says, where no other tells of anything. It may be of an earlier job."""
    said = next((each for each in logs.kernel.values() if each.gpu or not _of_another_program(each, logs)), None)
    if said is None:
        return None
    if said.gpu:
        return _lost(said, logs)
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"{words.capital('; '.join(unplaced(logs)))}.",
        fix="give the output of all ranks and of the launcher too: they tell whose process that was",
    )


def _of_another_program(said: KernelSaid, logs: Logs) -> bool:
    """A process that is no known rank, and whose name is not one under which ranks run."""
    known = said.pid is not None and logs.rank_of_pid(said.pid) is not None
    return bool(said.name) and not known and not _OF_PYTHON.search(said.name)


def _lost(said: KernelSaid, logs: Logs) -> Judgement:
    entry, where = cause("gpu-fault"), f" of {said.host}" if said.host else ""
    sure = bool(GONE.match(said.text))  # else it may work on
    verdict = Verdict(
        cause=entry.id,
        certainty=Certainty.LIKELY if sure else Certainty.UNDETERMINED,
        summary=f"The GPU at {said.gpu}{where} {'has failed' if sure else 'had an error'}: {said.text}.",
        fix=entry.fix,
        evidence=(*unplaced(logs), *communicators.evidence(logs)),
    )
    return Judgement(Status.FAILED, Stage.DEVICE, verdict)
