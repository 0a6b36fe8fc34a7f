"""What a thread is doing, told from its frames alone.

The frames between the innermost one and the user's own innermost line say in *what* the thread stands (a collective, a
queue, a lock); the frames further out say *within what* that happens (a backward pass, a checkpoint, an exit handler).
Function names are compared without their class, because py-spy gives qualified names on some Python versions only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from .records import Frame, LoopFacts, ThreadStack


class Doing(StrEnum):
    """In what a thread stands, by its innermost frames."""

    COLLECTIVE = "collective"  # a collective or point-to-point call; `op` says which
    BACKWARD = "backward"  # torch's backward pass: computes, or waits for gradient collectives
    WORK_WAIT = "work-wait"  # an asynchronous collective's wait()
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
    LOCK = "lock"  # a lock, condition, event or queue of Python
    SLEEP = "sleep"
    CODE = "code"  # runs, or stands in something that frames do not show
    NOTHING = "nothing"  # no frames at all


COLLECTIVE_WAITS = frozenset({Doing.COLLECTIVE, Doing.BACKWARD, Doing.WORK_WAIT})


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

    `op` is torch's operation for collectives ("all_reduce", "send", "gradients", "buffers"), `call` what the user
    called ("all_gather_object"). `where` is the user's innermost line, `frame` the frame that told `doing`.
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
    guard: str = ""  # the condition under which it came here, see hangwatch.guard_source
    thread: str = ""
    thread_id: int = 0
    main: bool = False
    exact: bool = False
    native: bool = False  # a native frame confirms the wait

    @property
    def in_collective(self) -> bool:
        return self.doing in COLLECTIVE_WAITS


OPS = frozenset(
    {
        *("all_reduce", "all_reduce_coalesced", "reduce_scatter", "reduce_scatter_tensor", "reduce_scatter_single"),
        *("all_gather", "all_gather_into_tensor", "all_gather_coalesced", "all_gather_single", "_all_gather_base"),
        *("_reduce_scatter_base", "broadcast", "broadcast_coalesced", "reduce", "gather", "scatter", "all_to_all"),
        *("all_to_all_single", "barrier", "monitored_barrier", "send", "recv", "isend", "irecv", "batch_isend_irecv"),
    }
)
OBJECT_CALLS = frozenset(
    {
        *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
        *("send_object_list", "recv_object_list"),
    }
)
CALLS = OPS | OBJECT_CALLS
POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
_SAME_OP = {
    "all_gather_single": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "monitored_barrier": "barrier",
}

_STDLIB = re.compile(r"/lib(64)?/python\d[.\d]*t?/(?!(site|dist)-packages/)|/python\d+t?\.zip/")
_PACKAGES = re.compile(r"/(site|dist)-packages/")
_TORCH = re.compile(
    r"/(site|dist)-packages/(torch|functorch|torchgen)/"
    r"|/torch/(distributed|nn|utils|autograd|optim|cuda|multiprocessing|amp|fx|jit|library|_[a-z]\w*)/"
    r"|/torch/(serialization|_tensor|_ops|_compile|storage|functional|__init__|random)\.py$"
)
_OURS = re.compile(r"/hangwatch_agent/|/hangwatch/(?!gallery/)[\w/]+\.py$")


@lru_cache(maxsize=8192)
def origin(file: str) -> str:
    """Where a source file comes from: "user", "package", "torch", "stdlib", "hangwatch" or "" (no file)."""
    if file.startswith("<") and not re.match(r"<(ipython-input|stdin)", file):
        return ""
    if _TORCH.search(file):
        return "torch"
    if _OURS.search(file):
        return "hangwatch"
    if _STDLIB.search(file):
        return "stdlib"
    if _PACKAGES.search(file):
        return "package"
    return "user" if file.endswith((".py", ".ipynb", ".pyx")) or file.startswith("<") else ""


@lru_cache(maxsize=8192)
def name_of(function: str) -> str:
    """The bare function name of `Class.method` or `outer.<locals>.inner`."""
    return function if function.startswith("<") else function.rpartition(".")[2]


def user_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The user's innermost frame; a third-party package's where there is none outside packages."""
    fallback = None
    for frame in frames:
        if frame.native:
            continue
        kind = origin(frame.file)
        if kind == "user":
            return frame
        if kind == "package" and fallback is None:
            fallback = frame
    return fallback


