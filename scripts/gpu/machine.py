"""What this machine has, and what it lacks for a run under NCCL."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
import time
from pathlib import Path
from typing import Any

PACKAGES = ("psutil", "rich", "pynvml")  # what hangwatch itself needs; without py-spy it has no stacks
NAMES = {"pynvml": "nvidia-ml-py"}


def lacks(rehearse: bool) -> str:
    """In one sentence what is missing here; "" where everything is there."""
    which = f"{sys.executable} (make gpu GPU_PYTHON=/path/to/python takes another)"
    for name in ("torch", *PACKAGES):
        if importlib.util.find_spec(name) is None:
            return f"{NAMES.get(name, name)} is not installed for {which}"
    if rehearse:
        return ""
    if find_py_spy() is None:
        return f"py-spy is not installed for {which}"
    torch = _torch()
    if not torch.version.cuda:
        return f"torch {torch.__version__} is built without CUDA, in {which}"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU on this machine"
    if not torch.distributed.is_nccl_available():
        return f"torch {torch.__version__} is built without NCCL"
    return ""


def find_py_spy() -> str | None:
    """The program, where pip puts it."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return shutil.which("py-spy", path=beside)


def described(ranks: int, rehearse: bool) -> dict[str, str]:
    """GPU, driver and versions."""
    torch = _torch()
    found = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "ranks": str(ranks),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
    if rehearse:
        return found | {"backend": "gloo, as a rehearsal without a GPU"}
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return {"GPU": torch.cuda.get_device_name(0), "driver": _driver(), "NCCL": nccl, **found}


def _driver() -> str:
    nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        said = nvml.nvmlSystemGetDriverVersion()
    finally:
        nvml.nvmlShutdown()
    return said.decode() if isinstance(said, bytes) else str(said)


def _torch() -> Any:
    return importlib.import_module("torch")
