"""torch's own dumps of ranks that cannot answer: which file is a rank's, what is asked, what is used and kept."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangwatch.model import Collectives, GroupHead, NodeFacts, ProcessFacts, RankEvidence
from hangwatch_agent.capture.options import CaptureResult
from hangwatch_agent.capture.rank import torch_dumps
from hangwatch_agent.capture.rank.dump_files import ask, places
from hangwatch_agent.capture.rank.torch_dumps import TorchDumps, wants_dump
from tests.dumps import Job, Op, alike, loop
from tests.unit.agent.readings import reading

STEP = (Op("all_reduce", 20), Op("all_reduce", 21))


def job(turns: int = 6, **options: Any) -> Job:
    """Two ranks; rank 1 stops one call before the end."""
    program = loop(turns, *STEP)
    return Job(2, alike(2, program, rank1=program[:-1]), **options)


def evidence(
    rank: int = 1, *, state: str = "S", completed: int = 10, source: str = "board", **parts: Any
) -> RankEvidence:
    """A rank of an NCCL job of which only the board is known."""
    heads = (GroupHead("0", (0, 1), backend="nccl", issued=completed, completed=completed),)
    found = reading(rank, heads=heads, **parts)
    pid = found.identity.pid
    collectives = Collectives(heads, source=source)
    return RankEvidence(rank, "node-a", pid, found, ProcessFacts(pid, state), collectives=collectives)


def taken(*ranks: RankEvidence) -> CaptureResult:
    return CaptureResult(20.0, ranks, (), (), NodeFacts("node-a"), ())


class Clock:
    """Sleeps by turning the hands, and does something at each nap."""

    def __init__(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.now, self.meanwhile = 100.0, meanwhile

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "run"
    found.mkdir()
    return found


def dumps(folder: Path, clock: Clock | None = None, **options: Any) -> TorchDumps:
    clock = clock or Clock()
    home = {"HOME": str(folder.parent / "home")}
    return TorchDumps(folder, folder.parent / "kept", clock, clock.sleep, home, **options)


def write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(document, protocol=2))
    return path


def test_only_ranks_on_nccl_that_did_not_answer_want_a_dump() -> None:
    assert wants_dump(evidence())
    assert not wants_dump(evidence(source="flight-recorder"))
    assert wants_dump(evidence(source="flight-recorder", state="X"))
    gloo = (GroupHead("0", (0, 1), backend="gloo", issued=3, completed=3),)
    assert not wants_dump(replace(evidence(), collectives=Collectives(gloo)))


@pytest.mark.parametrize(
    "place", ["run/torch-dump-rank-1", "home/.cache/torch/comm_lib_trace_rank_1", "home/.cache/torch/nccl_trace_rank_1"]
)
def test_a_dump_of_a_dead_rank_is_found_used_and_kept(folder: Path, place: str) -> None:
    # GIVEN a rank that torch's watchdog has aborted, and the dump that it wrote before
    path = write(folder.parent / place, job(timed=True).document(1))
    # WHEN the evidence is completed
    found = dumps(folder).completed(taken(evidence(0, source="flight-recorder"), evidence(state="X", completed=9)))
    # THEN the rank's calls are those of its recorder, with their lines, and the dump lies beside the reports
    collectives = found.ranks[1].collectives
    assert collectives.source == "flight-recorder"
    assert (collectives.heads[0].issued, collectives.heads[0].completed) == (11, 11)
    assert collectives.recent[-1].frames[1].line == 20
    assert found.ranks[0].collectives.recent == ()
    (note,) = found.notes
    assert note.ok
    assert note.rank == 1
    kept = folder.parent / "kept" / "rank_1"
    assert kept.read_bytes() == path.read_bytes()
    assert kept.stat().st_mode & 0o077 == 0
    assert str(kept) in note.detail


def test_what_torch_gave_up_is_not_complete(folder: Path) -> None:
    """Its watchdog retires a call that has timed out: that is no completion."""
    write(folder / "torch-dump-rank-0", job(expired=True).document(0))
    found = dumps(folder).completed(taken(evidence(0, state="X", completed=9)))
    head, *_ = found.ranks[0].collectives.heads
    assert (head.issued, head.completed) == (12, 11)
    assert found.ranks[0].collectives.recent[-1].retired is False


def test_sends_and_receives_take_no_number_of_a_collective(folder: Path) -> None:
    program = [Op("all_reduce", 20), Op("send", 21, peer=1), Op("send", 21, peer=1)]
    other = [Op("all_reduce", 20), Op("recv", 30, peer=0), Op("recv", 30, peer=0)]
    write(folder / "torch-dump-rank-0", Job(2, {0: program, 1: other}).document(0))
    found = dumps(folder).completed(taken(evidence(0, state="X", completed=1)))
    assert [call.op for call in found.ranks[0].collectives.recent] == ["all_reduce"]


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (lambda: job(turns=2).document(1), "older than the rank's last calls: it ends with"),
        (lambda: {**job().document(1), "entries": []}, "older than the rank's last calls: it records none"),
        (lambda: Job(3, alike(3, loop(6, *STEP))).document(1), "3 ranks"),
        (lambda: {"entries": [{"process_group": ["0", ""]}]}, "shape"),
        (lambda: {"entries": "no list"}, "shape"),
        (lambda: {"other": 1}, "no dump"),
        (lambda: [1, 2], "no dump"),
    ],
)
def test_a_dump_of_another_job_is_not_used(folder: Path, document: Callable[[], Any], why: str) -> None:
    write(folder.parent / "home/.cache/torch/comm_lib_trace_rank_1", document())
    found = dumps(folder).completed(taken(evidence(state="X")))
    assert found.ranks[0].collectives.source == "board"
    assert not found.notes[0].ok
    assert why in found.notes[0].detail


def test_a_dump_from_before_the_rank_was_started_is_not_used(folder: Path) -> None:
    rank = evidence(state="X")
    assert rank.reading is not None
    identity = replace(rank.reading.identity, started_at=time.time() + 3600)
    write(folder / "torch-dump-rank-1", job().document(1))
    found = dumps(folder).completed(taken(replace(rank, reading=replace(rank.reading, identity=identity))))
    assert found.ranks[0].collectives.source == "board"


def test_nothing_is_followed_or_executed(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret", job().document(1))
    (folder / "torch-dump-rank-1").symlink_to(tmp_path / "secret")
    found = dumps(folder).completed(taken(evidence(state="X")))
    assert found.ranks[0].collectives.source == "board"
    (folder / "torch-dump-rank-1").unlink()
    (folder / "torch-dump-rank-1").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    assert not dumps(folder).completed(taken(evidence(state="X"))).notes[0].ok
    os.mkfifo(folder / "torch-dump-rank-0")
    assert not dumps(folder).completed(taken(evidence(0, state="X"))).notes[0].ok


def test_a_living_rank_is_asked_through_its_pipe(folder: Path) -> None:
    # GIVEN a pipe with a reader that writes the dump when it is asked
    pipe = folder / "torch-dump-rank-1.pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    asked: list[bytes] = []

    def torch() -> None:
        if not asked:
            asked.append(os.read(descriptor, 128))
            write(folder / "torch-dump-rank-1", job().document(1))

    # WHEN the evidence is completed, twice
    clock = Clock(torch)
    watch = dumps(folder, clock)
    first = watch.completed(taken(evidence(completed=9)))
    began = clock.now
    second = watch.completed(taken(evidence(completed=9)))
    os.close(descriptor)
    # THEN the rank was asked once, and its dump serves both times: it has not moved since
    assert asked == [b"1\n"]
    assert first.ranks[0].collectives.source == second.ranks[0].collectives.source == "flight-recorder"
    assert clock.now == began


def test_a_rank_that_does_not_answer_costs_a_deadline_once(folder: Path) -> None:
    pipe = folder / "torch-dump-rank-1.pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    clock = Clock()
    watch = dumps(folder, clock)
    first = watch.completed(taken(evidence()))
    waited = clock.now - 100.0
    second = watch.completed(taken(evidence()))
    os.close(descriptor)
    assert torch_dumps.ASK_S <= waited < torch_dumps.ASK_S + 1
    assert "none came" in first.notes[0].detail
    assert clock.now == 100.0 + waited
    assert "less than a minute ago" in second.notes[0].detail


def test_a_rank_whose_own_thread_has_just_run_is_not_asked(folder: Path) -> None:
    """At the start of a job, CUDA may keep it for a second; a C call that holds the lock does so for good."""
    pipe = folder / "torch-dump-rank-1.pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    found = dumps(folder).completed(taken(evidence(ticker_at=18.5)))
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
    assert "may answer the next time" in found.notes[0].detail


def test_a_stopped_rank_is_not_asked(folder: Path) -> None:
    pipe = folder / "torch-dump-rank-1.pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    found = dumps(folder).completed(taken(evidence(state="T")))
    assert os.read(descriptor, 1) == b""
    os.close(descriptor)
    assert "stopped" in found.notes[0].detail


def test_a_pipe_without_a_reader_is_not_waited_for(folder: Path) -> None:
    assert "no pipe file" in ask(folder / "nothing", os.getuid())
    os.mkfifo(folder / "pipe")
    assert "no process reads" in ask(folder / "pipe", os.getuid())
    (folder / "file").touch()
    assert "no pipe" in ask(folder / "file", os.getuid())
    assert (folder / "file").read_bytes() == b""


def test_a_pipe_that_is_full_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    descriptor = os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)
    os.write(descriptor, b"x" * (1 << 20))  # as much as there is room for
    assert "full" in ask(folder / "pipe", os.getuid())
    os.close(descriptor)


def test_the_users_own_places_come_first(folder: Path) -> None:
    settings = {"TORCH_FR_DUMP_TEMP_FILE": "/data/trace_", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "mine/rank"}
    found = places(3, folder, settings, {"XDG_CACHE_HOME": "/cache"}, Path("/work"))
    assert found[:3] == [Path("/data/trace_3"), Path("/work/mine/rank3"), folder / "torch-dump-rank-3"]
    assert Path("/cache/torch/comm_lib_trace_rank_3") in found
    assert Path("/tmp/nccl_trace_rank_3") in found
    assert Path("mine/rank3") not in places(3, folder, settings, {}, None)


def test_what_is_left_in_the_jobs_folder_is_kept(folder: Path) -> None:
    watch = dumps(folder)
    assert watch.keep_rest() is None
    write(folder / "torch-dump-rank-0", job().document(0))
    os.mkfifo(folder / "torch-dump-rank-0.pipe")
    assert watch.keep_rest() == folder.parent / "kept"
    assert [path.name for path in (folder.parent / "kept").iterdir()] == ["rank_0"]
    # a file is copied again only when it has been written again
    (folder.parent / "kept" / "rank_0").unlink()
    watch.keep_rest()
    assert list((folder.parent / "kept").iterdir()) == []
    os.utime(write(folder / "torch-dump-rank-0", job(turns=3).document(0)), (2e9, 2e9))
    watch.keep_rest()
    assert [path.name for path in (folder.parent / "kept").iterdir()] == ["rank_0"]


def test_a_folder_that_cannot_be_written_is_told(folder: Path) -> None:
    write(folder / "torch-dump-rank-1", job().document(1))
    (folder.parent / "kept").touch()
    found = dumps(folder).completed(taken(evidence(state="X", completed=9)))
    assert found.ranks[0].collectives.source == "flight-recorder"
    assert "could not be copied" in found.notes[0].detail
