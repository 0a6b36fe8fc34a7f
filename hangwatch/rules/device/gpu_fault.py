"""A GPU that the driver has given up, or that reports an error."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.devices import bound
from hangwatch.model import Certainty, GpuFacts, NodeFacts, Status
from hangwatch.ranks.device_waits import may_wait_on_device
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

GONE = re.compile(r"gpu is lost|fallen off|xid:? (79|119|120|154)\b", re.IGNORECASE)
# Xid errors of a program's exception, fault or end, and of what the GPU has corrected: the GPU works on.
NO_FAULT = re.compile(r"xid:? (13|31|32|43|45|63|68|69|92|121)\b", re.IGNORECASE)
XIDS = {
    48: "a double-bit ECC error",
    62: "its microcontroller has halted",
    64: "a row could not be remapped",
    74: "an NVLink error",
    79: "it has fallen off the bus",
    94: "an ECC error, contained",
    95: "an ECC error, not contained",
    119: "its GSP does not answer",
    120: "a GSP error",
    154: "it has to be reset",
}
LOST = re.compile(r"gpu is lost|xid|fallen off|uncorrect|ecc|device-side|unspecified launch failure", re.IGNORECASE)


def gpu_fault(case: Case) -> Finding | None:
    """The driver reports an error of a GPU."""
    faulty = [(node, gpu) for node in case.snapshot.nodes for gpu in node.gpus if _own_errors(gpu)]
    ranks = [each.view for each in bound(case) if (each.node, each.gpu) in faulty]
    stands = case.blocked or any(view.main.doing is Doing.DEVICE or view.dead for view in case)
    if not faulty or not (stands or any(_waits_unseen(view) and _gone(faulty) for view in ranks)):
        return None
    node, gpu = faulty[0]
    serial = f", serial number {gpu.serial}" if gpu.serial else ""
    whose = f" It belongs to {words.ranks(view.rank for view in ranks)}." if ranks else ""
    return Finding(
        "gpu-fault",
        Certainty.PROVEN if any(LOST.search(error) for error in _own_errors(gpu)) else Certainty.LIKELY,
        f"GPU {gpu.index} of {node.host} ({gpu.name}{serial}) has failed: {_in_words(_own_errors(gpu)[0])}.{whose}",
        fix=f"drain {node.host} and reset or replace GPU {gpu.index}{serial}",
        culprits=tuple(view.culprit() for view in ranks),
        evidence=tuple(f"GPU {gpu.index} of {node.host}: {error}" for node, gpu in faulty for error in gpu.errors[:4]),
        status=Status.HUNG,
    )


def _own_errors(gpu: GpuFacts) -> list[str]:
    """Errors of the GPU itself: the driver also files mistakes of programs, of whatever job, and what was corrected."""
    return [error for error in gpu.errors if not NO_FAULT.match(error)]


def _in_words(error: str) -> str:
    """`Xid 79 (it has fallen off the bus)`. Source: NVIDIA's list of Xid errors."""
    number = re.fullmatch(r"Xid (\d+)", error)
    meaning = XIDS.get(int(number[1])) if number else None
    return f"{error} ({meaning})" if meaning else error


def _gone(faulty: list[tuple[NodeFacts, GpuFacts]]) -> bool:
    """The driver has lost a GPU, so that nothing on it ever completes."""
    return any(GONE.search(error) for _, gpu in faulty for error in gpu.errors)


def _waits_unseen(view: RankView) -> bool:
    """It stands where `.item()` leaves a rank, and no native frame could be taken to distinguish a wait from work."""
    return may_wait_on_device(view) and view.steady