def activity(stack: ThreadStack) -> Activity:
    """What the thread of `stack` is doing."""
    told = _told(stack.frames, stack.main)
    return Activity(
        doing=told.doing,
        op=told.op,
        call=told.call,
        where=told.where,
        frame=told.frame,
        within=told.within,
        block=stack.block or ("with" if Within.EXIT_BLOCK in told.within else ""),
        in_loop=stack.in_loop,
        loop=stack.loop,
        guard=stack.guard,
        handler=stack.handler,
        thread=stack.name,
        thread_id=stack.thread_id,
        main=stack.main,
        exact=told.exact,
        native=told.native,
    )


@lru_cache(maxsize=4096)  # thousands of ranks stand in a handful of different stacks
def _told(frames: tuple[Frame, ...], main: bool) -> Activity:
    if not frames:
        return Activity(Doing.NOTHING)
    where = user_frame(frames)
    inner = frames[: frames.index(where)] if where is not None else frames
    doing, op, frame = _standing(inner)
    within = frozenset(_surroundings(frames, main))
    native = any(frame.native and _NATIVE_WAIT.search(frame.function) for frame in inner)
    if doing is Doing.CODE:
        doing = _natively(inner)
    return Activity(
        doing=doing,
        op=op,
        call=_called(inner, op),
        where=where,
        frame=frame or where or frames[0],
        within=within,
        exact=doing is Doing.COLLECTIVE and Within.CHECKPOINT not in within,
        native=native,
    )


# ------------------------------------------------------------------------------------------ in what a thread stands

_NATIVE_DEVICE = re.compile(r"cu(da)?(Stream|Device|Event|Ctx)Synchronize|_local_scalar_dense")
_NATIVE_WAIT = re.compile(
    r"c10d::.*(::wait\b|::waitRecv|::waitSend|runWait|finalize_backward|::synchronize|::barrier)|gloo::.*wait"
    r"|c10d::Work|ncclComm(Init|Abort)|AsyncWork::"
)
_HOOKED_WAIT = re.compile(r"/hangwatch_agent/hooks/collectives\.py$")  # our probe's frame around Work.wait()
_WAIT_TENSOR = ("wait_tensor", "trigger_wait")
_DEVICE = frozenset({"synchronize", "item", "_cuda_synchronize", "current_stream", "wait_stream", "wait_event"})
_QUEUE_WAITS = frozenset(
    {"wait", "acquire", "get", "put", "join", "_wait_for_tstate_lock", "__enter__", "acquire_lock"}
)


def _standing(inner: tuple[Frame, ...]) -> tuple[Doing, str, Frame | None]:
    """What the frames inside the user's line say; the first rule that speaks is right."""
    names = [(frame, name_of(frame.function), frame.file) for frame in inner if not frame.native]
    for rule in _RULES:
        found = rule(names)
        if found is not None:
            return found
    return Doing.CODE, "", None


Names = list[tuple[Frame, str, str]]
Told = tuple[Doing, str, Frame | None] | None


def _waits_in_collective(names: Names) -> Told:
    buffers = next((n for n in names if n[1] in ("_sync_buffers", "_sync_module_buffers")), None)
    if buffers is not None:
        return Doing.COLLECTIVE, "buffers", buffers[0]
    for frame, name, file in names:
        if name in OPS and _is_collective_file(file):
            return Doing.COLLECTIVE, _SAME_OP.get(name, name), frame
        if name in ("_distributed_broadcast_coalesced", "_broadcast_coalesced", "_sync_module_states"):
            return Doing.COLLECTIVE, "broadcast", frame
        if name == "_verify_param_shape_across_processes":
            return Doing.COLLECTIVE, "parameter check", frame
    waits = (frame for frame, name, file in names if _is_wait(name, file))
    return next(((Doing.WORK_WAIT, "", frame) for frame in waits), None)


