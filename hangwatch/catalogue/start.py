"""What keeps a job from starting."""

from __future__ import annotations

from hangwatch.model import Stage

from .cause import Cause

START = (
    Cause(
        "rendezvous-missing-ranks",
        Stage.START,
        "Ranks never came",
        "init_process_group waits until WORLD_SIZE processes have registered; fewer came.",
        "start as many processes as WORLD_SIZE says: make nproc_per_node x nnodes (or nprocs of mp.spawn) equal to it",
        ("rendezvous-unreachable-master", "rank-died-before-init", "node-not-started"),
    ),
    Cause(
        "rendezvous-unreachable-master",
        Stage.START,
        "The master cannot be reached",
        "The ranks connect to MASTER_ADDR:MASTER_PORT, where no process answers.",
        "give every rank the same MASTER_ADDR and MASTER_PORT, an address that all nodes reach, and start rank 0",
        ("rendezvous-missing-ranks", "rendezvous-port-conflict"),
    ),
    Cause(
        "rendezvous-port-conflict",
        Stage.START,
        "Another program has the master's port",
        "MASTER_PORT is held by a process that does not belong to this job.",
        "take a free port: MASTER_PORT=0 is not enough, use torchrun --standalone or --rdzv-endpoint=HOST:FREE_PORT",
        ("rendezvous-unreachable-master",),
    ),
    Cause(
        "rendezvous-duplicate-rank",
        Stage.START,
        "Two processes claim one rank",
        "Two live processes have the same RANK in one job, often one is left from an earlier run.",
        "kill the stale process, or give every process its own RANK",
        ("rendezvous-missing-ranks",),
    ),
    Cause(
        "node-not-started",
        Stage.START,
        "Nodes have not joined",
        "torchrun waits in its rendezvous until --nnodes nodes have come; no worker is started before.",
        "start torchrun on the missing nodes with the same --rdzv-endpoint, --rdzv-id and --nnodes",
        ("rendezvous-missing-ranks",),
    ),
    Cause(
        "rank-died-before-init",
        Stage.START,
        "A rank died before it registered",
        "A process that was started ended before init_process_group; the others wait for it in the store.",
        "mend the error that ended it",
        ("rendezvous-missing-ranks",),
    ),
    Cause(
        "new-group-mismatch",
        Stage.START,
        "new_group was not called alike everywhere",
        "Every rank must call new_group for every group, in the same order, members or not.",
        "for ranks in all_groups: group = dist.new_group(ranks)  # on every rank, in one order, outside of any if",
        ("rendezvous-missing-ranks", "skipped-collective"),
    ),
    Cause(
        "stale-file-lock",
        Stage.START,
        "A lock file was left behind",
        "The rank waits for a lock file whose owner is dead.",
        "delete the lock file",
        ("user-code-blocked", "compile-skew"),
    ),
)
