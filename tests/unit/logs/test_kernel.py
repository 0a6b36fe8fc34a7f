"""What a kernel log says of GPUs."""

from __future__ import annotations

import pytest

from hangwatch.logs import Logs, kernel


@pytest.mark.parametrize("bus", ["GPU-1a2b", "", "PCI:<unknown>", "PCI:", "-1", "1_0"])
def test_an_address_that_is_none_is_kept_as_it_is(bus: str) -> None:
    logs = Logs()
    assert kernel.take(f"NVRM: Xid ({bus}): 79, pid=5", logs)
    assert [said.gpu for said in logs.kernel.values()] == [bus.removeprefix("PCI:")]


@pytest.mark.parametrize("said", ["0000:4f:00", "0000:4F:00.0", "4f000"])
def test_addresses_of_one_gpu(said: str) -> None:
    assert kernel.pci_address(said) == "0000:4f:00"
