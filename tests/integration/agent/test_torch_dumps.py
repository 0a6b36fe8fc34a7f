"""A rank that cannot answer from Python is asked through torch's pipe: real processes, torch's thread a stand-in."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import psutil
import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from hangwatch.settings import Settings
from hangwatch_agent.rank import probe
from hangwatch_agent.shared import dump_defaults
from tests.integration.playing import play_command
from tests.ras_standin import communicator, document, serving
from tests.ras_standin import rank as ras_rank

SCRIPT = Path(__file__).parents[1] / "scripts" / "silent_rank.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def ras_answer() -> bytes:
    """What NCCL's RAS service would say of the two ranks, which are the newest of that script."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            if str(SCRIPT) in (process.info["cmdline"] or []) and "RANK" in process.environ():
                found[int(process.environ()["RANK"])] = process.pid
    return document(communicator(*(ras_rank(rank, pid, 61 - rank) for rank, pid in sorted(found.items()))))


@pytest.mark.slow
def test_a_silent_ranks_own_dump_is_asked_for_used_and_kept(tmp_path: Path) -> None:
    # GIVEN two ranks, one of which holds its interpreter lock, with a stand-in for the thread that writes torch's dumps
    # and one for NCCL's RAS service
    # WHEN `hangwatch run` watches them, and nothing but the script has been told of dumps
    with serving(ras_answer) as service:
        settings = {"NCCL_RAS_ADDR": service.place}
        played = play_command([*TORCHRUN, str(SCRIPT)], tmp_path, seconds=90.0, environment=settings)
    # THEN the report has the rank's calls as its recorder has them, and the dump lies beside it
    assert played.incident is not None, played.output
    (note,) = [note for note in played.incident.capture if note.source == "torch's dump" and note.rank == 1]
    assert note.ok, note.detail
    silent = next(rank for rank in played.incident.ranks if rank.rank == 1)
    assert silent.collectives.source == "flight-recorder"
    assert silent.collectives.recent[-1].frames[0].file == "/recorded/train.py"
    (kept,) = tmp_path.rglob("torch-dumps-*/rank_1")
    assert str(kept.name) in note.detail
    assert [who.rank for who in played.incident.verdict.culprits] == [1]
    # and NCCL's own counts stand in the evidence, under the ranks' numbers
    assert any("61 by rank 0, 60 by rank 1" in sentence for sentence in played.incident.verdict.evidence)


@pytest.mark.parametrize("nccl", [True, False])
def test_attach_asks_too_and_detach_takes_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nccl: bool) -> None:
    # GIVEN a rank that has attached, on a backend that is said to be NCCL or not
    before = dict(os.environ)
    monkeypatch.setattr(dump_defaults, "may_use_nccl", lambda torch, backend: nccl)
    installed = probe.install(Settings(), tmp_path)
    # WHEN it makes its process group
    try:
        dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
        asked = os.environ.get(dump_defaults.PIPE)
        dist.destroy_process_group()
    finally:
        installed.remove()
    # THEN torch is asked for dumps where that may be of use, and afterwards the environment is as it was
    assert asked == (f"{tmp_path}/torch-dump-rank-" if nccl else None)
    assert {name for name in os.environ.keys() ^ before.keys() if name.startswith("TORCH_")} == set()