def _is_wait(name: str, file: str) -> bool:
    return (name in _WAIT_TENSOR and "/distributed/" in file) or (name == "wait" and bool(_HOOKED_WAIT.search(file)))


def _is_collective_file(file: str) -> bool:
    return file.endswith(("distributed_c10d.py", "_functional_collectives.py")) or "/distributed/nn/" in file


def _makes_or_destroys_group(names: Names) -> Told:
    for frame, name, file in names:
        if name in ("destroy_process_group", "_shutdown_backend", "_abort_process_group", "shutdown_process_group"):
            return Doing.DESTROY, "", frame
        if name in ("new_group", "_new_group_with_tag", "new_subgroups", "split_group") and "distributed_c10d" in file:
            return Doing.NEW_GROUP, "", frame
    for frame, name, file in names:
        if name in ("init_process_group", "_create_c10d_store", "_store_based_barrier", "next_rendezvous"):
            return Doing.RENDEZVOUS, "", frame
        if "/distributed/" in file and file.endswith("rendezvous.py"):
            return Doing.RENDEZVOUS, "", frame
    return None


def _waits_for_loader(names: Names) -> Told:
    for frame, name, file in names:
        if name in ("_try_get_data", "_get_data", "_shutdown_workers") and file.endswith("dataloader.py"):
            return Doing.LOADER, "", frame
    return None


def _compiles(names: Names) -> Told:
    for frame, _, file in names:
        if re.search(r"/torch/_(dynamo|inductor|functorch)/|/triton/(compiler|backends|runtime)/", file):
            if file.endswith(("eval_frame.py", "runtime_wrappers.py", "external_utils.py")):
                continue  # the wrappers that stay on the stack while compiled code runs
            return Doing.COMPILE, "", frame
    return None


def _waits_for_file_lock(names: Names) -> Told:
    for frame, name, file in names:
        if file.endswith("file_baton.py") or "/filelock/" in file or name in ("flock", "lockf"):
            return Doing.FILE_LOCK, "", frame
    return None


def _moves_tensors(names: Names) -> Told:
    for frame, _, file in names:
        if file.endswith("torch/serialization.py") or "/distributed/checkpoint/" in file or "/safetensors/" in file:
            return Doing.CHECKPOINT, "", frame
    return None


def _runs_backward(names: Names) -> Told:
    for frame, name, _ in names:
        if name in ("_engine_run_backward", "run_backward"):
            return Doing.BACKWARD, "gradients", frame
    return None


def _waits_for_device(names: Names) -> Told:
    for frame, name, file in names:
        if name in _DEVICE and ("/torch/" in file):
            return Doing.DEVICE, name, frame
    return None


def _leaves(names: Names) -> Told:
    for frame, name, file in names:
        if name == "_finalize_join" and file.endswith("multiprocessing/queues.py"):
            return Doing.QUEUE_FEEDER, "", frame
        if name in ("_exit_function", "_run_finalizers") and file.endswith("multiprocessing/util.py"):
            return Doing.JOIN_CHILD, "", frame
        if name == "_shutdown" and file.endswith("threading.py"):
            return Doing.JOIN_THREADS, "", frame
        if name in ("waitpid", "poll", "wait", "_wait", "join") and re.search(
            r"/(subprocess|multiprocessing/(popen_\w+|process))\.py$", file
        ):
            return Doing.JOIN_CHILD, "", frame
    return None


def _blocks_in_python(names: Names) -> Told:
    for frame, name, file in names:
        if file.endswith(
            ("/socket.py", "/ssl.py", "/http/client.py", "/selectors.py", "/multiprocessing/connection.py")
        ):
            return Doing.SOCKET, "", frame
        if file.endswith(
            ("/threading.py", "/queue.py", "/multiprocessing/queues.py", "/multiprocessing/synchronize.py")
        ):
            return (Doing.LOCK, "", frame) if name in _QUEUE_WAITS else None
        if file.endswith("/concurrent/futures/_base.py") and name in ("result", "wait"):
            return Doing.LOCK, "", frame
        if file.endswith("/logging/__init__.py"):
            return (Doing.LOCK if name == "acquire" else Doing.PIPE), "", frame
        if name in ("sleep",):
            return Doing.SLEEP, "", frame
    return None


