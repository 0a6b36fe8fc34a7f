"""A probe in this very process, the only rank of a world of one: what is hooked, what is seen, what comes back."""

from __future__ import annotations

import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket, HashStore, ProcessGroup, Work
from torch.distributed import all_reduce as imported_before
from torch.distributed import distributed_c10d
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from hangwatch.model import Collectives, Phase, Reading
from hangwatch.settings import Settings
from hangwatch.wire import codec
from hangwatch_agent.board.reader import read_board, request_collectives
from hangwatch_agent.rank import collectives_answer, guard, probe
from hangwatch_agent.rank.hooks.collectives import METHODS
from hangwatch_agent.shared.rank_rule import MARK
from tests.forked import in_a_fork

TICK = 0.02
ONES = TensorDataset(torch.ones(4, 2))


@pytest.fixture(autouse=True)
def raising() -> Iterator[None]:
    guard.raise_swallowed(True)
    yield
    guard.raise_swallowed(False)


@pytest.fixture
def world() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[probe.Probe]:
    found = probe.install(Settings(tick=TICK), tmp_path)
    yield found
    found.remove()


def read(installed: probe.Probe) -> Reading:
    assert installed.board is not None
    return read_board(installed.board)


def eventually(condition: Callable[[], Any]) -> Any:
    until = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(TICK)
    return found


def everything() -> dict[str, Any]:
    """Every attribute that the probe may replace, as the object that stands there."""
    import sys

    from torch.optim import optimizer
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    owners: dict[Any, list[str]] = {
        ProcessGroup: list(METHODS),
        Work: ["wait"],
        distributed_c10d: ["init_process_group", "_new_group_with_tag", "split_group", "destroy_process_group"],
        dist: ["init_process_group", "new_group", "split_group", "destroy_process_group"],
        DistributedDataParallel: ["_pre_forward", "_inside_ddp_forward", "forward"],
        DataLoader: ["__iter__"],
        _BaseDataLoaderIter: ["__next__", "_next_index"],
        sys: ["excepthook"],
        threading: ["excepthook"],
    }
    found = {f"{owner.__name__}.{name}": vars(owner).get(name) for owner, names in owners.items() for name in names}
    found["atexits"] = list(threading._threading_atexits)  # type: ignore[attr-defined]
    found["optimizer"] = list(optimizer._global_optimizer_post_hooks.values())
    found["meta_path"] = list(sys.meta_path)
    found["mark"] = os.environ.get(MARK)
    return found


def test_remove_restores_exactly_what_was_there(world: None, tmp_path: Path) -> None:
    before = everything()
    model = nn.Linear(1, 1)
    for _ in range(2):
        installed = probe.install(Settings(tick=TICK), tmp_path, model)
        assert probe.install(Settings(tick=TICK), tmp_path, model, [DataLoader(ONES)]) is installed
        during = everything()
        assert during["ProcessGroup.allreduce"] is not before["ProcessGroup.allreduce"]
        ticker = installed._ticker
        assert ticker is not None
        assert ticker.runs
        board = installed.board
        assert board is not None
        installed.remove()
        installed.remove()
        after = everything()
        assert {name for name in before if after[name] is not before[name] and after[name] != before[name]} == set()
        assert not model._forward_hooks
        assert read_board(board).detached
        assert not ticker.runs


