"""What a thread is doing, told from stacks as py-spy gives them."""

from __future__ import annotations

import pytest

from hangwatch.model import Frame
from hangwatch.stacks.activity import Doing, Within
from hangwatch.stacks.classify import activity
from tests.unit.stacks.thread_stacks import MODULE, USER, stack

C10D = "TORCH/distributed/distributed_c10d.py"
FSDP = "TORCH/distributed/fsdp/_fully_shard/_fsdp_param_group.py"
DDP = "TORCH/nn/parallel/distributed.py"
LOADER = "TORCH/utils/data/dataloader.py"
HOOK = "/x/agent/hangwatch_agent/rank/hooks/collectives.py"
RAY = "/venv/lib/python3.11/site-packages/ray"
CASES = [
    (
        (
            f"{RAY}/_private/worker.py:get",
            f"{RAY}/train/v2/_internal/execution/context.py:TrainContext._sync_checkpoint_dir_name_across_ranks",
            f"{RAY}/train/v2/_internal/execution/context.py:TrainContext.report",
            "user",
        ),
        Doing.MEETING,
        "report",
    ),
    ((f"{C10D}:barrier", "TORCH/distributed/c10d_logger.py:wrapper", "user"), Doing.COLLECTIVE, "barrier"),
    ((f"{C10D}:all_gather", f"{C10D}:all_gather_object", "user"), Doing.COLLECTIVE, "all_gather"),
    (
        (f"{C10D}:all_gather_single", f"{FSDP}:FSDPParamGroup.unshard", "user"),
        Doing.COLLECTIVE,
        "all_gather_into_tensor",
    ),
    ((f"{C10D}:recv", "user"), Doing.COLLECTIVE, "recv"),
    ((f"{HOOK}:wait", f"{C10D}:all_reduce", "user"), Doing.COLLECTIVE, "all_reduce"),
    ((f"{HOOK}:wait", "user"), Doing.WORK_WAIT, ""),
    ((f"{HOOK}:monitored_barrier", "user"), Doing.COLLECTIVE, "barrier"),  # group.monitored_barrier()
    ((f"{HOOK}:CollectivesHook._issue", f"{C10D}:new_group", "user"), Doing.NEW_GROUP, ""),
    (
        ("TORCH/autograd/graph.py:_engine_run_backward", "TORCH/_tensor.py:Tensor.backward", "user"),
        Doing.BACKWARD,
        "gradients",
    ),
    (
        (
            f"{DDP}:DistributedDataParallel._distributed_broadcast_coalesced",
            f"{DDP}:DistributedDataParallel._sync_buffers",
            "user",
        ),
        Doing.COLLECTIVE,
        "buffers",
    ),
    (
        (f"{DDP}:DistributedDataParallel._pre_forward", f"{DDP}:DistributedDataParallel.forward", "user"),
        Doing.COLLECTIVE,
        "buckets",
    ),
    (("TORCH/distributed/utils.py:_to_kwargs", f"{DDP}:DistributedDataParallel._pre_forward", "user"), Doing.CODE, ""),
    (("TORCH/distributed/_functional_collectives.py:wait_tensor", "user"), Doing.WORK_WAIT, ""),
    (
        ("TORCH/distributed/rendezvous.py:_create_c10d_store", f"{C10D}:init_process_group", "user"),
        Doing.RENDEZVOUS,
        "",
    ),
    (
        (f"{C10D}:_new_process_group_helper", f"{C10D}:_new_group_with_tag", f"{C10D}:new_group", "user"),
        Doing.NEW_GROUP,
        "",
    ),
    ((f"{C10D}:destroy_process_group", "user"), Doing.DESTROY, ""),
    (
        (
            "LIB/selectors.py:_PollLikeSelector.select",
            "LIB/multiprocessing/queues.py:Queue.get",
            f"{LOADER}:_MultiProcessingDataLoaderIter._try_get_data",
            "user",
        ),
        Doing.LOADER,
        "",
    ),
    (("LIB/threading.py:Condition.wait", "LIB/threading.py:Event.wait", "user"), Doing.LOCK, ""),
    (
        ("LIB/selectors.py:EpollSelector.select", "LIB/asyncio/base_events.py:BaseEventLoop._run_once", "user"),
        Doing.EVENTS,
        "",
    ),
    (("LIB/socket.py:SocketIO.readinto", "LIB/http/client.py:HTTPResponse._read_status", "user"), Doing.SOCKET, ""),
    (("LIB/subprocess.py:Popen._wait", "LIB/subprocess.py:run", "user"), Doing.JOIN_CHILD, ""),
    (("LIB/threading.py:Thread._wait_for_tstate_lock", "LIB/threading.py:_shutdown"), Doing.JOIN_THREADS, ""),
    (
        ("LIB/multiprocessing/popen_fork.py:Popen.poll", "LIB/multiprocessing/util.py:_exit_function"),
        Doing.JOIN_CHILD,
        "",
    ),
    (
        (
            "LIB/threading.py:Thread.join",
            "LIB/multiprocessing/queues.py:Queue._finalize_join",
            "LIB/multiprocessing/util.py:_exit_function",
        ),
        Doing.QUEUE_FEEDER,
        "",
    ),
    (("TORCH/_inductor/codecache.py:compile", "TORCH/_dynamo/convert_frame.py:_compile", "user"), Doing.COMPILE, ""),
    (
        (
            "TORCH/_ops.py:OpOverload.__call__",
            "<eval_with_key>.3:forward",
            "TORCH/_dynamo/backends/debugging.py:run",
            "TORCH/_functorch/aot_autograd.py:forward",
            "TORCH/_dynamo/eval_frame.py:_fn",
            "user",
        ),
        Doing.CODE,
        "",
    ),
    (
        (
            "TORCH/_subclasses/fake_tensor.py:dispatch",
            "<eval_with_key>.3:forward",
            "TORCH/_functorch/aot_autograd.py:create_aot_dispatcher_function",
            "user",
        ),
        Doing.COMPILE,
        "",
    ),
    (
        (
            "TORCH/_ops.py:OpOverload.__call__",
            "<eval_with_key>.3:forward",
            "TORCH/_dynamo/convert_frame.py:_compile",
            "user",
        ),
        Doing.COMPILE,
        "",
    ),
    (
        (
            "TORCH/_dynamo/utils.py:lru",
            "TORCH/_dynamo/utils.py:<module>",
            "<frozen importlib._bootstrap>:_load",
            "TORCH/_compile.py:inner",
            "user",
        ),
        Doing.CODE,
        "",
    ),
    (
        (
            "<frozen importlib._bootstrap>:_load",
            "TORCH/_dynamo/symbolic_convert.py:<module>",
            "<frozen importlib._bootstrap>:_load",
            "TORCH/_dynamo/convert_frame.py:<module>",
            "<frozen importlib._bootstrap>:_load",
            "TORCH/nn/parallel/distributed.py:__init__",
            "user",
        ),
        Doing.CODE,
        "",
    ),
    (("TORCH/serialization.py:_save", "TORCH/serialization.py:save", "user"), Doing.CHECKPOINT, ""),
    (("TORCH/utils/file_baton.py:FileBaton.wait", "TORCH/utils/cpp_extension.py:load", "user"), Doing.FILE_LOCK, ""),
    (("SITE/filelock/_api.py:BaseFileLock.acquire", "user"), Doing.FILE_LOCK, ""),
    (("user",), Doing.CODE, ""),
    (("TORCH/cuda/__init__.py:synchronize", "user"), Doing.DEVICE, "synchronize"),
    ((), Doing.NOTHING, ""),
]


