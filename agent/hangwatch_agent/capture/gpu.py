"""What NVIDIA's management library says of the GPUs of this machine. It never makes a CUDA context.

Every call into the driver can hang when a GPU is sick, so all of them run in a thread of their own that is given up
after its time. Xid errors are only reported to a listener: `start()` early, so that those before a hang are known.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hangwatch import words
from hangwatch.model import CaptureNote, GpuFacts
from hangwatch_agent.shared.deadline import DeadlineError, within

T = TypeVar("T")

TIMEOUT_S = 2.0
NO_GPU = "no NVIDIA GPU or driver"
_WORTHLESS = frozenset(["NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_NO_PERMISSION", "NVML_ERROR_FUNCTION_NOT_FOUND"])


class Gpus:
    """The GPUs of this machine, through NVML, which is started once and kept.

    Args:
        library: the module `pynvml`, or a stand-in; by default it is imported at the first use.
        timeout_s: how long the driver may take to answer.
    """

    def __init__(self, library: Any = None, timeout_s: float = TIMEOUT_S) -> None:
        self._library = library
        self._timeout_s = timeout_s
        self.driver = ""  # its version, once it has answered
        self._started = False
        self._busy_since: float | None = None
        self._events: Any = None
        self._xids: dict[int, list[int]] = {}

    def start(self) -> None:
        """Starts NVML and listens for Xid errors from now on. Waits at most `timeout_s`; never raises."""
        self._bounded(self._ensure_started)

    def read(self) -> tuple[tuple[GpuFacts, ...], CaptureNote]:
        """All GPUs, and how it went. Never raises."""
        began = time.monotonic()
        found, failure = self._bounded(self._read)
        return found or (), CaptureNote("gpu", not failure, failure, time.monotonic() - began)

    def close(self) -> None:
        """Shuts NVML down, if it was started."""
        if self._started:
            self._bounded(self._shut_down)

    def _bounded(self, work: Callable[[], T]) -> tuple[T | None, str]:
        """The result of `work` in a thread of its own, or why there is none."""
        if self._busy_since is not None:
            return None, f"the NVIDIA driver has not answered for {time.monotonic() - self._busy_since:.0f} s"
        self._busy_since = time.monotonic()
        try:
            return within(self._timeout_s, work, "hangwatch-gpu", finally_do=self._answered), ""
        except DeadlineError:
            return None, f"the NVIDIA driver gave no answer within {words.duration(self._timeout_s)}"
        except Exception as error:  # NVML's own errors, OSError, or a library that is not what it seems
            return None, self._in_words(error)

    def _answered(self) -> None:
        self._busy_since = None

    def _in_words(self, error: Exception) -> str:
        if isinstance(error, ImportError):
            return "nvidia-ml-py is not installed: pip install nvidia-ml-py"
        name = self._name(error)
        if name in ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED"):
            return NO_GPU
        return f"NVML: {error}"

    def _name(self, error: Exception) -> str:
        """The constant that an NVML error stands for."""
        code = getattr(error, "value", None)
        names = (name for name in dir(self._library) if name.startswith("NVML_ERROR_"))
        return next((name for name in names if getattr(self._library, name) == code), "")

    def _ensure_started(self) -> None:
        if self._library is None:
            self._library = importlib.import_module("pynvml")
        if self._started:
            return
        self._library.nvmlInit()
        self._started = True
        self.driver = self._driver_version()
        self._listen()

    def _driver_version(self) -> str:
        try:
            version = self._library.nvmlSystemGetDriverVersion()
        except (self._library.NVMLError, AttributeError):
            return ""
        return (
            version.decode() if isinstance(version, bytes) else str(version)
        )  # bytes before version 12 of the library

    def _listen(self) -> None:
        nvml = self._library
        try:
            events = nvml.nvmlEventSetCreate()
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
            self._events = events
        except (nvml.NVMLError, AttributeError):  # not in a container without the right, or an old driver
            self._events = None

    def _shut_down(self) -> None:
        self._started, self._events = False, None
        self._library.nvmlShutdown()

    def _read(self) -> tuple[GpuFacts, ...]:
        self._ensure_started()
        self._collect_xids()
        return tuple(self._gpu(index) for index in range(self._library.nvmlDeviceGetCount()))

    def _collect_xids(self) -> None:
        nvml = self._library
        while self._events is not None:
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, 0)
                index = nvml.nvmlDeviceGetIndex(event.device)
            except (nvml.NVMLError, AttributeError):  # NVML_ERROR_TIMEOUT: no event is waiting
                return
            self._xids.setdefault(index, []).append(int(event.eventData))

    def _gpu(self, index: int) -> GpuFacts:
        nvml, errors = self._library, [f"Xid {number}" for number in dict.fromkeys(self._xids.get(index, ()))]
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            return GpuFacts(index, "", "", errors=(*errors, str(error)))
        return _Device(nvml, handle, index, errors, self._name).facts()


class _Device:
    """One GPU, asked for everything; what it cannot say is None, and real errors are kept."""

    def __init__(self, nvml: Any, handle: Any, index: int, errors: list[str], name: Callable[[Exception], str]) -> None:
        self.nvml, self.handle, self.index, self.errors, self._name = nvml, handle, index, errors, name

    def facts(self) -> GpuFacts:
        nvml = self.nvml
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        rates = self._ask("nvmlDeviceGetUtilizationRates")
        processes = self._processes()
        self._look_for_errors()
        return GpuFacts(
            index=self.index,
            uuid=_text(self._ask("nvmlDeviceGetUUID")) or "",
            name=_text(self._ask("nvmlDeviceGetName")) or "",
            utilization_percent=None if rates is None else int(rates.gpu),
            power_w=_watts(self._ask("nvmlDeviceGetPowerUsage")),
            power_limit_w=_watts(self._ask("nvmlDeviceGetEnforcedPowerLimit")),
            memory_used=None if memory is None else int(memory.used),
            memory_total=None if memory is None else int(memory.total),
            temperature_c=self._ask("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            serial=_text(self._ask("nvmlDeviceGetSerial")),
            processes=processes,
            errors=tuple(dict.fromkeys(self.errors)),
        )

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except AttributeError:
            return None
        except self.nvml.NVMLError as error:
            if self._name(error) not in _WORTHLESS:
                self.errors.append(str(error))
            return None

    def _processes(self) -> dict[int, int]:
        """Memory by pid; 0 where the driver does not tell how much. In a container pids may be the host's."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses") or ()
        return {int(process.pid): int(process.usedGpuMemory or 0) for process in found}

    def _look_for_errors(self) -> None:
        nvml = self.nvml
        kinds = (getattr(nvml, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1), getattr(nvml, "NVML_VOLATILE_ECC", 0))
        if count := self._ask("nvmlDeviceGetTotalEccErrors", *kinds):
            self.errors.append(f"{count} uncorrected ECC errors since the driver started")
        remapped = self._ask("nvmlDeviceGetRemappedRows")
        if remapped and remapped[3]:
            self.errors.append("a row could not be remapped: the GPU's memory is failing")


def bound_gpu(
    pid: int, local_rank: int | None, environment: Mapping[str, str], gpus: tuple[GpuFacts, ...]
) -> int | None:
    """The index of the GPU that a rank uses: the one where it holds most memory, else the one that its settings say."""
    held = {gpu.index: gpu.processes[pid] for gpu in gpus if pid in gpu.processes}
    if held:
        return max(held, key=lambda index: held[index])
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if not gpus or local_rank is None or visible is None:
        return None
    names = [name.strip() for name in visible.split(",")]
    name = names[0] if len(names) == 1 else names[local_rank] if local_rank < len(names) else ""
    return next((gpu.index for gpu in gpus if name and (name == str(gpu.index) or gpu.uuid.startswith(name))), None)


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
