"""The part of the gallery that runs on the stand-in for NCCL: hosts queue their work, and wait for their streams."""

from __future__ import annotations

from .case import Case, every_rank

NCCL: tuple[Case, ...] = (
    Case(
        name="nccl-uneven-steps",
        cause="uneven-steps",
        script="nccl_uneven_steps.py",
        step=(0, 120),
        where="main",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-skipped-backward",
        cause="skipped-collective",
        script="nccl_skipped_backward.py",
        step=(0, 70),
        where="main",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-lone-evaluation",
        cause="rank-zero-only-collective",
        script="nccl_rank_zero_only.py",
        culprit=0,
        where="evaluate",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-mismatch-size",
        cause="collective-mismatch",
        script="nccl_size_mismatch.py",
        where="gather_scores",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-early-exit",
        cause="early-exit",
        script="nccl_early_exit.py",
        step=(2, 0),
        where="main",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-rank-frozen",
        cause="rank-frozen",
        script="nccl_rank_frozen.py",
        step=(0, 80),
        where="main",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-worker-on-socket",
        cause="loader-worker-blocked",
        script="nccl_loader_worker_blocked.py",
        process="loader-worker",
        step=(0, 61),
        where="fetch",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-stuck-kernel",
        cause="device-stall",
        script="nccl_stuck_kernel.py",
        where="main",
        backend="nccl_standin",
    ),
    Case(
        name="nccl-group-order",
        cause="group-order-cycle",
        script="nccl_group_order.py",
        variant="Here the streams wait for each other.",
        culprits=every_rank,
        backend="nccl_standin",
    ),
    Case(
        name="nccl-group-order-read",
        cause="group-order-cycle",
        script="nccl_group_order.py",
        variant="Here the hosts wait, for they read what each call made.",
        args=("--read-each",),
        backend="nccl_standin",
    ),
    Case(
        name="nccl-mesh-skip",
        cause="skipped-collective",
        script="nccl_mesh_skip.py",
        ranks=4,
        min_ranks=4,
        where="reduce_activations",
        backend="nccl_standin",
    ),
)
