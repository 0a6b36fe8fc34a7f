"""Measure `hangwatch analyze` on dumps of NCCL's flight recorder beside torch's own analyzer, in one run.

    python scripts/measure_dumps.py [--only-ours] [RANKSxENTRIES ...]

Each program reads the same pickles in a process of its own; time and memory are the whole process's. Python's start is
part of it, and for torch's analyzer the import of torch.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.dumps import Job, Op, alike, loop

SIZES = ("64x2000", "1024x60", "1024x2000")
STEP = (
    Op("all_reduce", 20, 1024),
    Op("all_reduce", 21, 10),
    Op("_all_gather_base", 22, 64),
    Op("_reduce_scatter_base", 23, 64),
)
PROGRAMS = {
    "hangwatch": [sys.executable, "-m", "hangwatch", "analyze"],
    "torch": [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace"],
}


class _Straight(Job):
    """A job of one group that ran without a fault up to its last call, which the last rank never made."""

    def _play(self) -> None:
        self.numbers = {rank: list(range(1, len(program) + 1)) for rank, program in self.programs.items()}
        self.done = dict.fromkeys(self.programs, len(self.programs[self.world - 1]))


def write(folder: Path, ranks: int, entries: int) -> None:
    """The dumps of a job in which the last rank has not come to the last call."""
    program = loop(entries // len(STEP), *STEP)
    job = _Straight(ranks, alike(ranks, program))
    job.programs[ranks - 1] = program[:-1]
    job.done = dict.fromkeys(job.programs, len(program) - 1)
    job.write(folder)


def measured(program: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and MiB that a program needs for the dumps in a folder."""
    began = time.perf_counter()
    process = subprocess.Popen([*program, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(program)} failed with exit code {process.returncode}")
    return time.perf_counter() - began, used.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", default=SIZES, metavar="RANKSxENTRIES")
    parser.add_argument("--only-ours", action="store_true")
    arguments = parser.parse_args()
    for size in arguments.sizes:
        ranks, entries = map(int, size.split("x"))
        folder = Path(tempfile.mkdtemp(prefix="hangwatch-dumps-"))
        try:
            with multiprocessing.Pool(1) as writer:  # a large parent would count as memory of what it starts
                writer.apply(write, (folder, ranks, entries))
            for name in ("hangwatch",) if arguments.only_ours else PROGRAMS:
                seconds, size_mib = measured(PROGRAMS[name], folder)
                print(
                    f"{ranks:>5} ranks x {entries:>5} entries  {name:<9}  {seconds:7.1f} s  {size_mib:7.0f} MiB",
                    flush=True,
                )
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
