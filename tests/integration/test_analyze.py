"""hangwatch analyze on dumps that a real job has written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hangwatch import recorder
from hangwatch.commands import evidence_files, evidence_snapshots, main
from tests.ports import free_port

JOB = """
import json, os, sys, threading, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

rank, folder = int(os.environ["RANK"]), Path(sys.argv[1])

def until(condition) -> None:
    while not condition():
        time.sleep(0.05)

def hangs() -> bool:
    return [entry["retired"] for entry in json.loads(_dump_fr_trace_json())["entries"]] == [True] * 3 + [False]

def dump() -> None:
    until(hangs)
    (folder / f"fr_{rank}.json").write_bytes(_dump_fr_trace_json())
    (folder / f"trace_rank_{rank}").write_bytes(_dump_fr_trace())
    (folder / f"done_{rank}").touch()
    until(lambda: len(list(folder.glob("done_*"))) == 3)  # the first to leave would end what the others wait for
    os._exit(0)

dist.init_process_group("gloo")
dist.new_group([0, 1])
for _ in range(3):
    dist.all_reduce(torch.ones(10, 2))
threading.Thread(target=dump).start()
if rank == 2:
    dist.barrier()
else:
    dist.all_reduce(torch.ones(5))
"""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three ranks in which rank 2 issued a barrier where the others issued an all_reduce."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "job.py").write_text(JOB)
    shared = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(folder / "job.py"), str(folder)], env={**os.environ, **shared, "RANK": str(rank)}
        )
        for rank in range(3)
    ]
    for process in ranks:
        assert process.wait(200) == 0
    return folder


@pytest.mark.parametrize("pattern", ["fr_*.json", "trace_rank_*"])
def test_real_dumps_are_evidence(dumps: Path, pattern: str) -> None:
    pile = evidence_files.sort_out(sorted(dumps.glob(pattern)))
    (snapshot,) = evidence_snapshots.snapshots(pile)
    assert pile.problems == []
    assert snapshot.job.world_size in (3, None)  # the last group's configuration hides the first one's
    assert [rank.collectives.recent[-1].op for rank in snapshot.ranks] == ["all_reduce", "all_reduce", "barrier"]
    assert [rank.collectives.recent[-1].retired for rank in snapshot.ranks] == [False] * 3
    for rank in snapshot.ranks:
        head = next(head for head in rank.collectives.heads if head.description == "default_pg")
        assert (head.members, head.backend, head.issued, head.completed) == ((0, 1, 2), "gloo", 4, 3)
    frames = snapshot.ranks[0].collectives.recent[-1].frames
    if pattern == "trace_rank_*":  # only the pickles have call sites
        assert frames[-1].file == str(dumps / "job.py")
    else:
        assert frames == ()


def test_the_ranks_of_pickles_are_in_their_names(dumps: Path) -> None:
    assert sorted(filter(None, map(recorder.rank_of, dumps.glob("trace_rank_*")))) == [1, 2]


def test_they_are_judged(dumps: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", *map(str, sorted(dumps.glob("trace_rank_*")))]) == 0
    out = capsys.readouterr().out
    assert out.startswith("hangwatch: from 3 dumps:\n\nhangwatch: HUNG")
    told = " ".join(out.split())
    assert "rank 2 calls barrier (job.py:" in told
    assert "who rank 2" in told
