"""Settings that differ or hurt, and those that may differ."""

from __future__ import annotations

import pytest

from hangwatch.health import warnings
from tests.unit.health.readings import kinds, reading


@pytest.mark.parametrize(
    ("backend", "name", "values", "told"),
    [
        ("cuda:nccl", "NCCL_SOCKET_IFNAME", ("eth0", "eth1"), "differs between ranks: eth0 on rank 0, eth1 on rank 1"),
        ("gloo", "GLOO_SOCKET_IFNAME", ("eth0", ""), "differs between ranks"),
        ("gloo", "NCCL_SOCKET_IFNAME", ("eth0", "eth1"), ""),
        ("cuda:nccl", "NCCL_DEBUG", ("INFO", "WARN"), ""),
        ("cuda:nccl", "NCCL_IB_HCA", ("mlx5_0", "mlx5_1"), ""),
        ("cuda:nccl", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", ("/dev/shm/run-1/dump", ""), ""),  # hangwatch's own
        ("cuda:nccl", "TORCH_NCCL_ASYNC_ERROR_HANDLING", ("0", "0"), "errors become hangs"),
        ("cuda:nccl", "TORCH_NCCL_ASYNC_ERROR_HANDLING", ("1", "1"), ""),
        ("gloo", "TORCH_DISTRIBUTED_DEBUG", ("DETAIL", "INFO"), "DETAIL on rank 0: torch checks"),
    ],
)
def test_settings(backend: str, name: str, values: tuple[str, str], told: str) -> None:
    found = warnings([reading(rank, environment={name: value}, backend=backend) for rank, value in enumerate(values)])
    assert kinds(found) == (["nccl-environment"] if told else [])
    assert all(told in each.summary for each in found)
