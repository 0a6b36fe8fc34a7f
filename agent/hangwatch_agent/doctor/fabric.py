"""PCI and InfiniBand as sysfs shows them: what slows or stops GPUs that talk to each other and to other hosts."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hangwatch.doctor.model import Fabric

SYS = Path("/sys")
ACS, BRIDGE = 0x000D, 0x06
REDIRECTS = 0x1C  # of the ACS control register: P2P request, completion, upstream forwarding
MOST_GIDS = 16


def read(nvml: Any = None, root: Path = SYS) -> Fabric:
    return Fabric(
        iommu=any((root / "class/iommu").glob("*")),
        acs_bridges=tuple(acs_bridges(root)),
        ports=tuple(ports(root)),
        gids=tuple(gids(root)),
        no_peer_access=tuple(no_peer_access(nvml)) if nvml is not None else (),
    )


def acs_bridges(root: Path = SYS) -> Iterator[str]:
    """PCI bridges whose access control sends peer-to-peer traffic up to the root. Needs root to be read."""
    for device in sorted((root / "bus/pci/devices").glob("*")):
        with contextlib.suppress(OSError, ValueError, struct.error):
            if int((device / "class").read_text(), 16) >> 16 == BRIDGE and _acs_control(device) & REDIRECTS:
                yield device.name


def _acs_control(device: Path) -> int:
    """The ACS control register, 0 where the device has none. Source: PCI Express base specification, 7.7.7."""
    config = (device / "config").read_bytes()
    at, seen = 0x100, 0
    while 0x100 <= at <= len(config) - 8 and seen < 64:
        header = struct.unpack_from("<I", config, at)[0]
        if header & 0xFFFF == ACS:
            control: int = struct.unpack_from("<H", config, at + 6)[0]
            return control
        at, seen = header >> 20, seen + 1
    return 0


def ports(root: Path = SYS) -> Iterator[str]:
    """Each port of an InfiniBand or RoCE device: "mlx5_0/1 Ethernet ACTIVE"."""
    for port in _ports(root):
        kind = (port / "link_layer").read_text().strip()
        state = (port / "state").read_text().partition(":")[2].strip()
        yield f"{port.parent.parent.name}/{port.name} {kind} {state}"


def gids(root: Path = SYS) -> Iterator[str]:
    """The addresses of RoCE ports, by their index: "mlx5_0/1 3 RoCE v2 0000:...:0a00:0001"."""
    for port in _ports(root):
        for number in range(MOST_GIDS):
            with contextlib.suppress(OSError):
                gid = (port / "gids" / str(number)).read_text().strip()
                kind = (port / "gid_attrs/types" / str(number)).read_text().strip()
                if gid.strip("0:"):
                    yield f"{port.parent.parent.name}/{port.name} {number} {kind} {gid}"


def _ports(root: Path) -> list[Path]:
    return sorted((root / "class/infiniband").glob("*/ports/*"))


def no_peer_access(nvml: Any) -> Iterator[str]:
    """Pairs of GPUs that cannot read each other's memory, with NVML's reason."""
    reasons = {1: "chipset not supported", 2: "GPU not supported", 3: "the path between them does not allow it"}
    reasons |= {4: "disabled by a setting", 5: "not supported"}
    with contextlib.suppress(AttributeError, nvml.NVMLError):
        count = nvml.nvmlDeviceGetCount()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        for one in range(count):
            for other in range(one + 1, count):
                status = nvml.nvmlDeviceGetP2PStatus(handles[one], handles[other], 0)  # 0: reads
                if status in reasons:
                    yield f"GPU {one} - GPU {other}: {reasons[status]}"
