"""In what a thread stands, told from the frames inside the user's innermost line: a rule for each kind of wait."""

from __future__ import annotations

import re

from hangwatch.model import Frame
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.frames import is_written_by_compiler, name_of

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
_SAME_OP = {
    "all_gather_single": "all_gather_into_tensor",
    "_all_gather_base": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "monitored_barrier": "barrier",
}

# Ray Train: an actor answers when all workers have asked, and never before. RPC: all leave together.
_RPC = "/torch/distributed/rpc/api.py"
_WORKERS_MEET = re.compile(rf"/ray/train/v2/_internal/execution/(context|collective_impl)\.py$|{_RPC}$")
SHUTDOWN, A_FUTURE = "rpc.shutdown", "a Future"  # what the user waits in, in words
_MEETINGS = {
    "_wait_all_workers": SHUTDOWN,
    "_sync_checkpoint_dir_name_across_ranks": "report",
    "barrier": "barrier",
    "broadcast_from_rank_zero": "broadcast_from_rank_zero",
}

_NATIVE_DEVICE = re.compile(r"cu(da)?(Stream|Device|Event|Ctx)Synchronize|_local_scalar_dense")
_NATIVE_WAIT = re.compile(
    r"c10d::.*(::wait\b|::waitRecv|::waitSend|runWait|finalize_backward|::synchronize|::barrier)|gloo::.*wait"
    r"|c10d::Work|ncclComm(Init|Abort)|AsyncWork::"
)
_NATIVE_FUTURE = "torch::jit::PythonFutureWrapper::wait"  # `rpc_async(...).wait()`, which has no Python frame
_NATIVE_STORE = re.compile(r"c10d::\w*Store::")
_NATIVE_DRIVER = re.compile(r"cu(da)?[A-Z]\w+$")
_NATIVE_LAUNCH = re.compile(r"cu(da)?(Graph)?(Launch|Mem(cpy|Alloc|Free|set)|Malloc|Free)")
_NATIVE_ENGINE = "torch::autograd::Engine::thread_main"
_NATIVE_JOIN = re.compile(r"ncclCommInit|c10d::NCCLComm::create|ProcessGroupNCCL::(init|get)NCCLComm")
_HOOK = re.compile(r"/hangwatch_agent/(rank/)?hooks/collectives\.py$")  # our probe's frame around a group's methods
_DDP = "/nn/parallel/distributed.py"
_FUTURES = "/torch/futures/__init__.py"  # of a `Work`, or of a remote call
_WAIT_TENSOR = ("wait_tensor", "trigger_wait")
_OF_COMPILER = re.compile(r"/torch/_(dynamo|inductor|functorch)/|/triton/(compiler|backends|runtime)/")
_AROUND_COMPILED_CODE = ("eval_frame.py", "runtime_wrappers.py", "external_utils.py")
_TRACES = re.compile(r"/torch/(_(dynamo|inductor|functorch|subclasses)|fx/experimental)/")  # below code that it runs
_COMPILERS = ("/_dynamo/convert_frame.py", "/_inductor/compile_fx.py", "/_dynamo/compiled_autograd.py")
_DEVICE = frozenset({"synchronize", "item", "_cuda_synchronize", "current_stream", "wait_stream", "wait_event"})
_QUEUE_WAITS = frozenset(
    {"wait", "acquire", "get", "put", "join", "_wait_for_tstate_lock", "__enter__", "acquire_lock"}
)


def standing(inner: tuple[Frame, ...]) -> tuple[Doing, str, Frame | None]:
    """What the frames inside the user's line say; the first rule that fits decides."""
    names = names_of(inner)
    for rule in _RULES:
        found = rule(names)
        if found is not None:
            return found
    return Doing.CODE, "", None


Names = list[tuple[Frame, str, str]]


def names_of(frames: tuple[Frame, ...]) -> Names:
    """Frame, bare function name and file of each Python frame."""
    return [(frame, name_of(frame.function), frame.file) for frame in frames if not frame.native]


Told = tuple[Doing, str, Frame | None] | None


def _waits_in_collective(names: Names) -> Told:
    buffers = next((n for n in names if n[1] in ("_sync_buffers", "_sync_module_buffers")), None)
    if buffers is not None:
        return Doing.COLLECTIVE, "buffers", buffers[0]
    if names and names[0][1] == "_pre_forward" and names[0][2].endswith(_DDP):
        return Doing.COLLECTIVE, "buckets", names[0][0]  # C++ code of DDP's second forward agrees on their order
    for frame, name, file in names:
        if name in OPS and _is_collective_file(file):
            return Doing.COLLECTIVE, _SAME_OP.get(name, name), frame
        if name in ("_distributed_broadcast_coalesced", "_broadcast_coalesced", "_sync_module_states"):
            return Doing.COLLECTIVE, "broadcast", frame
        if name == "_verify_param_shape_across_processes":
            return Doing.COLLECTIVE, "parameter check", frame
    waits = (frame for frame, name, file in names if _is_wait(name, file))
    return next(((Doing.WORK_WAIT, "", frame) for frame in waits), None) or _is_in_a_method_of_a_group(names)


def _is_in_a_method_of_a_group(names: Names) -> Told:
    """`group.monitored_barrier()`, past torch.distributed's functions: C code, which only our probe's frame shows."""
    frame, name, file = names[0] if names else (None, "", "")
    return (Doing.COLLECTIVE, _SAME_OP.get(name, name), frame) if name in OPS and _HOOK.search(file) else None


def _is_wait(name: str, file: str) -> bool:
    return (name in _WAIT_TENSOR and "/distributed/" in file) or (name == "wait" and bool(_HOOK.search(file)))


