"""What a thread is doing, told from stacks as py-spy gives them on several versions of Python and torch."""

from __future__ import annotations

import textwrap

import pytest

from hangwatch.model import Frame, ThreadStack
from hangwatch.source.hints import annotated
from hangwatch.stacks.activity import Doing, Within
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import name_of, origin, stacks_of_trace, user_frame

SITE = "/opt/venv/lib/python3.12/site-packages"
TORCH = f"{SITE}/torch"
LIB = "/root/.pyenv/versions/3.11.7/lib/python3.11"
USER = Frame("/home/ann/train.py", 71, "main")
MODULE = Frame("/home/ann/train.py", 99, "<module>")


def stack(*frames: str | Frame, main: bool = True) -> ThreadStack:
    """Frames as `file:function`, innermost first; "user" is the user's line."""
    made = [_frame(frame) if isinstance(frame, str) else frame for frame in frames]
    return ThreadStack(1, "MainThread", tuple(made), main=main)


def _frame(text: str) -> Frame:
    if text == "user":
        return USER
    file, _, function = text.rpartition(":")
    return Frame(file.replace("TORCH", TORCH).replace("LIB", LIB).replace("SITE", SITE), 10, function)


C10D = "TORCH/distributed/distributed_c10d.py"
FSDP = "TORCH/distributed/fsdp/_fully_shard/_fsdp_param_group.py"
DDP = "TORCH/nn/parallel/distributed.py"
LOADER = "TORCH/utils/data/dataloader.py"
HOOK = "/x/agent/hangwatch_agent/rank/hooks/collectives.py"
CASES = [
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
    ("file", "kind"),
    [
        ("/home/ann/torch/train.py", "user"),
        ("/home/ann/lib/model.py", "user"),
        (f"{SITE}/torch/nn/modules/module.py", "torch"),
        ("/src/pytorch/torch/nn/modules/module.py", "torch"),
        (f"{SITE}/lightning/trainer.py", "package"),
        ("/usr/lib/python3/dist-packages/yaml/reader.py", "package"),
        (f"{LIB}/threading.py", "stdlib"),
        ("/usr/lib/python3.13t/threading.py", "stdlib"),
        ("<frozen importlib._bootstrap>", ""),
        ("<string>", ""),
        ("<ipython-input-3-abc>", "user"),
        ("/x/hangwatch/session.py", "hangwatch"),
        ("/x/hangwatch/gallery/rank_frozen.py", "user"),
    ],
)
def test_where_a_file_comes_from(file: str, kind: str) -> None:
    assert origin(file) == kind


def test_the_users_frame_may_live_in_a_package_when_there_is_no_other() -> None:
    package = Frame(f"{SITE}/mytrainer/loop.py", 5, "step")
    assert user_frame((Frame(f"{TORCH}/_tensor.py", 1, "backward"), package)) == package
    assert user_frame((package, USER)) == USER
    assert name_of("Outer.<locals>.inner") == "inner"


SOURCE = textwrap.dedent(
    """\
    import signal
    def handler(number, frame):
        with lock:
            pass
    signal.signal(signal.SIGUSR1, handler)
    def main():
        for epoch in range(3):
            while True:
                step()
            validate()
        try:
            risky()
        except ValueError:
            dist.barrier()
        finally:
            dist.barrier()
        return [step() for _ in range(2)]
    """
)


@pytest.mark.parametrize(
    ("line", "block", "in_loop"),
    [(9, "", True), (10, "", True), (12, "", False), (14, "except", False), (16, "finally", False), (3, "", False)],
)
def test_the_source_tells_loops_and_blocks(line: int, block: str, in_loop: bool) -> None:
    told = annotated(stack(Frame("/home/ann/train.py", line, "main")), lambda file: SOURCE)
    assert (told.block, told.in_loop) == (block, in_loop)


def test_of_a_coroutine_that_waits_nobody_knows_its_loop() -> None:
    event_loop = Frame("/usr/lib/python3.12/asyncio/base_events.py", 1910, "_run_once")
    told = annotated(stack(event_loop, Frame("/home/ann/train.py", 12, "main")), lambda file: SOURCE)
    assert told.in_loop is None
    told = annotated(stack(Frame("/home/ann/train.py", 9, "step"), event_loop), lambda file: SOURCE)
    assert told.in_loop


def test_the_source_tells_a_signal_handler_from_a_call() -> None:
    inside = stack(Frame("/home/ann/train.py", 3, "handler"), Frame("/home/ann/train.py", 9, "main"))
    assert annotated(inside, lambda file: SOURCE).handler == "handler"
    assert annotated(stack(USER, MODULE), lambda file: SOURCE).handler == ""


@pytest.mark.parametrize("source", [None, "def broken(", "\0"])
def test_a_source_that_cannot_be_read_tells_nothing(source: str | None) -> None:
    assert annotated(stack("user", MODULE), lambda file: source) == stack("user", MODULE)


def test_faulthandlers_trace_becomes_stacks() -> None:
    text = (
        "Fatal Python error: Aborted\n\nThread 0x1 (most recent call first):\n  <no Python frame>\n\n"
        'Current thread 0x2 (most recent call first):\n  File "/a/train.py", line 7 in save\n'
        '  File "/a/train.py", line 9 in <module>\n\nExtension modules: numpy\n'
    )
    helper, main = stacks_of_trace(text)
    assert helper.frames == ()
    assert main.main
    assert main.frames[0] == Frame("/a/train.py", 7, "save")
    assert stacks_of_trace("") == ()
