"""A process with memory on another rank's GPU; what a model or a shared GPU explains is no news."""

from __future__ import annotations

import pytest

from hangwatch.health import device_warnings
from hangwatch.model import (
    NodeFacts,
    RankEvidence,
)
from tests.unit.health.readings import GIB, evidence, gpus


def test_a_process_with_memory_on_anothers_gpu() -> None:
    node = gpus({100: 9 * GIB, 101: 2 * GIB}, {101: 9 * GIB})
    (found,) = device_warnings([node], [evidence(0, 0), evidence(1, 1)])
    assert (found.kind, found.ranks) == ("gpu-memory-imbalance", (1,))
    assert found.summary == "Rank 1 holds 2.0 GiB on GPU 0 of node-a, which is rank 0's"
    assert found.evidence == (
        "rank 0 (pid 100): 9.0 GiB on GPU 0",
        "rank 1 (pid 101): 2.0 GiB on GPU 0, 9.0 GiB on GPU 1",
    )


@pytest.mark.parametrize(
    ("node", "ranks"),
    [
        (gpus({100: GIB}, {101: GIB}), [evidence(0, 0), evidence(1, 1)]),
        (gpus({100: GIB}, {100: GIB}, {101: GIB}), [evidence(0, 0), evidence(1, 2)]),  # a model over two GPUs
        (gpus({100: GIB, 101: 1 << 20}, {101: GIB}), [evidence(0, 0), evidence(1, 1)]),
        (gpus({100: GIB, 101: GIB}), [evidence(0, 0), evidence(1, 0)]),  # ranks that share a GPU
        (gpus({100: GIB, 101: GIB}, {101: GIB}), [evidence(0, None), evidence(1, None)]),
        (NodeFacts("node-b"), [evidence(0, 0)]),
    ],
)
def test_memory_where_it_belongs(node: NodeFacts, ranks: list[RankEvidence]) -> None:
    assert device_warnings([node], ranks) == ()
