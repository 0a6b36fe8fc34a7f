"""The order of the rules and the words of every cause."""

from __future__ import annotations

from hangwatch.catalogue import BY_ID, CATALOGUE
from hangwatch.judge import ORDER

IDS = [
    "data-dependent-graph", "rank-local-decision", "timeout-ahead",
    "launch-mismatch", "lock-held-by-process", "fork-deadlock",
    "rendezvous-missing-ranks", "rendezvous-unreachable-master", "rendezvous-port-conflict",
    "rendezvous-duplicate-rank", "node-not-started", "rank-died-before-init", "new-group-mismatch",
    "stale-file-lock", "uneven-steps", "early-exit", "skipped-collective", "exception-on-one-rank",
    "rank-died", "rank-frozen", "node-lost", "rank-zero-only-collective", "collective-mismatch", "group-order-cycle",
    "concurrent-collectives", "point-to-point-deadlock", "gradient-sync-mismatch", "slow-checkpoint",
    "compile-skew", "signal-handler-deadlock", "gil-held", "network-partition", "user-code-blocked",
    "loader-worker-blocked", "loader-fork-deadlock", "loader-worker-died", "loader-worker-frozen",
    "file-descriptors-exhausted", "shared-memory-exhausted", "device-stall", "gpu-fault", "interconnect-stall",
    "duplicate-gpu", "exit-non-daemon-thread", "exit-child-process", "exit-queue-feeder",
    "exit-atexit-handler", "exit-destructor", "exit-orphan-holds-pipe", "exit-destroy-asymmetric",
    "exit-launcher-order", "output-pipe-full", "undetermined", "uneven-forecast", "sampler-full-copy",
    "set-epoch-missing", "sampler-world-mismatch", "gpu-leftover-process", "gpu-memory-imbalance", "straggler",
    "data-bound", "nccl-environment", "plans-differ", "slow-link",
]  # fmt: skip


def test_every_cause_of_the_catalogue_has_its_words() -> None:
    assert sorted(BY_ID) == sorted(IDS)
    for entry in CATALOGUE:
        assert entry.title
        assert entry.explanation.endswith(".")
        assert entry.fix
        assert entry.docs.endswith(f"#{entry.id}")
        assert set(entry.look_alikes) <= BY_ID.keys() - {entry.id}


def test_the_rules_of_the_order_are_all_different() -> None:
    assert len(set(ORDER)) == len(ORDER)
