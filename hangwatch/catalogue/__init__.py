"""The catalogue's words: what each cause is called, what it is, and how it is mended."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import Stage

DOCS = "docs/causes.md"


@dataclass(frozen=True)
class Cause:
    """One entry of the catalogue. `look_alikes` are the causes that a person would suspect first."""

    id: str
    stage: Stage | None  # None for health warnings
    title: str
    explanation: str
    fix: str
    look_alikes: tuple[str, ...] = ()

    @property
    def docs(self) -> str:
        """Where the documentation explains it."""
        return f"{DOCS}#{self.id}"


START, STEP, DATA, DEVICE, EXIT = Stage.START, Stage.STEP, Stage.DATA, Stage.DEVICE, Stage.EXIT

CATALOGUE: tuple[Cause, ...] = (
    # ------------------------------------------------------------------ start
    Cause(
        "rendezvous-missing-ranks",
        START,
        "Ranks never came",
        "init_process_group waits until WORLD_SIZE processes have registered; fewer came.",
        "start as many processes as WORLD_SIZE says: make nproc_per_node x nnodes (or nprocs of mp.spawn) equal to it",
        ("rendezvous-unreachable-master", "rank-died-before-init", "node-not-started"),
    ),
    Cause(
        "rendezvous-unreachable-master",
        START,
        "The master cannot be reached",
        "The ranks connect to MASTER_ADDR:MASTER_PORT, where nobody answers.",
        "give every rank the same MASTER_ADDR and MASTER_PORT, an address that all nodes reach, and start rank 0",
        ("rendezvous-missing-ranks", "rendezvous-port-conflict"),
    ),
    Cause(
        "rendezvous-port-conflict",
        START,
        "Another program has the master's port",
        "MASTER_PORT is held by a process that does not belong to this job.",
        "take a free port: MASTER_PORT=0 is not enough, use torchrun --standalone or --rdzv-endpoint=HOST:FREE_PORT",
        ("rendezvous-unreachable-master",),
    ),
    Cause(
        "rendezvous-duplicate-rank",
        START,
        "Two processes claim one rank",
        "Two live processes have the same RANK in one job, often one is left from an earlier run.",
        "kill the stale process, or give every process its own RANK",
        ("rendezvous-missing-ranks",),
    ),
    Cause(
        "node-not-started",
        START,
        "Nodes have not joined",
        "torchrun waits in its rendezvous until --nnodes nodes have come; no worker is started before.",
        "start torchrun on the missing nodes with the same --rdzv-endpoint, --rdzv-id and --nnodes",
        ("rendezvous-missing-ranks",),
    ),
    Cause(
        "rank-died-before-init",
        START,
        "A rank died before it registered",
        "A process that was started ended before init_process_group; the others wait for it in the store.",
        "mend the error that ended it",
        ("rendezvous-missing-ranks",),
    ),
    Cause(
        "new-group-mismatch",
        START,
        "new_group was not called alike everywhere",
        "Every rank must call new_group for every group, in the same order, members or not.",
        "for ranks in all_groups: group = dist.new_group(ranks)  # on every rank, in one order, outside of any if",
        ("rendezvous-missing-ranks", "skipped-collective"),
    ),
    Cause(
        "stale-file-lock",
        START,
        "A lock file was left behind",
        "The rank waits for a lock file whose owner is dead.",
        "delete the lock file",
        ("user-code-blocked", "compile-skew"),
    ),
    # ------------------------------------------------------------------ collectives
    Cause(
        "uneven-steps",
        STEP,
        "Ranks ran out of data at different batches",
        "One rank has fewer batches in an epoch than the others, who wait for its share of the next gradients.",
        "give every rank the same number of batches: DistributedSampler(..., drop_last=True), or pad the last one,"
        " or wrap the loop in `with Join([model]):`",
        ("early-exit", "skipped-collective", "rank-zero-only-collective"),
    ),
    Cause(
        "early-exit",
        STEP,
        "One rank left the training loop early",
        "A rank left the loop by itself (early stopping, break, an exit) while the others go on.",
        "decide together: stop = torch.tensor(float(stop)); dist.all_reduce(stop, op=dist.ReduceOp.MAX);"
        " if stop.item(): break",
        ("uneven-steps", "exception-on-one-rank", "skipped-collective"),
    ),
    Cause(
        "skipped-collective",
        STEP,
        "One rank skipped a collective",
        "In one step a rank issued fewer collectives than the others, so that all later ones are mispaired.",
        "never skip on one rank alone: let all vote first, e.g. skip = torch.tensor(float(bad));"
        " dist.all_reduce(skip, op=dist.ReduceOp.MAX); if skip.item(): continue",
        ("uneven-steps", "collective-mismatch", "rank-zero-only-collective"),
    ),
    Cause(
        "exception-on-one-rank",
        STEP,
        "An exception on one rank",
        "A rank met an error and no longer takes part, while the others wait for it.",
        "mend the error; keep collectives out of finally and except blocks, and let the error end the process",
        ("rank-died", "early-exit"),
    ),
    Cause(
        "rank-died",
        STEP,
        "A rank died",
        "A process of the job is gone; whoever waits for it waits for ever or fails.",
        "find out why it died; start with torchrun, which ends the others when one dies",
        ("exception-on-one-rank", "rank-frozen"),
    ),
    Cause(
        "rank-frozen",
        STEP,
        "A process is frozen",
        "The system does not let the process run: it is stopped, or it sleeps uninterruptibly in the kernel.",
        "resume it (kill -CONT PID), or replace the node",
        ("rank-died", "user-code-blocked"),
    ),
    Cause(
        "rank-zero-only-collective",
        STEP,
        "A collective on one rank only",
        "One rank called a collective that the others never call: validation, logging or saving behind a rank check.",
        "call collectives on every rank; in rank-guarded code use model.module instead of the DDP wrapper",
        ("skipped-collective", "uneven-steps"),
    ),
    Cause(
        "collective-mismatch",
        STEP,
        "Ranks called different collectives",
        "The ranks met in one collective with different operations, types or sizes.",
        "make every rank call the same operation with the same dtype and size at this point; pad to the largest size",
        ("skipped-collective", "rank-died"),
    ),
    Cause(
        "group-order-cycle",
        STEP,
        "Groups used in opposite order",
        "Ranks that share several process groups called their collectives in different orders, and wait in a circle.",
        "use the groups in the same order on every rank",
        ("collective-mismatch", "skipped-collective"),
    ),
    Cause(
        "concurrent-collectives",
        STEP,
        "Two threads use one process group",
        "Two threads of a rank call collectives of the same group, so that their order differs from rank to rank.",
        "give the thread a group of its own: background = dist.new_group(backend='gloo')",
        ("group-order-cycle", "collective-mismatch"),
    ),
    Cause(
        "point-to-point-deadlock",
        STEP,
        "Sends and receives do not match",
        "Every rank of a circle sends or receives, and the other side is not in the matching call.",
        "order the calls (even ranks send first, odd ones receive first), or use dist.batch_isend_irecv",
        ("group-order-cycle", "rank-died"),
    ),
    Cause(
        "gradient-sync-mismatch",
        STEP,
        "Gradients are synchronised at different intervals",
        "The ranks accumulate gradients over different numbers of batches, so their synchronisations do not meet.",
        "use the same accumulation steps on every rank, and call no_sync() by a rule that does not depend on the rank",
        ("skipped-collective", "uneven-steps"),
    ),
    Cause(
        "slow-checkpoint",
        STEP,
        "A checkpoint is being written",
        "The others wait for a rank that reads or writes a checkpoint.",
        "write to a faster disk, or in the background with torch.distributed.checkpoint.async_save",
        ("user-code-blocked", "rank-zero-only-collective"),
    ),
    Cause(
        "compile-skew",
        STEP,
        "One rank still compiles",
        "A rank compiles while the others wait for it in a collective.",
        "let it finish; share a warm cache (TORCHINDUCTOR_CACHE_DIR) and mark dynamic shapes",
        ("user-code-blocked",),
    ),
    Cause(
        "signal-handler-deadlock",
        STEP,
        "A signal handler waits for what it interrupted",
        "A signal handler waits for a lock that the interrupted code below it holds.",
        "only set a flag in the handler and look at it in the loop",
        ("user-code-blocked",),
    ),
    Cause(
        "gil-held",
        STEP,
        "A C call holds the interpreter lock",
        "The main thread is in a C function that does not release Python's lock, so that no thread of it runs.",
        "release the lock in the extension (py::gil_scoped_release), or call it in another process",
        ("user-code-blocked", "rank-frozen"),
    ),
    Cause(
        "node-lost",
        STEP,
        "A node has fallen silent",
        "Nothing is heard of a node's watchdog any more, and everybody else waits for its ranks or has lost them.",
        "look at that machine (power, kernel log, network), and start the job again without it if need be",
        ("rank-died", "rank-frozen", "network-partition"),
    ),
    Cause(
        "network-partition",
        STEP,
        "The network between two hosts does not deliver",
        "All ranks are in the same operation, and bytes between two hosts stay unacknowledged.",
        "look at the link between the two hosts (firewall, MTU, interface: GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)",
        ("device-stall", "interconnect-stall"),
    ),
    Cause(
        "user-code-blocked",
        STEP,
        "One rank is stuck in its own code",
        "A rank stands in code of the program, outside of any collective, and all others wait for it.",
        "give what it waits for a timeout, or do it outside of the training loop",
        ("slow-checkpoint", "gil-held", "rank-frozen"),
    ),
    # ------------------------------------------------------------------ data
    Cause(
        "loader-worker-blocked",
        DATA,
        "A loader worker is stuck in a sample",
        "The rank waits for a batch; one worker stands in __getitem__ or collate and does not return.",
        "mend that line or give it a timeout; DataLoader(timeout=60) turns this into an error",
        ("loader-fork-deadlock", "loader-worker-frozen", "loader-worker-died"),
    ),
    Cause(
        "loader-fork-deadlock",
        DATA,
        "Loader workers inherited a held lock",
        "The workers wait for a lock or a thread pool whose owner did not survive the fork.",
        "DataLoader(multiprocessing_context='forkserver'), or torch.set_num_threads(1), cv2.setNumThreads(0)",
        ("loader-worker-blocked",),
    ),
    Cause(
        "loader-worker-died",
        DATA,
        "A loader worker died",
        "A worker process is gone and the rank waits for its batch.",
        "look for out-of-memory kills; give containers more shared memory (--shm-size); use fewer workers",
        ("shared-memory-exhausted", "loader-worker-frozen"),
    ),
    Cause(
        "loader-worker-frozen",
        DATA,
        "A loader worker is frozen",
        "A worker process is stopped or sleeps uninterruptibly in the kernel.",
        "resume it (kill -CONT PID), or look at the file system that it waits for",
        ("loader-worker-blocked", "loader-worker-died"),
    ),
    Cause(
        "file-descriptors-exhausted",
        DATA,
        "No file descriptors are left",
        "The process is at its limit of open files, so that tensors cannot be passed between processes.",
        "ulimit -n 65536 before the start (better than torch.multiprocessing.set_sharing_strategy('file_system'))",
        ("shared-memory-exhausted", "loader-worker-died"),
    ),
    Cause(
        "shared-memory-exhausted",
        DATA,
        "/dev/shm is full",
        "Workers pass batches through /dev/shm, which has no room left.",
        "docker run --shm-size=8g (or --ipc=host); in Kubernetes mount an emptyDir with medium: Memory on /dev/shm",
        ("loader-worker-died", "file-descriptors-exhausted"),
    ),
    # ------------------------------------------------------------------ device
    Cause(
        "device-stall",
        DEVICE,
        "A device does not finish",
        "The ranks wait for their devices, and one device's work does not complete.",
        "look at that GPU (nvidia-smi, dmesg for Xid); run with CUDA_LAUNCH_BLOCKING=1 to find the kernel",
        ("gpu-fault", "interconnect-stall"),
    ),
    Cause(
        "gpu-fault",
        DEVICE,
        "A GPU has failed",
        "The driver reports an error of a GPU.",
        "drain the node and reset or replace the GPU",
        ("device-stall",),
    ),
    Cause(
        "interconnect-stall",
        DEVICE,
        "The GPUs do not reach each other",
        "Every GPU has started the collective and none completes it.",
        "try NCCL_P2P_DISABLE=1; if that helps, switch off ACS or fix the topology",
        ("device-stall", "network-partition"),
    ),
    Cause(
        "duplicate-gpu",
        DEVICE,
        "Two ranks share one GPU",
        "Two ranks of one communicator are bound to the same device.",
        "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group",
        (),
    ),
    # ------------------------------------------------------------------ exit
    Cause(
        "exit-non-daemon-thread",
        EXIT,
        "A thread keeps the process alive",
        "The main program is over; the interpreter waits for a thread that is no daemon.",
        "threading.Thread(..., daemon=True), or tell it to stop and join it before the end",
        ("exit-child-process", "exit-queue-feeder"),
    ),
    Cause(
        "exit-child-process",
        EXIT,
        "A child process keeps the process alive",
        "The main program is over; multiprocessing waits for a child that still runs.",
        "process.terminate(); process.join() before the end, or Process(..., daemon=True)",
        ("exit-non-daemon-thread", "exit-queue-feeder"),
    ),
    Cause(
        "exit-queue-feeder",
        EXIT,
        "A queue that nobody empties keeps the process alive",
        "A multiprocessing queue still holds data, and its feeder thread waits for a reader.",
        "read the queue until it is empty, or queue.cancel_join_thread() if the data may be lost",
        ("exit-non-daemon-thread", "exit-child-process"),
    ),
    Cause(
        "exit-atexit-handler",
        EXIT,
        "An exit handler does not return",
        "The main program is over; a function registered with atexit still runs.",
        "give what it waits for a timeout",
        ("exit-non-daemon-thread", "exit-destructor"),
    ),
    Cause(
        "exit-destructor",
        EXIT,
        "A destructor does not return",
        "The interpreter is being taken down, and an object's destructor still runs.",
        "close the object before the end instead of leaving it to __del__",
        ("exit-atexit-handler",),
    ),
    Cause(
        "exit-orphan-holds-pipe",
        EXIT,
        "An orphan holds the output open",
        "Training is over, but a process that it started still holds its output, and the reader waits for its end.",
        "end that process; do not let it inherit stdout and stderr",
        ("exit-launcher-order",),
    ),
    Cause(
        "exit-destroy-asymmetric",
        EXIT,
        "Some ranks left while others still communicate",
        "Some ranks have destroyed the process group while others still wait in a collective of it.",
        "end with dist.barrier() before dist.destroy_process_group() on every rank, after the last collective",
        ("uneven-steps", "early-exit"),
    ),
    Cause(
        "exit-launcher-order",
        EXIT,
        "The launcher waits for the wrong child",
        "The launcher waits for one rank while another one is dead already.",
        "poll all children and end the others when one fails, or use torchrun",
        ("rank-died",),
    ),
    Cause(
        "output-pipe-full",
        EXIT,
        "Nobody reads the output",
        "A rank writes to a pipe that is full because its reader does not read.",
        "read the pipe in the launcher all the time, or let the ranks write to files",
        ("user-code-blocked",),
    ),
    # ------------------------------------------------------------------ nobody knows
    Cause(
        "undetermined",
        None,
        "The cause is not known",
        "Nothing moves, and the evidence fits no known cause, or more than one.",
        "read the stacks below; if you find out, please report it, so that the next one is told",
        (),
    ),
    # ------------------------------------------------------------------ health
    Cause("uneven-forecast", None, "It will hang at the end of the epoch",
          "The ranks' loaders have different lengths.",
          "give every rank the same number of batches: DistributedSampler(..., drop_last=True)"),
    Cause("plans-differ", None, "The ranks do not plan the same",
          "World size, groups, model or sampler of the ranks differ where they must agree.",
          "make groups, model and sampler with the same arguments on all ranks, in the same order"),
    Cause("sampler-full-copy", None, "Every rank draws all the data",
          "The ranks draw the same indices, so that each epoch is made several times over.",
          "use DistributedSampler, or split the indices by rank"),
    Cause("set-epoch-missing", None, "The same order in every epoch",
          "The sampler shuffles with the same seed in every epoch.",
          "sampler.set_epoch(epoch) at the start of every epoch"),
    Cause("sampler-world-mismatch", None, "The sampler believes in another world",
          "The sampler's num_replicas or rank differs from the process group's.",
          "make the sampler after init_process_group, without num_replicas and rank"),
    Cause("gpu-memory-imbalance", None, "One GPU fills up",
          "A process holds memory on a GPU that is not its own.",
          "torch.cuda.set_device(local_rank); torch.load(..., map_location='cpu')"),
    Cause("gpu-leftover-process", None, "A process of another run holds a GPU",
          "A process that is no part of the job holds memory on one of its GPUs, and nobody waits for it any more.",
          "look at it (ps -fp PID) and end it (kill PID); end whole process groups when a launcher goes"),
    Cause("straggler", None, "One rank is slow",
          "A rank needs longer than the others until its first gradients.",
          "look at that rank's data, processor and GPU"),
    Cause("data-bound", None, "The ranks wait for data",
          "Much of each step is spent waiting for the loader.",
          "more workers, pin_memory, or less work per sample"),
    Cause("nccl-environment", None, "Settings of NCCL need a look",
          "Interface, timeout or debug settings differ between ranks, or are known to hurt.",
          "set the same NCCL_* variables on every node"),
)  # fmt: skip

BY_ID = {cause.id: cause for cause in CATALOGUE}


def cause(identifier: str) -> Cause:
    """The catalogue's entry. Raises KeyError for an id that is not in it."""
    return BY_ID[identifier]
