"""The GPUs, with a stand-in for NVIDIA's library: its functions, its structures, its errors."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from hangwatch.model import GpuFacts
from hangwatch_agent.capture.gpu import NO_GPU, Gpus, bound_gpu


class NVMLError(Exception):
    def __init__(self, value: int, text: str = "") -> None:
        super().__init__(text)
        self.value = value


class StandIn:
    """Two healthy GPUs; tests break what they need broken."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_DRIVER_NOT_LOADED = 9
    NVML_ERROR_TIMEOUT = 10
    NVML_ERROR_LIBRARY_NOT_FOUND = 12
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_TEMPERATURE_GPU = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_VOLATILE_ECC = 0
    nvmlEventTypeXidCriticalError = 8  # noqa: N815 - NVIDIA's name

    def __init__(self) -> None:
        self.initialised = 0
        self.xids: list[tuple[int, int]] = []
        self.ecc = 0
        self.lost: set[int] = set()

    def nvmlInit(self) -> None:  # noqa: N802
        self.initialised += 1

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"545.23.08"

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index in self.lost:
            raise NVMLError(self.NVML_ERROR_GPU_IS_LOST, "GPU is lost")
        return index

    def nvmlDeviceGetIndex(self, handle: int) -> int:  # noqa: N802
        return handle

    def nvmlEventSetCreate(self) -> object:  # noqa: N802
        return object()

    def nvmlDeviceRegisterEvents(self, handle: int, kinds: int, events: object) -> None:  # noqa: N802
        assert kinds == self.nvmlEventTypeXidCriticalError

    def nvmlEventSetWait_v2(self, events: object, timeout: int) -> Any:  # noqa: N802
        if not self.xids:
            raise NVMLError(self.NVML_ERROR_TIMEOUT, "Timeout")
        handle, number = self.xids.pop(0)
        return SimpleNamespace(device=handle, eventData=number)

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:  # noqa: N802
        return f"GPU-{handle}abc".encode()

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "NVIDIA H200"

    def nvmlDeviceGetSerial(self, handle: int) -> str:  # noqa: N802
        raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED, "Not Supported")

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(used=5, total=9)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=100, memory=0)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return 91_500

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:  # noqa: N802
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:  # noqa: N802
        return 41

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=100 + handle, usedGpuMemory=None if handle else 77)]

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:  # noqa: N802
        return self.ecc if handle == 0 else 0


def test_figures_of_every_gpu() -> None:
    library = StandIn()
    gpus = Gpus(library)
    (first, second), note = gpus.read()
    assert note.ok
    assert first == GpuFacts(0, "GPU-0abc", "NVIDIA H200", 100, 91.5, 700.0, 5, 9, 41, None, {100: 77})
    assert (second.index, second.processes) == (1, {101: 0})
    gpus.read()
    assert library.initialised == 1
    gpus.close()
    assert library.initialised == 0


def test_faults_are_named() -> None:
    library = StandIn()
    gpus = Gpus(library)
    gpus.start()
    library.xids, library.ecc = [(0, 79), (0, 79), (1, 48)], 2
    first, second = gpus.read()[0]
    assert first.errors == ("Xid 79", "2 uncorrected ECC errors since the driver started")
    assert second.errors == ("Xid 48",)
    library.lost.add(1)
    assert gpus.read()[0][1].errors == ("Xid 48", "GPU is lost")


def test_a_gpu_that_gets_lost_while_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()

    def lost(handle: int) -> Any:
        raise NVMLError(library.NVML_ERROR_GPU_IS_LOST, "GPU is lost")

    monkeypatch.setattr(library, "nvmlDeviceGetUtilizationRates", lost)
    assert Gpus(library).read()[0][0].errors == ("GPU is lost",)


def test_an_old_driver_without_events(monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()

    def refuse() -> Any:
        raise NVMLError(library.NVML_ERROR_NO_PERMISSION, "Insufficient Permissions")

    monkeypatch.setattr(library, "nvmlEventSetCreate", refuse)
    assert Gpus(library).read()[1].ok


@pytest.mark.parametrize("value", [9, 12])
def test_no_driver(value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    library = StandIn()

    def fail() -> None:
        raise NVMLError(value, "whatever")

    monkeypatch.setattr(library, "nvmlInit", fail)
    found, note = Gpus(library).read()
    assert (found, note.ok, note.detail) == ((), False, NO_GPU)


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Gpus().read()[1].detail == "nvidia-ml-py is not installed: pip install nvidia-ml-py"


def test_a_driver_that_hangs_is_given_up_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    library, release = StandIn(), threading.Event()
    monkeypatch.setattr(library, "nvmlDeviceGetUtilizationRates", lambda handle: release.wait(60))
    gpus = Gpus(library, timeout_s=0.1)
    began = time.monotonic()
    assert gpus.read()[1].detail == "the NVIDIA driver gave no answer within 0.1 s"
    assert gpus.read()[1].detail.startswith("the NVIDIA driver has not answered for")
    assert time.monotonic() - began < 30
    release.set()


TWO = (GpuFacts(0, "GPU-a", "x", processes={5: 10}), GpuFacts(1, "GPU-b", "x", processes={5: 99, 6: 1}))


@pytest.mark.parametrize(
    ("pid", "local_rank", "visible", "gpu"),
    [
        (5, 0, None, 1),  # what it really holds counts more than what it was told
        (7, 1, "0,1", 1),
        (7, 0, "1,0", 1),
        (7, 3, "1", 1),
        (7, 0, "GPU-b", 1),
        (7, 5, "0,1", None),
        (7, 0, "", None),
        (7, 0, None, None),
        (7, None, "0", None),
    ],
)
def test_which_gpu_a_rank_uses(pid: int, local_rank: int | None, visible: str | None, gpu: int | None) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert bound_gpu(pid, local_rank, environment, TWO) == gpu
    assert bound_gpu(7, local_rank, environment, ()) is None


def test_the_drivers_version() -> None:
    gpus = Gpus(StandIn())
    assert gpus.driver == ""
    gpus.read()
    assert gpus.driver == "545.23.08"


def test_a_driver_that_does_not_tell_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(StandIn, "nvmlSystemGetDriverVersion")
    gpus = Gpus(StandIn())
    assert gpus.read()[1].ok
    assert gpus.driver == ""
