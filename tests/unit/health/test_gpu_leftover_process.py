"""Processes of earlier runs on the job's GPUs, and those that may be there on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hangwatch.catalogue import cause
from hangwatch.health import leftover_processes
from hangwatch.model import Frame, GpuFacts, NodeFacts, ProcessEvidence, ProcessFacts, RankEvidence, ThreadStack
from tests.unit.agent.readings import reading

GIB = 1 << 30
RANKS = [RankEvidence(rank, "node-a", 100 + rank, reading=reading(rank), gpu=rank) for rank in (0, 1)]


def process(role: str = "stranger", *, parent: int = 1, state: str = "S", **environment: str) -> ProcessEvidence:
    facts = ProcessFacts(4711, state, parent=parent, command="python old_train.py", environment=environment)
    stack = ThreadStack(1, "MainThread", (Frame("/home/ann/old_train.py", 88, "main"),), main=True)
    return ProcessEvidence(role, facts, (stack,))


def node(held: int = 12 * GIB, gpu: int = 1) -> NodeFacts:
    gpus = tuple(
        GpuFacts(index, f"GPU-{index}", "H200", processes={100 + index: GIB} | ({4711: held} if index == gpu else {}))
        for index in range(3)
    )
    return NodeFacts("node-a", gpus=gpus)


def test_a_rank_of_another_run_whose_launcher_is_gone() -> None:
    (found,) = leftover_processes([node()], RANKS, [process(RANK="3")])
    assert (found.kind, found.ranks) == ("gpu-leftover-process", (1,))
    assert found.summary == (
        "Process 4711 holds 12.0 GiB on GPU 1 of node-a, which is rank 1's, and is no part of the job:"
        " it was rank 3 of another run, whose launcher is gone"
    )
    assert found.evidence == ("pid 4711 (python old_train.py), at old_train.py:88: 12.0 GiB on GPU 1",)
    assert found.fix == cause("gpu-leftover-process").fix


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (process("orphan", parent=7), "an attempt that is over"),
        (process(parent=7, state="T"), "is stopped"),
        (process(parent=7, state="Z"), "has ended and was not collected"),
    ],
)
def test_other_ways_to_be_left_behind(left: ProcessEvidence, why: str) -> None:
    (found,) = leftover_processes([node()], RANKS, [left])
    assert why in found.summary


@pytest.mark.parametrize(
    ("where", "others"),
    [
        (node(), [process(parent=500, RANK="3")]),  # its launcher lives: another job on the same GPU
        (node(), [process()]),  # no rank of anything: a notebook, a service
        (node(), [process(parent=7, state="t")]),  # a debugger is attached
        (node(), [replace(asleep := process(parent=7, state="D"), facts=replace(asleep.facts, cpu_delta_s=0.4))]),
        (node(held=1 << 20), [process(RANK="3")]),  # hardly anything
        (node(gpu=2), [process(RANK="3")]),  # on a GPU that no rank is bound to
        (node(), [process("job", RANK="3")]),  # of this job
        (node(), []),
        (NodeFacts("node-b"), [process(RANK="3")]),
    ],
)
def test_what_may_be_there_on_purpose_is_not_told(where: NodeFacts, others: list[Any]) -> None:
    assert leftover_processes([where], RANKS, others) == ()