def _is_collective_file(file: str) -> bool:
    return file.endswith(("distributed_c10d.py", "_functional_collectives.py")) or "/distributed/nn/" in file


def _meets_the_workers(names: Names) -> Told:
    for frame, name, file in names:
        if name in _MEETINGS and _WORKERS_MEET.search(file):
            return Doing.MEETING, _MEETINGS[name], frame
    return None


def _waits_for_an_answer(names: Names) -> Told:
    for frame, _, file in names:
        if file.endswith((_RPC, _FUTURES)):
            return Doing.REMOTE_CALL, "an RPC" if file.endswith(_RPC) else A_FUTURE, frame
    return None


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
    frame = compiling(names)
    return (Doing.COMPILE, "", frame) if frame is not None else None


def compiling(names: Names) -> Frame | None:
    """The innermost frame of a compiler at work, and not one that is being imported.

    The wrappers that stay around compiled code are none.
    """
    found = (
        frame for frame, _, file in names if _OF_COMPILER.search(file) and not file.endswith(_AROUND_COMPILED_CODE)
    )
    at_work = any(file.endswith(_COMPILERS) and name != "<module>" for _, name, file in names)
    imported = any(name == "<module>" and _OF_COMPILER.search(file) for _, name, file in names)
    return next(found, None) if at_work or not (imported or _runs_compiled_code(names)) else None


def _runs_compiled_code(names: Names) -> bool:
    """The compiler's frames are those that lead to code which it has written."""
    written = next((depth for depth, (_, _, file) in enumerate(names) if is_written_by_compiler(file)), None)
    inside = names[:written] if written is not None else names
    traces = any(_TRACES.search(file) and not file.endswith(_AROUND_COMPILED_CODE) for _, _, file in inside)
    return written is not None and not traces


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
        if name == "_finalize_join" and file.endswith(("multiprocessing/queues.py", "/multiprocess/queues.py")):
            return Doing.QUEUE_FEEDER, "", frame
        if name in ("_exit_function", "_run_finalizers") and file.endswith("multiprocessing/util.py"):
            return Doing.JOIN_CHILD, "", frame
        if name == "_shutdown" and file.endswith("threading.py"):
            return Doing.JOIN_THREADS, "", frame
        if name in ("waitpid", "poll", "wait", "_wait", "join", "communicate", "_communicate") and re.search(
            r"/(subprocess|multiprocess(ing)?/(popen_\w+|process))\.py$", file
        ):
            return Doing.JOIN_CHILD, "", frame
    return None


def _blocks_in_python(names: Names) -> Told:
    for frame, name, file in names:
        if file.endswith("/selectors.py") and any(each.endswith("/asyncio/base_events.py") for _, _, each in names):
            return Doing.EVENTS, "", frame
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
    _meets_the_workers,
    _waits_for_an_answer,
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


def natively(inner: tuple[Frame, ...]) -> Doing:
    """C functions leave no Python frame (`work.wait()`, `.item()`): only native frames tell what is behind."""
    if waits_natively(inner):
        return Doing.WORK_WAIT
    if any(frame.native and frame.function == _NATIVE_FUTURE for frame in inner):
        return Doing.REMOTE_CALL
    return Doing.DEVICE if spins(inner) else Doing.CODE


def spins(inner: tuple[Frame, ...]) -> bool:
    """Whether a native frame shows a wait for the device."""
    return any(frame.native and _NATIVE_DEVICE.search(frame.function) for frame in inner)


def launches(inner: tuple[Frame, ...]) -> bool:
    """Whether a native frame shows that it gives the device something to do, copies, or takes memory or gives it back.

    That takes a moment, or the time of the copies. It waits there for what the device does where data comes from there,
    where a launch queue is full, where a kernel is loaded at its first launch, and where memory is given back.
    """
    return any(frame.native and _NATIVE_LAUNCH.match(frame.function) for frame in inner)


def waits_natively(inner: tuple[Frame, ...]) -> bool:
    """Whether a native frame shows the wait for a collective; that for a store is one where a group makes it."""
    waits = [frame.function for frame in inner if frame.native and _NATIVE_WAIT.search(frame.function)]
    of_store = all(_NATIVE_STORE.search(name) for name in waits)
    return bool(waits) and not (of_store and not any("ProcessGroup" in frame.function for frame in inner))


def joins_natively(inner: tuple[Frame, ...]) -> bool:
    """Whether a native frame shows that a communicator is made, for which all members must come. NCCL polls there."""
    return any(frame.native and _NATIVE_JOIN.search(frame.function) for frame in inner)


def computes_gradients_in_driver(frames: tuple[Frame, ...]) -> bool:
    """Whether a thread of autograd's engine is in a call of the driver, where it stands once a launch queue is full.

    In a backward that goes on, it is there for a moment only.
    """
    return serves_backward(frames) and any(_NATIVE_DRIVER.match(frame.function) for frame in frames)


def serves_backward(frames: tuple[Frame, ...]) -> bool:
    """A thread of autograd's engine, which computes for a thread that called backward and sleeps meanwhile.

    It has no Python frames. Without a device the engine is at work in the thread that called backward itself.
    """
    return any(_NATIVE_ENGINE in frame.function for frame in frames) and all(frame.native for frame in frames)


def called(inner: tuple[Frame, ...], op: str) -> str:
    """The outermost function of torch.distributed's interface: what the user called."""
    found = [
        name_of(frame.function)
        for frame in inner
        if name_of(frame.function) in CALLS and _is_collective_file(frame.file)
    ]
    return found[-1] if found else op