_RULES = (
    _waits_in_collective,
    _makes_or_destroys_group,
    _waits_for_loader,
    _runs_backward,
    _compiles,
    _waits_for_file_lock,
    _moves_tensors,
    _waits_for_device,
    _leaves,
    _blocks_in_python,
)


def _natively(inner: tuple[Frame, ...]) -> Doing:
    """C functions leave no Python frame (`work.wait()`, `.item()`): only native frames tell what is behind."""
    functions = [frame.function for frame in inner if frame.native]
    if any(_NATIVE_WAIT.search(function) for function in functions):
        return Doing.WORK_WAIT
    return Doing.DEVICE if any(_NATIVE_DEVICE.search(function) for function in functions) else Doing.CODE


def _called(inner: tuple[Frame, ...], op: str) -> str:
    """The outermost function of torch.distributed's interface: what the user called."""
    found = [
        name_of(frame.function)
        for frame in inner
        if name_of(frame.function) in CALLS and _is_collective_file(frame.file)
    ]
    return found[-1] if found else op


# ------------------------------------------------------------------------------------------ within what


def _surroundings(frames: tuple[Frame, ...], main: bool) -> Iterator[Within]:
    for frame in frames:
        name, file = name_of(frame.function), frame.file
        yield from _BY_NAME.get(name, ())
        if "/distributed/checkpoint/" in file or file.endswith("torch/serialization.py"):
            yield Within.CHECKPOINT
        elif "/fsdp/" in file:
            yield Within.SHARDED
        elif re.search(r"/torch/_(dynamo|inductor)/", file):
            yield Within.COMPILE
        elif "utils/data" in file and name in ("fetch", "__next__", "_next_data"):
            yield Within.LOADER
        elif file.startswith("<frozen importlib"):
            yield Within.IMPORT
    outermost = next((frame for frame in reversed(frames) if not frame.native), None)
    if main and outermost is not None and name_of(outermost.function) not in _MAIN_PROGRAMS:
        yield Within.ATEXIT


_MAIN_PROGRAMS = frozenset({"<module>", "_bootstrap", "spawn_main", "_run_code", "_run_module_as_main", "_shutdown"})
_BY_NAME: dict[str, tuple[Within, ...]] = {
    "_engine_run_backward": (Within.BACKWARD,),
    "_pre_forward": (Within.FORWARD,),
    "_run_ddp_forward": (Within.FORWARD,),
    "_call_impl": (Within.FORWARD,),
    "_sync_buffers": (Within.BUFFERS,),
    "_sync_module_buffers": (Within.BUFFERS,),
    "init_process_group": (Within.RENDEZVOUS,),
    "new_group": (Within.NEW_GROUP,),
    "destroy_process_group": (Within.DESTROY,),
    "_shutdown": (Within.SHUTDOWN,),
    "_exit_function": (Within.MULTIPROCESSING_EXIT,),
    "__del__": (Within.DESTRUCTOR,),
    "__exit__": (Within.EXIT_BLOCK,),
    "__aexit__": (Within.EXIT_BLOCK,),
    "optimizer_step": (Within.OPTIMIZER,),
}


def stacks_of_trace(text: str) -> tuple[ThreadStack, ...]:
    """The stacks in what Python's faulthandler writes when a process crashes; the main thread is the last one."""
    parts = re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)[1:]
    frames = [
        tuple(Frame(file, int(line), function) for file, line, function in _TRACE_LINE.findall(part)) for part in parts
    ]
    return tuple(
        ThreadStack(index, "MainThread" if index + 1 == len(frames) else "", found, main=index + 1 == len(frames))
        for index, found in enumerate(frames)
    )


_TRACE_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