@pytest.mark.parametrize(
    ("frames", "doing", "op"), CASES, ids=[str(case[1]) + "-" + str(i) for i, case in enumerate(CASES)]
)
def test_the_innermost_frames_say_what_a_thread_does(frames: tuple[str, ...], doing: Doing, op: str) -> None:
    tail = (MODULE,) if frames and frames[-1] == "user" else ()
    told = activity(stack(*frames, *tail))
    assert (told.doing, told.op) == (doing, op)
    assert told.where == (USER if "user" in frames else None)


def test_the_call_is_the_one_that_the_user_made() -> None:
    assert (
        activity(stack(f"{C10D}:all_gather", f"{C10D}:all_gather_object", "user", MODULE)).call == "all_gather_object"
    )


def test_native_frames_show_a_wait_that_python_does_not() -> None:
    waiting = Frame("libtorch_cpu.so", 0, "c10d::ProcessGroupGloo::AsyncWork::wait", native=True)
    device = Frame("libcudart.so", 0, "cudaStreamSynchronize", native=True)
    assert activity(stack(waiting, USER, MODULE)).doing is Doing.WORK_WAIT
    assert activity(stack(waiting, USER, MODULE)).native
    assert activity(stack(device, USER, MODULE)).doing is Doing.DEVICE


def test_what_surrounds_the_innermost_frames_is_told_too() -> None:
    saving = activity(
        stack(f"{C10D}:gather_object", "TORCH/distributed/checkpoint/utils.py:reduce_scatter", "user", MODULE)
    )
    assert Within.CHECKPOINT in saving.within
    assert Within.ATEXIT in activity(stack(Frame("/home/ann/train.py", 3, "<lambda>"))).within
    assert Within.ATEXIT not in activity(stack("user", MODULE)).within
    assert Within.DESTRUCTOR in activity(stack(Frame("/home/ann/train.py", 3, "Pool.__del__"))).within


