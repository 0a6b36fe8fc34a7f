"""Starts one process per rank on this machine, as a small shop does it without torchrun.

Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and the launcher waits for them in
order. `--output` says what becomes of the ranks' standard output: inherited, copied line by line, or put in a
pipe and read after the rank has ended. `--omit`, `--twice`, `--set` and `--world-size` make the mistakes that
people make by hand. With `--slurm` the ranks are told what srun tells its tasks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from typing import IO


def environment(rank: int, args: argparse.Namespace) -> dict[str, str]:
    values = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(args.world_size or args.ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(args.port),
    }
    if args.slurm:
        values |= {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NTASKS": str(args.ranks)}
        values |= {"SLURM_STEP_ID": "0", "SLURM_JOB_NUM_NODES": "1"}
    for entry in args.set:
        target, assignment = entry.split(":", 1)
        if target == "*" or int(target) == rank:
            name, value = assignment.split("=", 1)
            values[name] = value
    return {**os.environ, **values}


def start(rank: int, args: argparse.Namespace) -> subprocess.Popen[str]:
    pipe = None if args.output == "inherit" else subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, args.script, *args.arguments],
        env=environment(rank, args),
        stdout=pipe,
        text=True,
    )


def copy(stream: IO[str], rank: int) -> None:
    for line in stream:
        print(f"[rank {rank}] {line}", end="", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--port", type=int, default=29500)
    parser.add_argument("--output", choices=["inherit", "copy", "keep"], default="inherit")
    parser.add_argument("--omit", type=int, action="append", default=[], help="do not start this rank")
    parser.add_argument("--twice", type=int, action="append", default=[], help="start this rank two times")
    parser.add_argument("--set", action="append", default=[], metavar="RANK:NAME=VALUE", help="* for every rank")
    parser.add_argument("--world-size", type=int, help="WORLD_SIZE, where it is not the number of ranks")
    parser.add_argument("--slurm", action="store_true")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args()

    numbers = sorted([*(set(range(args.ranks)) - set(args.omit)), *args.twice])
    started = [(number, start(number, args)) for number in numbers]
    readers = []
    for number, process in started:
        if args.output == "copy" and process.stdout is not None:
            reader = threading.Thread(target=copy, args=(process.stdout, number), daemon=True)
            reader.start()
            readers.append(reader)
    code = 0
    for number, process in started:
        code = process.wait() or code
        if args.output == "keep" and process.stdout is not None:
            print(f"rank {number}: {process.stdout.read().splitlines()[-1:]}")
    for reader in readers:
        reader.join()
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
