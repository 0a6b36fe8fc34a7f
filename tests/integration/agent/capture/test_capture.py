"""The whole capture, of real ranks: living, stopped, dead, with workers, among many."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangwatch.model import Collective, Collectives, GroupHead, Identity, LoaderFacts, Progress, RankEvidence, Reading
from hangwatch.wire import codec
from hangwatch_agent.capture import CaptureOptions, CaptureResult, Target, capture, with_native_stacks
from hangwatch_agent.shared import procfs
from tests.integration.agent.capture.conftest import PATIENCE_S, Script, all_come_to_rest, stop

SLEEP = "import time; print('ready', flush=True); time.sleep(100)"
LOADER = """
    import sys, time, torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    class Numbers(Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, index):
            secret = 424242
            if index == 13:
                time.sleep(100)
            return index

    class Stream(IterableDataset):
        def __iter__(self):
            yield from range(8)
            time.sleep(100)

    if __name__ == "__main__":
        dataset = Stream() if "stream" in sys.argv else Numbers()
        batches = iter(DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=sys.argv[1]))
        for _ in range(3):
            next(batches)
        print("ready", flush=True)
        for _ in batches:
            pass
    """


def target(pid: int, folder: Path, rank: int | None = 0, loaders: tuple[LoaderFacts, ...] = ()) -> Target:
    stat = procfs.stat_of(pid)
    started = procfs.started_at(stat) if stat else time.time()
    identity = Identity(rank, 2, rank, "here", pid, started, "job", command="python train.py")
    return Target(Reading(identity, time.time(), loaders=loaders), folder / f"rank-{rank}.board")


def quick(**others: object) -> CaptureOptions:
    return CaptureOptions(sample_gap_s=0.25, stack_timeout_s=PATIENCE_S, **others)  # type: ignore[arg-type]


def only(taken: CaptureResult) -> RankEvidence:
    (rank,) = taken.ranks
    return rank


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_with_their_sample(script: Script, tmp_path: Path, method: str) -> None:
    process = script(LOADER, method)
    all_come_to_rest(process.pid)
    rank = only(capture([target(process.pid, tmp_path)], options=quick()))
    assert [(worker.worker, worker.sample) for worker in rank.workers] == [(0, None), (1, "13")]
    assert rank.workers[1].stacks[0].frames[0].function == "__getitem__"
    assert all(worker.rank == 0 for worker in rank.workers)
    assert "424242" not in codec.dumps(rank)
    assert {child.role for child in rank.children} <= {"helper"}
    assert any(frame.function == "_try_get_data" for frame in rank.main_stack)


def test_the_worker_of_a_stream_names_its_batch(script: Script, tmp_path: Path) -> None:
    process = script(LOADER, "fork", "stream")
    all_come_to_rest(process.pid)
    rank = only(capture([target(process.pid, tmp_path)], options=quick()))
    assert {worker.sample for worker in rank.workers} <= {"batch 4", "batch 5"}
    assert rank.workers


def test_a_worker_that_died_and_one_that_is_stopped(script: Script, tmp_path: Path) -> None:
    process = script(LOADER, "fork")
    children = procfs.Table.read().children(process.pid)
    stop(children[0])
    gone = 1 << 22
    loader = LoaderFacts(0, 16, epoch=0, num_workers=2, worker_pids=(gone, children[0]))
    workers = only(capture([target(process.pid, tmp_path, loaders=(loader,))], options=quick())).workers
    assert [(each.worker, each.facts.pid, each.facts.state) for each in workers[:2]] == [
        (0, gone, "X"),
        (1, children[0], "T"),
    ]


def test_workers_of_an_iterator_that_is_over_are_not_missed(script: Script, tmp_path: Path) -> None:
    loader = LoaderFacts(0, 16, epoch=0, exhausted=True, num_workers=1, worker_pids=(1 << 22,))
    process = script(SLEEP)
    assert only(capture([target(process.pid, tmp_path, loaders=(loader,))], options=quick())).workers == ()


def test_a_rank_that_is_gone_leaves_what_it_wrote(script: Script, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text("step 11\n\x1b[31mRuntimeError: boom\x1b[0m\n")
    (tmp_path / "crash-{}.txt").with_name(f"crash-{1 << 22}.txt").write_text("Fatal Python error: Segmentation fault\n")
    ring = Collectives((GroupHead("0", (0, 1), issued=3),), (Collective("0", 3, "all_reduce"),), (), "flight-recorder")
    (tmp_path / f"collectives-{1 << 22}.json").write_text(codec.dumps(ring))
    dead = target(1 << 22, tmp_path)
    rank = only(capture([Target(dead.reading, dead.board_path, (log,))], options=quick()))
    assert rank.process is not None
    assert (rank.process.state, rank.process.command) == ("X", "python train.py")
    assert rank.last_output == "step 11\nRuntimeError: boom"
    assert rank.crash_trace == "Fatal Python error: Segmentation fault"
    assert rank.collectives == ring
    assert rank.stacks == ()


def test_a_pid_that_another_process_has_now_is_gone(script: Script, tmp_path: Path) -> None:
    pid = script(SLEEP).pid
    identity = Identity(0, 2, 0, "here", pid, time.time() - 86400, "job")
    rank = only(capture([Target(Reading(identity, time.time()), tmp_path / "rank-0.board")], options=quick()))
    assert rank.process is not None
    assert (rank.process.state, rank.stacks) == ("X", ())


def test_a_rank_that_ends_during_the_capture(script: Script, tmp_path: Path) -> None:
    process = script(SLEEP)

    def end(seconds: float) -> None:
        process.kill()
        process.wait()

    rank = only(capture([target(process.pid, tmp_path)], options=quick(sleep=end)))
    assert rank.process is not None
    assert rank.process.state == "X"
    assert rank.earlier_stacks
    assert rank.stacks == ()


def test_what_a_rank_did_up_to_its_end_during_the_capture_is_read(script: Script, tmp_path: Path) -> None:
    process = script(SLEEP)
    steps = iter((4, 9))

    def reread(each: Target) -> Reading | None:
        """It goes on to step 9 after it was read, and ends there."""
        found = Reading(each.reading.identity, time.time(), progress=Progress(step=next(steps)))
        process.kill()
        process.wait()
        return found

    rank = only(capture([target(process.pid, tmp_path)], reread=reread, options=quick()))
    assert rank.process is not None
    assert rank.process.state == "X"
    assert rank.reading is not None
    assert rank.reading.progress.step == 9


def test_movement_is_a_counter_that_differs(script: Script, tmp_path: Path) -> None:
    first, second = (target(script(SLEEP).pid, tmp_path, rank) for rank in (0, 1))

    def reread(each: Target) -> Reading | None:
        if each.rank == 1:
            return None
        identity = each.reading.identity
        return Reading(identity, time.time(), progress=Progress(step=4))

    moved, still = capture([second, first], reread=reread, options=quick()).ranks
    assert (moved.rank, moved.moved) == (0, True)
    assert moved.reading is not None
    assert moved.reading.progress.step == 4
    assert (still.rank, still.moved) == (1, False)


def test_a_board_that_cannot_be_read_again_is_noted(script: Script, tmp_path: Path) -> None:
    def reread(each: Target) -> Reading | None:
        raise OSError("deleted under our feet")

    taken = capture([target(script(SLEEP).pid, tmp_path)], reread=reread, options=quick())
    assert [note.detail for note in taken.notes if note.source == "board"] == ["deleted under our feet"]


def test_collectives_are_asked_for(script: Script, tmp_path: Path) -> None:
    ring = Collectives((GroupHead("0", (0, 1), issued=7),), (Collective("0", 7, "broadcast"),), (), "flight-recorder")

    def request(board: Path, pid: int) -> None:
        (board.parent / f"collectives-{pid}.json").write_text(codec.dumps(ring))

    taken = capture([target(script(SLEEP).pid, tmp_path)], options=quick(request_collectives=request))
    assert only(taken).collectives == ring
    assert [note.ok for note in taken.notes if note.source == "collectives"] == [True]


def test_launchers_children_and_orphans(script: Script, tmp_path: Path) -> None:
    """A launcher script with two ranks; one rank has a child, and has left one behind in its session."""
    launcher = script(
        """
        import os, subprocess, sys
        rank = '''
        import os, subprocess, sys, time
        if os.fork() == 0:
            if os.fork() == 0:
                time.sleep(100)
            os._exit(0)
        os.wait()
        child = subprocess.Popen(["sleep", "100"])
        print(os.getpid(), flush=True)
        time.sleep(100)
        '''
        ranks = [
            subprocess.Popen([sys.executable, "-c", rank], stdout=subprocess.PIPE, start_new_session=True) for _ in "01"
        ]
        for each in ranks:
            each.stdout.readline()
        print("ready", flush=True)
        ranks[0].wait()
        """
    )
    pids = procfs.Table.read().children(launcher.pid)
    try:
        taken = capture([target(pid, tmp_path, rank) for rank, pid in enumerate(pids)], options=quick())
        assert [each.facts.pid for each in taken.launchers] == [launcher.pid]
        assert [each.rank for each in taken.ranks] == [0, 1]
        assert [child.facts.command for rank in taken.ranks for child in rank.children] == ["sleep 100"] * 2
        assert sorted((each.role, each.rank) for each in taken.others) == [("orphan", 0), ("orphan", 1)]
        assert "-c" in taken.others[0].facts.command
    finally:
        for pid in pids:
            os.killpg(pid, signal.SIGKILL)


def test_who_listens_on_the_master_port(script: Script, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        process = script(SLEEP)
        settings = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(server.getsockname()[1])}
        plain = target(process.pid, tmp_path).reading.identity
        identity = Identity(0, 2, 0, "here", plain.pid, plain.started_at, "job", environment=settings)
        taken = capture([Target(Reading(identity, time.time()), tmp_path / "rank-0.board")], options=quick())
    assert taken.node.master_resolves is True
    assert taken.node.master_listener is not None
    assert taken.node.master_listener.pid == os.getpid()


def test_sixty_four_tiny_processes_that_come_and_go(script: Script, tmp_path: Path) -> None:
    process = script(
        """
        import os, random, time
        def child():
            if (pid := os.fork()) == 0:
                time.sleep(random.random() * 0.4)
                os._exit(0)
            return pid
        living = [child() for _ in range(64)]
        print("ready", flush=True)
        while True:
            for pid in living:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    living.remove(pid)
                    living.append(child())
            time.sleep(0.01)
        """,
        rests=False,
    )
    for _ in range(2):
        rank = only(capture([target(process.pid, tmp_path)], options=quick()))
        assert len(rank.children) > 20
        assert rank.process is not None
        assert rank.process.state in "RS"


def test_a_target_without_a_rank_is_a_process_of_the_job(script: Script, tmp_path: Path) -> None:
    taken = capture([target(script(SLEEP).pid, tmp_path, None)], options=quick())
    assert taken.ranks == ()
    assert [each.role for each in taken.others] == ["job"]


def test_nothing_to_look_at(tmp_path: Path) -> None:
    taken = capture([], options=quick())
    assert (taken.ranks, taken.launchers, taken.others) == ((), (), ())
    assert taken.node.shm_total


def test_below_root_without_any_rank_yet(script: Script) -> None:
    root = script(
        """
        import subprocess
        child = subprocess.Popen(["sleep", "100"])
        print("ready", flush=True)
        child.wait()
        """
    )
    taken = capture([], root=root.pid, options=quick())
    assert [each.facts.pid for each in taken.launchers] == [root.pid]
    assert taken.launchers[0].stacks
    assert [(each.role, each.facts.command) for each in taken.others] == [("job", "sleep 100")]


def test_native_stacks_come_on_request(script: Script, tmp_path: Path) -> None:
    process = script(SLEEP)
    taken = capture([target(process.pid, tmp_path)], options=quick())
    assert not any(frame.native for frame in only(taken).main_stack)
    deeper = with_native_stacks(taken, [process.pid])
    assert any(frame.native for frame in only(deeper).main_stack)
    late = with_native_stacks(taken, [process.pid], most_s=0.0)
    assert only(late).stacks == only(taken).stacks
    assert late.notes[-1].detail.endswith("left out: the 0 s for native stacks were used up")


def test_a_watchdog_without_py_spy(script: Script, tmp_path: Path) -> None:
    taken = capture([target(script(SLEEP).pid, tmp_path)], options=quick(py_spy=tmp_path / "nothing"))
    assert only(taken).stacks == ()
    assert any("does not start" in note.detail for note in taken.notes if note.source == "stacks")


@pytest.mark.slow
def test_eight_ranks_with_sixteen_workers_in_time() -> None:
    # Not measured by coverage, whose share of the time is the larger one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    finished = subprocess.run(
        [sys.executable, "-c", "from hangwatch_agent.overhead import capture; print(*capture.figures())"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    seconds, workers = finished.stdout.split()
    assert int(workers) == 16
    assert float(seconds) < 5.0  # 1.5 s on a machine of its own; tests share theirs