def test_installing_from_many_threads_at_once(tmp_path: Path) -> None:
    found: list[probe.Probe] = []
    threads = [threading.Thread(target=lambda: found.append(probe.install(Settings(), tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1
    assert len(list(tmp_path.glob("rank-*.board"))) == 1
    found[0].remove()


def test_groups_that_were_there_before_are_enrolled(world: None, tmp_path: Path) -> None:
    group = dist.new_group([0])
    dist.all_reduce(torch.ones(1), group=group)
    installed = probe.install(Settings(tick=TICK), tmp_path)
    try:
        reading = read(installed)
        assert reading.phase is Phase.READY
        assert (reading.identity.rank, reading.identity.world_size) == (0, 1)
        assert [(head.name, head.members, head.issued) for head in reading.heads] == [
            ("0", (0,), 0),
            (group.group_name, (0,), 1),
        ]
    finally:
        installed.remove()


def test_phases_and_groups_of_a_life(installed: probe.Probe) -> None:
    assert read(installed).phase is Phase.START
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    assert read(installed).phase is Phase.READY
    dist.new_group([0])
    reading = read(installed)
    assert reading.phase is Phase.READY
    assert [(made.index, made.members, made.name, made.done) for made in reading.groups_made] == [
        (0, (0,), "0", True),
        (1, (0,), "1", True),
    ]
    assert reading.groups_made[1].where is not None
    assert reading.groups_made[1].where.file == __file__
    dist.destroy_process_group()
    reading = read(installed)
    assert (reading.phase, reading.heads) == (Phase.DESTROYED, ())


def test_an_init_that_fails_is_as_without_us(installed: probe.Probe) -> None:
    with pytest.raises(RuntimeError, match="nonsense"):
        dist.init_process_group("gloo", init_method="nonsense://", rank=0, world_size=1)
    assert read(installed).phase is Phase.START


def test_a_destroy_past_us_is_found_by_the_ticker(world: None, tmp_path: Path) -> None:
    past_us = dist.destroy_process_group  # a name imported before the probe came
    installed = probe.install(Settings(tick=TICK), tmp_path)
    try:
        assert read(installed).phase is Phase.READY
        past_us()
        eventually(lambda: read(installed).phase is Phase.DESTROYED)
    finally:
        installed.remove()


# ---------------------------------------------------------------- collectives


def test_calls_are_noted_with_the_users_line(world: None, installed: probe.Probe) -> None:
    dist.all_reduce(torch.ones(3, 2))
    dist.broadcast(torch.ones(2, dtype=torch.int64), 0)
    imported_before(torch.ones(1))
    dist.barrier()
    calls = read(installed).calls
    assert [(call.seq, call.op, call.sizes, call.dtypes) for call in calls] == [
        (1, "all_reduce", ((3, 2),), ("Float",)),
        (2, "broadcast", ((2,),), ("Long",)),
        (3, "all_reduce", ((1,),), ("Float",)),
        (4, "barrier", (), ()),
    ]
    assert [call.peer for call in calls] == [None, 0, None, None]
    torchs, users = calls[0].frames[0], next(frame for frame in calls[0].frames if frame.file == __file__)
    assert (torchs.function, users.function) == ("all_reduce", "test_calls_are_noted_with_the_users_line")
    assert calls[0].thread_id == threading.get_ident()
    assert read(installed).open_calls == ()


def test_every_function_of_torch_distributed_works_and_is_seen(world: None, installed: probe.Probe) -> None:
    ones, found = torch.ones(2), [torch.empty(2)]
    dist.all_gather(found, ones)
    dist.gather(ones, found, 0)
    dist.scatter(torch.empty(2), [ones], 0)
    dist.reduce(ones, 0)
    dist.all_to_all_single(torch.empty(2), ones)
    dist.all_gather_object([None], {"a": 1})
    with dist._coalescing_manager():  # type: ignore[attr-defined]
        dist.all_reduce(ones)
        dist.all_reduce(torch.ones(5))
    work = dist.all_reduce(ones, async_op=True)
    assert work is not None
    assert type(work).__name__ == "Work" or isinstance(work, Work)
    work.wait()
    reading = read(installed)
    assert [call.op for call in reading.calls] == [
        *("all_gather", "gather", "scatter", "reduce", "all_to_all"),
        *("all_gather", "all_gather", "all_reduce", "all_reduce"),
    ]
    assert [call.seq for call in reading.calls] == list(range(1, 10))
    path = [frame.function for frame in reading.calls[5].frames]
    assert path.index("all_gather") < path.index("all_gather_object")
    assert reading.problems == ()


def test_errors_of_collectives_are_torchs_own(world: None, installed: probe.Probe) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        dist.broadcast(torch.ones(1), 7)
    with pytest.raises(RuntimeError):
        dist.all_gather([torch.empty(3)], torch.ones(2))
    assert read(installed).open_calls == ()


def test_heads_count_what_ddp_issues_from_cpp(world: None, installed: probe.Probe) -> None:
    model = DistributedDataParallel(nn.Linear(2, 2))
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()

    def completed() -> bool:
        """Of two that gloo completes at once, torch's status may keep the first until a third is complete."""
        (head,) = read(installed).heads
        return head.issued > 3 and head.completed >= head.issued - 1

    eventually(completed)
    reading = read(installed)
    assert reading.calls == ()
    assert reading.progress.calls == reading.heads[0].issued
    assert reading.phase is Phase.BACKWARD


def test_an_answer_with_frames(world: None, installed: probe.Probe, tmp_path: Path) -> None:
    DistributedDataParallel(nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()
    dist.all_reduce(torch.ones(4))
    assert installed.board is not None
    request_collectives(installed.board, os.getpid())
    answer = tmp_path / f"collectives-{os.getpid()}.json"
    eventually(answer.exists)
    found = codec.loads(Collectives, answer.read_text())
    assert found.source == "flight-recorder"
    last = found.recent[-1]
    assert (last.op, last.sizes, last.seq) == ("all_reduce", ((4,),), found.heads[0].issued)
    assert any(frame.file == __file__ for frame in last.frames)
    assert not any("hangwatch_agent" in frame.file for call in found.recent for frame in call.frames)
    assert len(found.recent) > len(read(installed).calls)
    assert answer.stat().st_mode & 0o777 == 0o600
    written = answer.stat().st_mtime_ns
    request_collectives(installed.board, os.getpid())
    eventually(lambda: answer.stat().st_mtime_ns != written)


def test_a_process_that_was_no_rank_leaves_no_answer_that_was_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN an answer that takes its time WHEN the process ends meanwhile"""
    writing, may_write = threading.Event(), threading.Event()

    def slowly(*_given: Any) -> None:
        writing.set()
        assert may_write.wait(100)
        (tmp_path / f"collectives-{os.getpid()}.json").write_bytes(b"{}")

    monkeypatch.setattr(collectives_answer, "write_answer", slowly)
    errand = probe.install(Settings(tick=TICK), tmp_path, attached_by="run")
    try:
        assert errand.board is not None
        request_collectives(errand.board, os.getpid())
        assert writing.wait(100)
        threading.Timer(0.1, may_write.set).start()
        errand.ended()
        # THEN it was waited for, and neither the board nor the answer is left
        assert may_write.is_set()
        assert list(tmp_path.iterdir()) == []
    finally:
        may_write.set()
        errand.remove()


def test_an_exception_being_handled_comes_with_the_answer(installed: probe.Probe, tmp_path: Path) -> None:
    assert installed.board is not None
    try:
        raise ValueError("the real cause")
    except ValueError:
        request_collectives(installed.board, os.getpid())
        eventually((tmp_path / f"collectives-{os.getpid()}.json").exists)
    exception = read(installed).exception
    assert exception is not None
    assert (exception.message, exception.fatal) == ("the real cause", False)


# ---------------------------------------------------------------- what users do beside


@pytest.mark.filterwarnings("ignore")  # torch's own
def test_torch_compile_comm_hook_and_profiler_go_on_working(world: None, installed: probe.Probe) -> None:
    hooked: list[int] = []

    def hook(state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        hooked.append(bucket.index())
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        reduced: torch.futures.Future[torch.Tensor] = work.get_future().then(lambda done: done.value()[0])
        return reduced

    hook.__annotations__ = {
        "bucket": GradBucket,
        "return": torch.futures.Future[torch.Tensor],
    }  # DDP compares them
    model = DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)))
    model.register_comm_hook(None, hook)
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(ONES, batch_size=2)
    with torch.profiler.profile() as profile:
        for (batch,) in loader:
            optimizer.zero_grad()
            compiled(batch).sum().backward()
            optimizer.step()
    names = {event.key for event in profile.key_averages()}
    assert "DistributedDataParallel.forward" in names
    assert "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" in names
    assert len(hooked) == 2
    reading = read(installed)
    assert (reading.progress.step, reading.progress.forwards, reading.progress.optimizer_steps) == (1, 2, 2)
    assert reading.loaders[0].training


def test_signatures_and_names_stay(installed: probe.Probe) -> None:
    import inspect

    assert "backend" in inspect.signature(dist.init_process_group).parameters
    assert dist.init_process_group.__name__ == "init_process_group"
    assert "loader" not in inspect.signature(DataLoader.__iter__).parameters
    assert ProcessGroup.allreduce.__name__ == "allreduce"


def test_ticks_of_a_loop_of_ones_own(installed: probe.Probe) -> None:
    for _ in range(3):
        installed.tick()
    progress = read(installed).progress
    assert (progress.ticks, progress.step) == (3, 2)


def test_what_is_no_model_and_no_loader_is_passed_over(installed: probe.Probe) -> None:
    first, second = nn.Linear(1, 1), nn.Linear(1, 1)
    installed.add(object(), [iter([1, 2]), 3])
    installed.add((first, second), [])
    second(first(torch.ones(1, 1)))
    seen = read(installed)
    assert (seen.progress.forwards, seen.loaders) == (2, ())


def test_the_ticker_keeps_time(installed: probe.Probe) -> None:
    first = eventually(lambda: read(installed).ticker_at)
    assert eventually(lambda: read(installed).ticker_at > first)


def test_a_full_disk_is_named_and_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    installed = probe.install(Settings(), tmp_path)
    try:
        assert len(list(DataLoader(ONES))) == 4
        assert installed.board is None
        assert "No space left on device" in installed.problem
        assert capsys.readouterr().err.startswith("hangwatch: this rank is not watched")
    finally:
        installed.remove()


def test_a_forked_rank_has_no_errors_of_its_parent(installed: probe.Probe) -> None:
    for each in "ab":
        installed.context.met(ValueError(f"the parent's {each}"))

    def forked() -> None:
        installed.wake()
        installed.context.met(ValueError("its own"))
        assert [each.message for each in read(installed).caught] == ["its own"]

    assert in_a_fork(forked) == 0
    assert [each.message for each in read(installed).caught] == ["the parent's a", "the parent's b"]


def test_a_forked_child_leaves_the_board_alone(installed: probe.Probe) -> None:
    before = read(installed)

    def forked() -> None:
        installed.tick()
        list(DataLoader(ONES))

    assert in_a_fork(forked) == 0
    after = read(installed)
    assert (after.progress.ticks, after.loaders) == (before.progress.ticks, ())


def test_a_model_that_the_program_is_done_with_is_freed_at_once(installed: probe.Probe) -> None:
    """A search trains one model after the other: to keep each would fill the memory of the device."""

    def trial() -> weakref.ref[nn.Module]:
        model = nn.Linear(2, 1)
        installed.add(model)
        model(torch.ones(1, 2)).sum().backward()
        return weakref.ref(model)

    gc.collect()
    gc.disable()  # as programs do that cannot afford its pauses
    try:
        assert [trial()() for _ in range(3)] == [None] * 3
        model = nn.Linear(2, 1)  # at the address of one that is gone, perhaps
        installed.add(model)
        forwards = read(installed).progress.forwards
        model(torch.ones(1, 2))
        assert read(installed).progress.forwards == forwards + 1
    finally:
        gc.enable()
