"""A GPU that the driver has given up, or that reports an error."""

from __future__ import annotations

import re

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.devices import bound
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

LOST = re.compile(r"gpu is lost|xid|fallen off|uncorrect|ecc|device-side|unspecified launch failure", re.IGNORECASE)


def gpu_fault(case: Case) -> Finding | None:
    """The driver reports an error of a GPU."""
    faulty = [(node, gpu) for node in case.snapshot.nodes for gpu in node.gpus if gpu.errors]
    if not faulty or not (case.blocked or any(view.main.doing is Doing.DEVICE or view.dead for view in case)):
        return None
    node, gpu = faulty[0]
    ranks = [each.view for each in bound(case) if (each.node, each.gpu) in faulty]
    serial = f", serial number {gpu.serial}" if gpu.serial else ""
    whose = f" It belongs to {words.ranks(view.rank for view in ranks)}." if ranks else ""
    return Finding(
        "gpu-fault",
        Certainty.PROVEN if any(LOST.search(error) for error in gpu.errors) else Certainty.LIKELY,
        f"GPU {gpu.index} of {node.host} ({gpu.name}{serial}) has failed: {gpu.errors[0]}.{whose}",
        fix=f"drain {node.host} and reset or replace GPU {gpu.index}{serial}",
        culprits=tuple(view.culprit() for view in ranks),
        evidence=tuple(f"GPU {gpu.index} of {node.host}: {error}" for node, gpu in faulty for error in gpu.errors[:4]),
        status=Status.HUNG,
    )
