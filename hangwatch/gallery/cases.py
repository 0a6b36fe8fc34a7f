"""The table of the gallery: which script shows which cause, how to start it, what should be said of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Launcher = Literal["torchrun", "spawn", "plain"]
Process = Literal["rank", "loader-worker", "launcher", "other"]
Status = Literal["hung", "lingering", "failed", "waiting", "warned"]
Culprits = Callable[[int, int], tuple[int, ...]]


def chosen(culprit: int, ranks: int) -> tuple[int, ...]:
    """The rank that was chosen with --culprit."""
    return (culprit,)


def nobody(culprit: int, ranks: int) -> tuple[int, ...]:
    """No rank is to blame."""
    return ()


def everyone(culprit: int, ranks: int) -> tuple[int, ...]:
    """All ranks take part in the fault alike."""
    return tuple(range(ranks))


def odd_one_out(culprit: int, ranks: int) -> tuple[int, ...]:
    """The chosen rank; of two ranks that disagree, neither is the odd one."""
    return (culprit,) if ranks > 2 else (0, 1)


def off_the_master(culprit: int, ranks: int) -> tuple[int, ...]:
    """The chosen rank; of two ranks always rank 1, since the place to meet is where rank 0 listens."""
    return (culprit,) if ranks > 2 else (1,)


def last(culprit: int, ranks: int) -> tuple[int, ...]:
    """The rank with the highest number."""
    return (ranks - 1,)


def all_but_last(culprit: int, ranks: int) -> tuple[int, ...]:
    """All ranks but the one with the highest number."""
    return tuple(range(ranks - 1))


@dataclass(frozen=True, slots=True)
class Case:
    """One way to start one script, and the verdict that should follow.

    Attributes:
        name: Unique name of the case.
        cause: Id of the cause in the catalogue.
        script: File name in this directory.
        args: Arguments of the faulty run.
        healthy_args: Arguments of the look-alike that must finish; empty where there is none.
        ranks: Default world size; `min_ranks` is the smallest that shows the fault.
        launcher: How the ranks are started.
        launch: Further arguments of the launcher. `{culprit}`, `{port}` and the like are filled in.
        healthy_launch: The same for the look-alike, if it differs.
        culprit: The rank chosen by default; None where no rank can be chosen.
        immune: Ranks that cannot be chosen.
        culprits: From the chosen rank and the world size to the ranks that the verdict should name.
        process: What kind of process is to blame.
        status: Status of the incident that should be opened ("warned": a warning, and no incident).
        step: (epoch, batch) of the fault, counted from 0; None in place of what is unknown.
        where: Function of the script, unqualified, in which the culprit's thread is found; empty where there is none.
        needs: What the machine must offer: "root", "namespaces", "iproute2".
        after: Seconds after the start at which the hang has certainly come, imports included.
        backend: torch's backend, or the stand-in for NCCL, which needs a C compiler.
    """

    name: str
    cause: str
    script: str
    args: tuple[str, ...] = ()
    healthy_args: tuple[str, ...] = ("--healthy",)
    ranks: int = 2
    min_ranks: int = 2
    launcher: Launcher = "torchrun"
    launch: tuple[str, ...] = ()
    healthy_launch: tuple[str, ...] | None = None
    culprit: int | None = 1
    immune: tuple[int, ...] = ()
    culprits: Culprits = chosen
    process: Process = "rank"
    status: Status = "hung"
    step: tuple[int | None, int | None] | None = None
    where: str = ""
    needs: tuple[str, ...] = ()
    after: float = 12.0
    backend: Literal["gloo", "nccl_standin"] = "gloo"


START = (
    Case(
        name="rank-not-started",
        cause="rendezvous-missing-ranks",
        script="rendezvous_missing_ranks.py",
        launcher="plain",
        launch=("--omit={culprit}",),
        healthy_launch=(),
    ),
    Case(
        name="spawn-count",
        cause="rendezvous-missing-ranks",
        script="rendezvous_spawn_count.py",
        ranks=3,
        launcher="spawn",
        culprit=None,
        culprits=last,
    ),
    Case(
        name="master-port-differs",
        cause="rendezvous-unreachable-master",
        script="rendezvous_unreachable_master.py",
        launcher="plain",
        launch=("--set={culprit}:MASTER_PORT={other_port}",),
        healthy_launch=(),
        culprits=off_the_master,
    ),
    Case(
        name="master-unknown",
        cause="rendezvous-unreachable-master",
        script="rendezvous_unreachable_master.py",
        launcher="plain",
        launch=("--set={culprit}:MASTER_ADDR=node-0.invalid",),
        healthy_launch=(),
    ),
    Case(
        name="port-taken",
        cause="rendezvous-port-conflict",
        script="rendezvous_port_conflict.py",
        launcher="spawn",
        culprit=None,
        culprits=nobody,
        process="other",
    ),
    Case(
        name="rank-typed-twice",
        cause="rendezvous-duplicate-rank",
        script="rendezvous_duplicate_rank.py",
        ranks=4,
        min_ranks=3,
        launcher="plain",
        launch=("--twice={culprit}", "--omit={other}"),
        healthy_launch=(),
        immune=(0,),
    ),
    Case(
        name="second-node-missing",
        cause="node-not-started",
        script="node_not_started.py",
        launch=("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=run"),
        healthy_launch=(
            "--nnodes=1:2",
            "--rdzv-conf=last_call_timeout=6",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=127.0.0.1:{port}",
            "--rdzv-id=run",
        ),
        culprit=None,
        culprits=nobody,
        process="launcher",
    ),
    Case(
        name="died-before-init",
        cause="rank-died-before-init",
        script="rank_died_before_init.py",
        launcher="plain",
    ),
    Case(
        name="new-group-members",
        cause="new-group-mismatch",
        script="new_group_mismatch.py",
        ranks=3,
        min_ranks=3,
        where="make_groups",
    ),
    Case(
        name="new-group-order",
        cause="new-group-mismatch",
        script="new_group_mismatch.py",
        args=("--kind", "order"),
        ranks=3,
        min_ranks=3,
        where="make_groups",
    ),
    Case(
        name="stale-lock",
        cause="stale-file-lock",
        script="stale_file_lock.py",
        culprit=None,
        culprits=nobody,
        process="other",
        where="prepare",
    ),
)

EXIT = (
    Case(
        name="exit-heartbeat-thread",
        cause="exit-non-daemon-thread",
        script="exit_non_daemon_thread.py",
        status="lingering",
        where="beat",
    ),
    Case(
        name="exit-writer-thread",
        cause="exit-non-daemon-thread",
        script="exit_writer_thread.py",
        launcher="spawn",
        status="lingering",
        where="drain",
    ),
    Case(
        name="exit-child-process",
        cause="exit-child-process",
        script="exit_child_process.py",
        process="other",
        status="lingering",
        where="upload",
    ),
    Case(
        name="exit-queue",
        cause="exit-queue-feeder",
        script="exit_queue_feeder.py",
        launcher="plain",
        status="lingering",
    ),
    Case(
        name="exit-handler",
        cause="exit-atexit-handler",
        script="exit_atexit_handler.py",
        status="lingering",
        where="finish",
    ),
    Case(
        name="exit-destructor",
        cause="exit-destructor",
        script="exit_destructor.py",
        ranks=3,
        culprit=2,
        status="lingering",
        where="__del__",
    ),
    Case(
        name="exit-orphan",
        cause="exit-orphan-holds-pipe",
        script="exit_orphan_holds_pipe.py",
        launcher="plain",
        launch=("--output=copy",),
        process="other",
        status="lingering",
    ),
    Case(
        name="destroyed-early",
        cause="exit-destroy-asymmetric",
        script="exit_destroy_asymmetric.py",
        where="export",
        step=(2, 0),
    ),
    Case(
        name="launcher-order",
        cause="exit-launcher-order",
        script="exit_launcher_order.py",
        launcher="plain",
        immune=(0,),
        status="lingering",
    ),
    Case(
        name="output-pipe-full",
        cause="output-pipe-full",
        script="output_pipe_full.py",
        launcher="plain",
        launch=("--output=keep",),
        healthy_launch=("--output=copy",),
        process="launcher",
        where="report",
    ),
)

COLLECTIVES = (
    Case(
        name="uneven-steps",
        cause="uneven-steps",
        script="uneven_steps.py",
        step=(0, 120),
        where="main",
    ),
    Case(
        name="uneven-steps-iterable",
        cause="uneven-steps",
        script="uneven_steps_iterable.py",
        ranks=4,
        culprit=2,
        step=(0, 96),
        where="main",
    ),
    Case(
        name="uneven-steps-late",
        cause="uneven-steps",
        script="uneven_steps_late.py",
        step=(0, 60),
        where="main",
    ),
    Case(
        name="uneven-steps-trainer",
        cause="uneven-steps",
        script="uneven_steps_trainer.py",
        launcher="spawn",
        step=(0, 80),
        where="finish_epoch",
    ),
    Case(
        name="rank-frozen",
        cause="rank-frozen",
        script="rank_frozen.py",
        step=(0, 100),
        where="main",
    ),
    Case(
        name="blocked-on-socket",
        cause="user-code-blocked",
        script="user_code_blocked.py",
        step=(0, 100),
        where="push_metrics",
    ),
    Case(
        name="blocked-on-lock",
        cause="user-code-blocked",
        script="user_code_lock.py",
        ranks=4,
        culprit=3,
        step=(0, 80),
        where="add",
    ),
    Case(
        name="blocked-on-file-lock",
        cause="user-code-blocked",
        script="user_code_flock.py",
        launcher="plain",
        step=(0, 100),
        where="append_row",
    ),
    Case(
        name="blocked-on-database",
        cause="user-code-blocked",
        script="user_code_database.py",
        ranks=3,
        where="main",
    ),
    Case(
        name="busy-loop",
        cause="user-code-blocked",
        script="user_code_loop.py",
        step=(0, 100),
        where="project",
    ),
    Case(
        name="early-exit",
        cause="early-exit",
        script="early_exit.py",
        step=(2, 0),
        where="main",
    ),
    Case(
        name="early-exit-budget",
        cause="early-exit",
        script="early_exit_budget.py",
        launcher="spawn",
        culprit=0,
        step=(0, 90),
        where="train",
    ),
    Case(
        name="skipped-backward-nan",
        cause="skipped-collective",
        script="skipped_collective.py",
        step=(0, 70),
        where="main",
    ),
    Case(
        name="skipped-gather",
        cause="skipped-collective",
        script="skipped_gather.py",
        launcher="plain",
        step=(0, 110),
        where="synchronize_gradients",
    ),
    Case(
        name="skipped-backward-memory",
        cause="skipped-collective",
        script="skipped_backward.py",
        ranks=4,
        culprit=2,
        step=(0, 25),
        where="main",
        after=16.0,
    ),
    Case(
        name="exception-under-finally",
        cause="exception-on-one-rank",
        script="exception_on_one_rank.py",
        step=(0, 90),
        where="main",
    ),
    Case(
        name="exception-swallowed",
        cause="exception-on-one-rank",
        script="exception_swallowed.py",
        launcher="spawn",
        step=(0, 80),
        where="collect",
    ),
    Case(
        name="exception-in-context",
        cause="exception-on-one-rank",
        script="exception_in_context.py",
        launcher="plain",
        step=(0, 80),
        where="__exit__",
    ),
    Case(
        name="rank-killed",
        cause="rank-died",
        script="rank_died.py",
        status="failed",
        step=(0, 100),
    ),
    Case(
        name="rank-crashed",
        cause="rank-died",
        script="rank_died.py",
        args=("--how", "crashed"),
        launcher="plain",
        status="failed",
        step=(0, 100),
    ),
    Case(
        name="rank-gone",
        cause="rank-died",
        script="rank_died.py",
        args=("--how", "gone"),
        ranks=4,
        culprit=2,
        status="failed",
        step=(0, 100),
    ),
    Case(
        name="rank-uninterruptible",
        cause="rank-frozen",
        script="rank_uninterruptible.py",
        step=(0, 100),
        where="compress",
    ),
    Case(
        name="lone-validation-barrier",
        cause="rank-zero-only-collective",
        script="rank_zero_only_collective.py",
        culprit=0,
        step=(0, 79),
        where="validate",
    ),
    Case(
        name="lone-validation",
        cause="rank-zero-only-collective",
        script="rank_zero_only_validation.py",
        culprit=0,
        step=(0, 159),
        where="run",
    ),
    Case(
        name="lone-logging",
        cause="rank-zero-only-collective",
        script="rank_zero_only_logging.py",
        culprit=0,
        step=(0, 100),
        where="mean_loss",
    ),
    Case(
        name="lone-state-dict",
        cause="rank-zero-only-collective",
        script="rank_zero_only_state_dict.py",
        culprit=0,
        step=(0, 30),
        where="save",
    ),
    Case(
        name="mismatch-operation",
        cause="collective-mismatch",
        script="collective_mismatch.py",
        step=(0, 80),
        where="average",
    ),
    Case(
        name="mismatch-size",
        cause="collective-mismatch",
        script="collective_mismatch.py",
        args=("--kind", "size"),
        status="failed",
        step=(0, 80),
        where="gather_scores",
    ),
    Case(
        name="mismatch-dtype",
        cause="collective-mismatch",
        script="collective_mismatch.py",
        args=("--kind", "dtype"),
        launcher="plain",
        ranks=3,
        status="failed",
        step=(0, 80),
        where="gather_scores",
    ),
    Case(
        name="group-order",
        cause="group-order-cycle",
        script="group_order_cycle.py",
        culprits=everyone,
        step=(0, 80),
        where="reduce_metrics",
    ),
    Case(
        name="group-order-ring",
        cause="group-order-cycle",
        script="group_order_ring.py",
        ranks=4,
        min_ranks=3,
        culprit=None,
        culprits=everyone,
        step=(0, 80),
        where="main",
    ),
    Case(
        name="concurrent-collectives",
        cause="concurrent-collectives",
        script="concurrent_collectives.py",
        culprits=everyone,
        step=(0, 80),
        where="main",
    ),
    Case(
        name="send-send",
        cause="point-to-point-deadlock",
        script="point_to_point_deadlock.py",
        culprit=None,
        culprits=everyone,
        step=(0, 80),
        where="exchange_simply",
    ),
    Case(
        name="pipeline",
        cause="point-to-point-deadlock",
        script="pipeline_recv.py",
        ranks=3,
        culprit=0,
        step=(0, 30),
        where="forward",
    ),
    Case(
        name="accumulation-cadence",
        cause="gradient-sync-mismatch",
        script="gradient_sync_mismatch.py",
        ranks=3,
        culprits=odd_one_out,
        step=(0, 1),
        where="main",
    ),
    Case(
        name="checkpoint-slow",
        cause="slow-checkpoint",
        script="slow_checkpoint.py",
        culprit=0,
        status="waiting",
        step=(0, 80),
        where="save",
    ),
    Case(
        name="checkpoint-stuck",
        cause="slow-checkpoint",
        script="slow_checkpoint.py",
        args=("--storage", "stuck"),
        culprit=0,
        step=(0, 80),
        where="save",
    ),
    Case(
        name="partition",
        cause="network-partition",
        script="network_partition.py",
        launcher="spawn",
        culprits=nobody,
        process="other",
        where="main",
        needs=("root", "namespaces", "iproute2"),
        after=16.0,
    ),
    Case(
        name="signal-handler",
        cause="signal-handler-deadlock",
        script="signal_handler_deadlock.py",
        step=(0, 100),
        where="write",
    ),
    Case(
        name="gil-held-matching",
        cause="gil-held",
        script="gil_held.py",
        step=(0, 100),
        where="clean",
    ),
    Case(
        name="gil-held-reading",
        cause="gil-held",
        script="gil_held_native.py",
        launcher="plain",
        step=(0, 100),
        where="read_token",
    ),
)

DATA = (
    Case(
        name="worker-on-socket",
        cause="loader-worker-blocked",
        script="loader_worker_blocked.py",
        process="loader-worker",
        step=(0, 61),
        where="fetch",
    ),
    Case(
        name="worker-on-decoder",
        cause="loader-worker-blocked",
        script="loader_decoder_blocked.py",
        launcher="plain",
        process="loader-worker",
        step=(0, 61),
        where="__iter__",
        after=20.0,
    ),
    Case(
        name="fork-with-lock",
        cause="loader-fork-deadlock",
        script="loader_fork_deadlock.py",
        culprit=None,
        culprits=nobody,
        process="loader-worker",
        step=(0, 0),
        where="tokenize",
    ),
    Case(
        name="fork-with-openmp",
        cause="loader-fork-deadlock",
        script="loader_fork_openmp.py",
        culprit=None,
        culprits=nobody,
        process="loader-worker",
        step=(0, 0),
        where="__getitem__",
    ),
    Case(
        name="worker-killed",
        cause="loader-worker-died",
        script="loader_worker_died.py",
        process="loader-worker",
        status="failed",
        step=(0, None),
    ),
    Case(
        name="worker-killed-tolerated",
        cause="loader-worker-died",
        script="loader_worker_died.py",
        args=("--tolerant",),
        process="loader-worker",
        step=(0, None),
    ),
    Case(
        name="worker-stopped",
        cause="loader-worker-frozen",
        script="loader_worker_frozen.py",
        process="loader-worker",
        step=(0, None),
        where="__getitem__",
    ),
    Case(
        name="worker-stopped-files",
        cause="loader-worker-frozen",
        script="loader_worker_frozen.py",
        args=("--sharing", "file_system"),
        ranks=3,
        process="loader-worker",
        step=(0, 60),
        where="__getitem__",
    ),
    Case(
        name="descriptors",
        cause="file-descriptors-exhausted",
        script="file_descriptors_exhausted.py",
        status="failed",
        step=(0, None),
    ),
    Case(
        name="descriptors-tolerated",
        cause="file-descriptors-exhausted",
        script="file_descriptors_exhausted.py",
        args=("--tolerant",),
        step=(0, None),
        where="main",
    ),
    Case(
        name="shared-memory",
        cause="shared-memory-exhausted",
        script="shared_memory_exhausted.py",
        process="loader-worker",
        status="failed",
        step=(0, None),
        needs=("root", "namespaces"),
    ),
)

HEALTH = (
    Case(
        name="forecast",
        cause="uneven-forecast",
        script="uneven_forecast.py",
        culprit=None,
        culprits=all_but_last,
        status="warned",
    ),
    Case(
        name="full-copy",
        cause="sampler-full-copy",
        script="sampler_full_copy.py",
        culprit=None,
        culprits=everyone,
        status="warned",
    ),
    Case(
        name="same-order",
        cause="set-epoch-missing",
        script="set_epoch_missing.py",
        culprit=None,
        culprits=everyone,
        status="warned",
    ),
    Case(
        name="another-world",
        cause="sampler-world-mismatch",
        script="sampler_world_mismatch.py",
        culprit=None,
        culprits=everyone,
        status="warned",
    ),
    Case(
        name="slow-rank",
        cause="straggler",
        script="straggler.py",
        status="warned",
        after=30.0,
    ),
    Case(
        name="slow-data",
        cause="data-bound",
        script="data_bound.py",
        culprit=None,
        culprits=everyone,
        status="warned",
        after=30.0,
    ),
)

CASES: tuple[Case, ...] = (*START, *COLLECTIVES, *DATA, *EXIT, *HEALTH)
