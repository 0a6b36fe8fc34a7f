"""Warnings of NCCL that are no failure: what it does without, and what the same log goes on behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangwatch.logs import Logs, read
from tests.unit.logs.lines import gave_up, judged, set_up

OPEN = "gpu-a:4000:4000 [0] misc/ibvwrap.cc:94 NCCL WARN Call to ibv_open_device failed"
REFUSED = "gpu-a:4000:4001 [0] misc/socket.cc:484 NCCL WARN Connect to 10.0.0.1<48425> failed : Connection refused"
PORT = "gpu-a:4000:4001 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error"
EVENT = "gpu-a:4000:4001 [0] transport/net_ib.cc:94 NCCL WARN NET/IB : mlx5_0:1 Got async event : GID table change"
COMPLETE = (
    "gpu-a:4000:4001 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 1 cudaDev 0 commId 0x2 - Init COMPLETE"
)
DESTROYED = "gpu-a:4000:4001 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1b - Destroy COMPLETE"
STEPS = [f"step {turn} loss {3 - turn / 100:.2f}" for turn in range(4)]
BAR = "\r".join(f" {turn}%|#    | {turn}/100 [00:0{turn}<01:00, 1.6it/s]" for turn in range(5))
WAITS = [f"still waiting for rank 3 after {turn}0 s" for turn in range(1, 6)]


@pytest.mark.parametrize("behind", [STEPS, [BAR], [COMPLETE], [DESTROYED]], ids=["steps", "bar", "set up", "destroyed"])
@pytest.mark.parametrize("warning", [REFUSED, PORT])
def test_a_warning_behind_which_the_log_goes_on_is_no_failure(warning: str, behind: list[str], tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join([warning, *behind]))
    assert found.judgement is None
    assert any(said.startswith("NCCL warned, which is no failure by itself: gpu-a: ") for said in found.sentences)


@pytest.mark.parametrize("behind", [[], STEPS[:2], WAITS, [STEPS[0]] * 5], ids=["end", "few", "waits", "no count"])
def test_a_warning_at_the_end_of_a_log_tells_of_a_network_that_fails(behind: list[str], tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join([*STEPS, PORT, *behind])).judgement
    assert found is not None
    assert found.verdict.cause == "interconnect-stall"


@pytest.mark.parametrize("warning", [OPEN, EVENT])
def test_what_nccl_does_without_is_no_failure(warning: str, tmp_path: Path) -> None:
    assert judged(tmp_path, warning).judgement is None


def test_steps_in_the_log_of_another_rank_do_not_tell_when_they_were(tmp_path: Path) -> None:
    logs = Logs()
    for name, lines in (("rank1.log", [PORT]), ("rank2.log", STEPS)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        read(tmp_path / name, logs)
    assert [bool(known.pending) for known in logs.warnings.values()] == [True]


def test_such_a_warning_makes_no_wire_of_a_later_hang(tmp_path: Path) -> None:
    """It stays evidence."""
    waits = [gave_up(rank, 90) for rank in range(4)]
    lines = [*(set_up(rank, word) for word in ("START", "COMPLETE") for rank in range(4)), REFUSED, *STEPS, *waits]
    found = judged(tmp_path, "\n".join(lines)).judgement
    assert found is not None
    assert found.verdict.certainty != "likely"
    assert any(said.endswith("which is no failure by itself") for said in found.verdict.evidence)


def test_a_port_that_is_active_again_is_no_fault(tmp_path: Path) -> None:
    again = "gpu-a:4000:4001 [0] NCCL INFO NET/IB : mlx5_0:1 Got async event : port active"
    assert judged(tmp_path, f"{PORT}\n{again}").judgement is None
    assert judged(tmp_path, f"{PORT}\n{again.replace('gpu-a', 'gpu-b')}").judgement is not None


def test_an_adapter_of_another_kind_that_fails_is_told_alike(tmp_path: Path) -> None:
    said = "gpu-a:4000:4001 [0] nccl_net_ofi_rdma:1234 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 113."
    found = judged(tmp_path, said).judgement
    assert found is not None
    assert "NET/OFI Request" in found.verdict.summary