@pytest.mark.parametrize(
    ("frames", "compiles"),
    [
        (("user", "TORCH/_dynamo/eval_frame.py:_fn", "TORCH/_functorch/aot_autograd.py:forward"), True),
        (("user", "TORCH/_dynamo/eval_frame.py:_fn"), False),
        (("TORCH/_ops.py:__call__", "<eval_with_key>.3:forward", "TORCH/_functorch/aot_autograd.py:forward"), False),
    ],
)
def test_code_that_was_compiled_runs_within_no_compilation(frames: tuple[str, ...], compiles: bool) -> None:
    assert (Within.COMPILE in activity(stack(*frames, MODULE)).within) is compiles


@pytest.mark.parametrize("alone", [False, True], ids=["in the thread that called backward", "in a thread of its own"])
def test_a_wait_in_the_engine_is_that_of_the_thread_that_called_backward(alone: bool) -> None:
    """Without a device the engine runs in that very thread; else that one sleeps, and is no second one that waits."""
    natives = [
        Frame(library, 0, function, native=True)
        for library, function in (
            ("libtorch_cpu.so", "gloo::transport::tcp::UnboundBuffer::waitRecv"),
            ("libtorch_cpu.so", "c10d::Reducer::finalize_backward"),
            ("libtorch_cpu.so", "torch::autograd::Engine::thread_main"),
        )
    ]
    python = () if alone else ("TORCH/autograd/graph.py:_engine_run_backward", "user", MODULE)
    found = activity(stack(*natives, *python, main=not alone))
    assert (found.native, found.in_collective) == (not alone, not alone)


@pytest.mark.parametrize(
    ("function", "doing", "launches"),
    [
        ("cudaStreamSynchronize", Doing.DEVICE, False),
        ("cuMemcpyDtoHAsync_v2", Doing.CODE, True),  # tensor.cpu(), tolist(), print(); or a copy that takes its time
        ("cudaMemcpyAsync", Doing.CODE, True),
        ("cuLaunchKernel", Doing.CODE, True),  # waits where a queue is full, and where the kernel is loaded first
        ("cudaGraphLaunch", Doing.CODE, True),
        ("cudaFree", Doing.CODE, True),
        ("cuModuleLoadData", Doing.CODE, False),  # compiles, maybe
        ("cublasGemmEx", Doing.CODE, False),
    ],
)
def test_calls_of_the_driver_that_wait_and_those_that_may(function: str, doing: Doing, launches: bool) -> None:
    found = activity(stack(Frame("libcuda.so.1", 0, function, native=True), USER, MODULE))
    assert (found.doing, found.launches) == (doing, launches)
