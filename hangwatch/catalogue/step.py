"""What stops a step: calls, ranks, code."""

from __future__ import annotations

from hangwatch.model import Stage

from .cause import Cause

# Where a rank has caught an error of its own, and others have not met it.
VOTE_AFTER_ERROR = "mend the error; let all ranks vote whether to skip a step before one of them does"
# Where a loop of a rank's has another turn after an error.
TRY_AGAIN_TOGETHER = "keep collectives out of what is tried again after an error, or let all ranks try again together"
# A call in a function that remembers its results.
OUT_OF_CACHES = (
    "make no collective in a function whose results are remembered: it is left out where a rank has asked for the same"
    " before"
)
# A call in `__del__`.
OUT_OF_DESTRUCTORS = (
    "make no collective in `__del__`: it runs when the last reference goes, which may be another moment on each rank;"
    " close the object on all ranks at one place"
)

STEP = (
    Cause(
        "uneven-steps",
        Stage.STEP,
        "Ranks ran out of data at different batches",
        "One rank has fewer batches in an epoch than the others, which wait for its share of the next gradients.",
        "give every rank the same number of batches: DistributedSampler(..., drop_last=True), or pad the last one,"
        " or wrap the loop in `with Join([model]):`",
        ("early-exit", "skipped-collective", "rank-zero-only-collective"),
    ),
    Cause(
        "early-exit",
        Stage.STEP,
        "One rank left the training loop early",
        "A rank left the loop by itself (early stopping, break, an exit) while the others go on.",
        "decide together: stop = torch.tensor(float(stop)); dist.all_reduce(stop, op=dist.ReduceOp.MAX);"
        " if stop.item(): break",
        ("uneven-steps", "exception-on-one-rank", "skipped-collective"),
    ),
    Cause(
        "skipped-collective",
        Stage.STEP,
        "One rank skipped a collective",
        "In one step a rank issued fewer collectives than the others, so that all later ones are mispaired.",
        "never skip on one rank alone: let all vote first, e.g. skip = torch.tensor(float(bad));"
        " dist.all_reduce(skip, op=dist.ReduceOp.MAX); if skip.item(): continue",
        ("uneven-steps", "collective-mismatch", "rank-zero-only-collective"),
        explains=("exit-destroy-asymmetric",),
        fix_of_condition="make that call on every rank, or let all ranks agree first whether to make it, e.g. by an"
        " all_reduce of the condition with op=dist.ReduceOp.MAX",
        fix_of_error=VOTE_AFTER_ERROR,
    ),
    Cause(
        "data-dependent-graph",
        Stage.STEP,
        "The graph differs by data on one rank",
        "A batch left parameters or whole modules out of the graph on one rank, so that their gradients or gathers, for"
        " which the others wait, never happened.",
        "keep every parameter in the graph: loss = loss + 0.0 * sum(p.sum() for p in model.parameters()), or"
        " DistributedDataParallel(..., find_unused_parameters=True)",
        ("skipped-collective", "exception-on-one-rank", "collective-mismatch"),
    ),
    Cause(
        "rank-local-decision",
        Stage.STEP,
        "A value of one rank decided about a collective",
        "A condition on a value that differs by rank (a loss, a metric, a clock) guards a collective call, and came out"
        " differently.",
        "reduce or broadcast the value before the condition: value = torch.tensor(float(value));"
        " dist.all_reduce(value, op=dist.ReduceOp.AVG), or dist.broadcast(value, src=0)",
        ("rank-zero-only-collective", "skipped-collective", "early-exit"),
    ),
    Cause(
        "exception-on-one-rank",
        Stage.STEP,
        "An exception on one rank",
        "A rank raised an error and no longer takes part, while the others wait for it.",
        "mend the error; keep collectives out of finally and except blocks, and let the error end the process",
        ("rank-died", "early-exit"),
    ),
    Cause(
        "rank-died",
        Stage.STEP,
        "A rank died",
        "A process of the job is gone; the ranks that wait for it wait for ever or fail.",
        "find out why it died; start with torchrun, which ends the others when one dies",
        ("exception-on-one-rank", "rank-frozen"),
    ),
    Cause(
        "rank-frozen",
        Stage.STEP,
        "A process is frozen",
        "The system does not let the process run: it is stopped, or it sleeps uninterruptibly in the kernel.",
        "resume it (kill -CONT PID), or replace the node",
        ("rank-died", "user-code-blocked"),
    ),
    Cause(
        "rank-zero-only-collective",
        Stage.STEP,
        "A collective on one rank only",
        "One rank called a collective that the others never call: validation, logging or saving behind a rank check.",
        "make that call on every rank: take it out of the code that only some ranks come to",
        ("skipped-collective", "uneven-steps"),
        explains=("exit-destroy-asymmetric",),
    ),
    Cause(
        "collective-mismatch",
        Stage.STEP,
        "Ranks called different collectives",
        "The ranks issued one collective with different operations, types or sizes.",
        "make every rank call the same operation with the same dtype and size at this point; pad to the largest size",
        ("skipped-collective", "rank-died"),
    ),
    Cause(
        "group-order-cycle",
        Stage.STEP,
        "Groups used in opposite order",
        "Ranks that share several process groups called their collectives in different orders, and wait in a circle.",
        "use the groups in the same order on every rank",
        ("collective-mismatch", "skipped-collective"),
    ),
    Cause(
        "concurrent-collectives",
        Stage.STEP,
        "Two threads call collectives",
        "Two threads of a rank call collectives of one group, or in turns by a lock, and their order differs by rank.",
        "give the thread a group of its own: background = dist.new_group(backend='gloo')",
        ("group-order-cycle", "collective-mismatch"),
    ),
    Cause(
        "point-to-point-deadlock",
        Stage.STEP,
        "Sends and receives do not match",
        "Every rank of a circle sends or receives, and the other side is not in the matching call.",
        "order the calls (even ranks send first, odd ones receive first), or use dist.batch_isend_irecv",
        ("group-order-cycle", "rank-died"),
    ),
    Cause(
        "gradient-sync-mismatch",
        Stage.STEP,
        "Gradients are synchronised at different intervals",
        "The ranks accumulate gradients over different numbers of batches, so their synchronisations are mispaired.",
        "use the same accumulation steps on every rank, and call no_sync() by a rule that does not depend on the rank",
        ("skipped-collective", "uneven-steps"),
    ),
    Cause(
        "slow-checkpoint",
        Stage.STEP,
        "A checkpoint is being written",
        "The others wait for a rank that reads or writes a checkpoint.",
        "write to a faster disk, or in the background with torch.distributed.checkpoint.async_save",
        ("user-code-blocked", "rank-zero-only-collective"),
        explains=("uneven-steps", "early-exit", "skipped-collective"),
    ),
    Cause(
        "compile-skew",
        Stage.STEP,
        "One rank still compiles",
        "A rank compiles while the others wait for it in a collective.",
        "let it finish; share a warm cache (TORCHINDUCTOR_CACHE_DIR) and mark dynamic shapes",
        ("user-code-blocked",),
    ),
    Cause(
        "signal-handler-deadlock",
        Stage.STEP,
        "A signal handler waits for what it interrupted",
        "A signal handler waits for a lock that the interrupted code below it holds.",
        "only set a flag in the handler and look at it in the loop",
        ("user-code-blocked",),
    ),
    Cause(
        "gil-held",
        Stage.STEP,
        "A C call holds the interpreter lock",
        "The main thread is in a C function that does not release Python's lock, so that no thread of it runs.",
        "release the lock in the extension (py::gil_scoped_release), or call it in another process",
        ("user-code-blocked", "rank-frozen"),
    ),
    Cause(
        "node-lost",
        Stage.STEP,
        "A node has fallen silent",
        "A node's watchdog is silent, and all other ranks wait for its ranks or have lost the connection to them.",
        "look at that machine (power, kernel log, network), and start the job again without it if need be",
        ("rank-died", "rank-frozen", "network-partition"),
    ),
    Cause(
        "network-partition",
        Stage.STEP,
        "The network between two hosts does not deliver",
        "All ranks are in the same operation, and bytes between two hosts stay unacknowledged.",
        "look at the link between the two hosts (firewall, MTU, interface: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)",
        ("device-stall", "interconnect-stall"),
    ),
    Cause(
        "lock-held-by-process",
        Stage.STEP,
        "A rank waits for a lock that another process holds",
        "A rank, or a process of it, waits for a file lock or a database, and a living process holds it.",
        "give the lock a timeout, and let go of it before anything that waits for other ranks",
        ("stale-file-lock", "user-code-blocked", "fork-deadlock"),
    ),
    Cause(
        "fork-deadlock",
        Stage.STEP,
        "A forked child inherited a held lock",
        "A child made by fork waits for a lock or a thread pool whose threads were not copied; its rank waits for it.",
        "multiprocessing.get_context('spawn') or 'forkserver', or torch.set_num_threads(1) before it, or make the pool"
        " before threads and torch's own pool are used",
        ("loader-fork-deadlock", "lock-held-by-process", "user-code-blocked"),
    ),
    Cause(
        "user-code-blocked",
        Stage.STEP,
        "One rank is stuck in its own code",
        "A rank stands in code of the program, outside of any collective, and all others wait for it.",
        "give what it waits for a timeout, or do it outside of the training loop",
        ("slow-checkpoint", "lock-held-by-process", "fork-deadlock", "gil-held", "rank-frozen"),
    ),
)
