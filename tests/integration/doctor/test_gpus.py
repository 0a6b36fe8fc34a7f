"""The checks of GPUs, with real probes that load a stand-in of NVIDIA's C library."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hangwatch import doctor
from hangwatch.doctor import Report
from tests import needs

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libnvidia-ml.so.1 of ours."""
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).parent / "nvml.c"
    command = [str(needs.program("cc")), "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(command, check=True)
    return folder


def checked(library: Path, wrong: str) -> Report:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML": wrong, "OMP_NUM_THREADS": "1"}
    return doctor.run(nproc=1, environment=environment, seconds=50)


def of(report: Report, name: str) -> list[str]:
    return [f"{check.state}: {check.found}" for check in report.checks if (check.family, check.name) == ("gpus", name)]


def test_gpus_that_are_broken_and_held(library: Path) -> None:
    report = checked(library, "ecc held nop2p")
    assert of(report, "GPUs") == ["ok: 2 x NVIDIA Stand-In on each host"]
    assert of(report, "errors") == [
        f"fail: GPU 1 of {report.job.ranks[0].host}: 7 uncorrected ECC errors since the driver started"
    ]
    (held,) = of(report, "memory in use")
    assert held.startswith("warn: GPU 0 of ")
    assert "pid 1 holds 3.0 GiB" in held
    (peers,) = of(report, "peer access")
    assert "GPU 0 - GPU 1: chipset not supported" in peers
    (cuda,) = of(report, "CUDA")  # NVML has GPUs, this build of torch has no CUDA
    assert cuda.startswith("fail: rank 0: this torch cannot use CUDA here")


@pytest.mark.gallery
def test_gpus_that_are_well(library: Path) -> None:
    report = checked(library, "")
    assert [check for check in report.checks if check.family == "gpus" and check.name not in ("GPUs", "CUDA")] == []


@pytest.mark.gallery
def test_a_driver_that_hangs(library: Path) -> None:
    report = checked(library, "hang")
    (driver,) = of(report, "driver")
    assert driver.startswith("fail: the NVIDIA driver of ")
    assert report.took_s < 60
    assert report.job.ranks[0].complete
