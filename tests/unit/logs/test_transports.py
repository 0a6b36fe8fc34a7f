"""Networks of NCCL that differ between the hosts of a job."""

from __future__ import annotations

from pathlib import Path

from tests.unit.logs.lines import judged, set_up


def using(rank: int, network: str, host: str) -> str:
    return f"{host}:{4000 + rank}:{5000 + rank} [{rank % 2}] NCCL INFO Using network {network}"


def begun(networks: str) -> list[str]:
    hosts = [f"gpu-{'ab'[rank // 2]}" for rank in range(4)]
    lines = [set_up(rank, "START", host=hosts[rank]) for rank in range(4)]
    return [*(using(rank, name, hosts[rank]) for rank, name in enumerate(networks.split())), *lines]


def test_hosts_with_other_networks_do_not_connect(tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join(begun("IB IB Socket Socket"))).judgement
    assert found is not None
    assert found.verdict.cause == "launch-mismatch"
    assert "IB on gpu-a (ranks 0-1) and Socket on gpu-b (ranks 2-3)" in found.verdict.summary


def test_one_network_or_a_set_up_that_ends_is_no_mismatch(tmp_path: Path) -> None:
    found = judged(tmp_path, "\n".join(begun("IB IB IB IB"))).judgement
    assert found is not None
    assert found.verdict.cause != "launch-mismatch"
    whole = [set_up(rank, "COMPLETE", host=f"gpu-{'ab'[rank // 2]}") for rank in range(4)]
    assert judged(tmp_path, "\n".join([*begun("IB IB Socket Socket"), *whole])).judgement is None
