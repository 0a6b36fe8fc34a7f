"""What a frame says by itself, and frames from a written trace."""

from __future__ import annotations

import pytest

from hangwatch.model import Frame
from hangwatch.stacks.frames import ENGINE, behind_the_call, name_of, origin, stacks_of_trace, told, user_frame, via
from tests.unit.stacks.thread_stacks import LIB, MODULE, SITE, TORCH, USER


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
        ("/x/hangwatch/gallery/standin/pairs.py", "hangwatch"),
    ],
)
def test_where_a_file_comes_from(file: str, kind: str) -> None:
    assert origin(file) == kind


def test_a_forked_child_is_not_where_its_parent_made_it() -> None:
    """GIVEN a child in multiprocessing's exit, below it the frames of the parent, which the fork has copied
    THEN it is in no code of the user's; where it runs some, in that."""
    made = (Frame(f"{LIB}/multiprocessing/process.py", 314, "BaseProcess._bootstrap"),)
    by_fork = (
        Frame(f"{LIB}/multiprocessing/popen_fork.py", 71, "Popen._launch"),
        Frame("/home/ann/sweep.py", 39, "sweep"),
    )
    assert user_frame((Frame(f"{LIB}/multiprocessing/queues.py", 203, "Queue._finalize_join"), *made, *by_fork)) is None
    assert user_frame((USER, *made, *by_fork)) == USER


def test_the_parent_that_joins_a_forked_child_is_where_it_calls_join() -> None:
    """GIVEN a rank that waits for the end of a child, in the file in which that child was forked
    THEN it stands in the user's code that called join."""
    join = (
        Frame(f"{LIB}/multiprocessing/popen_fork.py", 27, "Popen.poll"),
        Frame(f"{LIB}/multiprocessing/popen_fork.py", 43, "Popen.wait"),
        Frame(f"{LIB}/multiprocessing/process.py", 149, "BaseProcess.join"),
    )
    assert user_frame((*join, USER)) == USER


def test_the_users_frame_may_live_in_a_package_when_there_is_no_other() -> None:
    package = Frame(f"{SITE}/mytrainer/loop.py", 5, "step")
    assert user_frame((Frame(f"{TORCH}/_tensor.py", 1, "backward"), package)) == package
    assert user_frame((package, USER)) == USER
    assert name_of("Outer.<locals>.inner") == "inner"


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


STRATEGY = Frame("/venv/lib/python3.12/site-packages/trainer/strategy.py", 31, "Strategy.reduce")
FIT = Frame("/venv/lib/python3.12/site-packages/trainer/trainer.py", 540, "Trainer.fit")
BARRIER = Frame("/venv/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", 5356, "barrier")
GLOO = Frame("/venv/lib/python3.12/site-packages/torch/distributed/c10d_logger.py", 83, "wrapper")
MINE, BELOW = Frame("/home/ann/train.py", 9, "main"), Frame("/home/ann/train.py", 20, "<module>")


@pytest.mark.parametrize(
    ("frames", "kept"),
    [
        ((GLOO, BARRIER, MINE, BELOW), (BARRIER, MINE, BELOW)),
        ((GLOO, BARRIER, STRATEGY, FIT, MINE, BELOW), (BARRIER, STRATEGY, MINE, BELOW)),
        ((BARRIER, STRATEGY, FIT), (BARRIER, STRATEGY)),
        ((MINE, FIT, BELOW), (MINE, BELOW)),
    ],
    ids=["the user's own call", "a trainer's", "no user", "a hook"],
)
def test_what_is_kept_of_a_call_path(frames: tuple[Frame, ...], kept: tuple[Frame, ...]) -> None:
    assert told(frames) == kept


def test_the_engine_stays_in_the_path_of_a_call_that_a_hook_makes_in_backward() -> None:
    inner = Frame(f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_param_group.py", 567, "post_backward")
    engine = Frame(f"{TORCH}/autograd/graph.py", 869, ENGINE)
    backward = Frame(f"{TORCH}/_tensor.py", 630, "backward")
    assert told((inner, engine, backward, USER, MODULE)) == (engine, backward, USER, MODULE)


PACKAGE = f"{SITE}/accelerate/utils/operations.py"
EVALUATES, TRAINS = (Frame(f"{SITE}/transformers/trainer.py", line, "f") for line in (2890, 2221))


def test_packages_lines_are_told_by_a_checksum_that_is_the_same_on_all_machines() -> None:
    inner = Frame(PACKAGE, 348, "_gpu_gather_one")
    there = Frame(PACKAGE.replace("/opt/venv", "/home/bob/.venv"), 348, "_gpu_gather_one")
    assert via((inner, TRAINS, USER)) == via((there, TRAINS, USER, MODULE)) != 0
    assert via((inner, EVALUATES, USER)) != via((inner, TRAINS, USER))
    assert via((USER, MODULE)) == 0


def test_a_collective_of_torchs_own_is_told_by_what_called_it() -> None:
    call = Frame(f"{TORCH}/distributed/distributed_c10d.py", 4398, "all_gather_into_tensor")
    logged = Frame(f"{TORCH}/distributed/c10d_logger.py", 83, "wrapper")
    fsdp = Frame(f"{TORCH}/distributed/fsdp/_fully_shard/_fsdp_collectives.py", 137, "__call__")
    assert behind_the_call((call, logged, fsdp, MODULE)) == fsdp
    assert behind_the_call((call, logged)) == call
    assert behind_the_call(()) is None
