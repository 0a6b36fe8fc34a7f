"""What a thread is doing: the words for it. `hangwatch.stacks.classify` tells it from frames."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hangwatch.model import Frame, LoopFacts

# What DDP broadcasts by itself in forward, from the first member: buffers, and in the second step its buckets' order.
IN_DDPS_FORWARD = ("buffers", "buckets")
# What the user called, where DDP's C++ code issues the operation; "" where nothing tells which one it is.
CALLED = {
    "gradients": "backward",
    **dict.fromkeys(IN_DDPS_FORWARD, "the model's forward"),
    "": "a collective",
}
POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


class Doing(StrEnum):
    """In what a thread stands, by its innermost frames."""

    COLLECTIVE = "collective"  # a collective or point-to-point call; `op` says which
    BACKWARD = "backward"  # torch's backward pass: computes, or waits for gradient collectives
    WORK_WAIT = "work-wait"  # an asynchronous collective's wait()
    MEETING = "meeting"  # a call of a framework's that waits for all workers, by other means than a process group
    REMOTE_CALL = "remote-call"  # waits for the answer of a function that another rank runs (torch's RPC), or a Future
    RENDEZVOUS = "rendezvous"  # the store, before or while groups are made
    NEW_GROUP = "new-group"  # making a process group
    DESTROY = "destroy"  # destroy_process_group
    DEVICE = "device"  # waits for the accelerator
    LOADER = "loader"  # waits for a batch from loader workers
    CHECKPOINT = "checkpoint"  # reads or writes tensors
    COMPILE = "compile"  # dynamo, inductor, triton
    FILE_LOCK = "file-lock"
    PIPE = "pipe"  # writes to a pipe or a file object
    JOIN_THREADS = "join-threads"  # the interpreter waits for non-daemon threads
    JOIN_CHILD = "join-child"  # waits for a child process
    QUEUE_FEEDER = "queue-feeder"  # waits for a multiprocessing queue to be drained
    SOCKET = "socket"
    EVENTS = "events"  # asyncio's event loop, none of whose tasks can run
    LOCK = "lock"  # a lock, condition, event or queue of Python
    SLEEP = "sleep"
    CODE = "code"  # runs, or stands in something that frames do not show
    NOTHING = "nothing"  # no frames at all


COLLECTIVE_WAITS = frozenset({Doing.COLLECTIVE, Doing.BACKWARD, Doing.WORK_WAIT, Doing.MEETING, Doing.REMOTE_CALL})
# No record tells which ranks have made such a call, or are to answer it.
UNRECORDED = frozenset({Doing.MEETING, Doing.REMOTE_CALL})


class Within(StrEnum):
    """What surrounds the innermost frames."""

    BACKWARD = "backward"
    FORWARD = "forward"
    OPTIMIZER = "optimizer"
    LOADER = "loader"  # a batch is fetched in this very thread
    CHECKPOINT = "checkpoint"
    COMPILE = "compile"
    RENDEZVOUS = "rendezvous"
    NEW_GROUP = "new-group"
    DESTROY = "destroy"
    BUFFERS = "buffers"  # DDP's forward synchronises buffers
    SHARDED = "sharded"  # FSDP
    SHUTDOWN = "shutdown"  # threading._shutdown
    MULTIPROCESSING_EXIT = "multiprocessing-exit"
    ATEXIT = "atexit"  # no frame of a main module below
    DESTRUCTOR = "destructor"
    EXIT_BLOCK = "exit-block"  # __exit__ of a with statement
    IMPORT = "import"


@dataclass(frozen=True)
class Activity:
    """What one thread is doing.

    `op` is torch's operation for collectives ("all_reduce", "send", "gradients", "buffers", "buckets"), `call` what the
    user called ("all_gather_object"). `where` is the user's innermost line, `frame` the frame that told `doing`.
    `exact` means that the thread waits for the very call that it issued last, not for some earlier one.
    """

    doing: Doing
    op: str = ""
    call: str = ""
    where: Frame | None = None
    frame: Frame | None = None
    within: frozenset[Within] = frozenset()
    block: str = ""  # "except", "finally" or "with" around the user's line, where the source could be read
    handler: str = ""  # a signal handler that stands above what it interrupted, where the source could be read
    in_loop: bool | None = None  # one of the user's lines stands in a loop, where the source could be read
    loop: LoopFacts | None = None
    guard: str = ""  # the condition under which it came here, see hangwatch.source.guards
    thread: str = ""
    thread_id: int = 0
    main: bool = False
    exact: bool = False
    native: bool = False  # a native frame confirms the wait
    spins: bool = False  # a native frame shows that it waits for its device, which takes a whole processor
    joins: bool = False  # a native frame shows that it makes a communicator with all members, which takes one, too
    launches: bool = (
        False  # a native frame shows a call of the driver that may wait for the device, and mostly does not
    )

    @property
    def called(self) -> str:
        """What the user called, in words: "backward" where DDP's C++ code reduces gradients."""
        return CALLED.get(self.call or self.op, self.call or self.op)

    @property
    def in_collective(self) -> bool:
        return self.doing in COLLECTIVE_WAITS
