"""`make gpu`: every case under real NCCL, what it costs, what NVML says; results go to docs/gpu.json and docs/gpu.md.

Exit code 2 and one sentence where there is no GPU, or something else is missing; 1 where a verdict is not right.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "agent")]  # nothing of ours need be installed

from scripts.gpu import machine, results  # noqa: E402
from scripts.gpu.cases import CASES, Case, programs  # noqa: E402

if TYPE_CHECKING:
    from scripts.gpu.play import Played, Player

STEPS = 4000  # of a run whose speed is measured; one rank, for several would measure how they take turns on the GPU
SPEEDS = {
    "plain": (False, False),
    "watched": (True, False),
    "plain, start events": (False, True),
    "watched, start events": (True, True),
}


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu")
    parser.add_argument("--ranks", type=int, default=4, help="processes on the one GPU")
    parser.add_argument("--only", nargs="*", default=None, metavar="CASE", help="these cases, and not what it costs")
    parser.add_argument("--cost", action="store_true", help="no cases, only what it costs")
    parser.add_argument("--budget", type=float, default=1e9, metavar="SECONDS", help="begin nothing new after this")
    parser.add_argument("--recipe", choices=("hostid", "multirank"), default="hostid", help="how ranks share the GPU")
    parser.add_argument("--rounds", type=int, default=3, help="of each run whose cost is measured")
    parser.add_argument("--missing", action="store_true", help="only cases of which the results tell nothing yet")
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time; what one costs is measured alone")
    parser.add_argument("--programs", nargs="*", default=[], type=Path, metavar="FOLDER", help="of others, instead")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where reports and outputs are kept")
    parser.add_argument("--rehearse", action="store_true", help="the same on gloo, without a GPU")
    parser.add_argument("--to", type=Path, default=results.FILE, metavar="FILE", help="where results are kept")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    given = arguments(words)
    if missing := machine.lacks(given.rehearse):
        print(f"hangwatch: nothing was run on a GPU: {missing}.", file=sys.stderr)
        return 2
    if given.rehearse and given.to == results.FILE:
        print("hangwatch: a rehearsal is no result; say where to keep it: --to FILE", file=sys.stderr)
        return 2
    from scripts.gpu.play import Played, Player  # here, where hangwatch's own needs are there

    until = time.monotonic() + given.budget
    found = results.load(given.to)
    found.machine = machine.described(given.ranks, given.rehearse)
    seats: queue.SimpleQueue[Player] = queue.SimpleQueue()
    for seat in range(given.jobs):
        seats.put(Player(given.ranks, given.rehearse, given.recipe, given.keep, seat))

    def play(case: Case) -> Played | None:
        player = seats.get()
        try:
            return player.play(case) if time.monotonic() < until else None
        except Exception as error:  # the other cases are worth the machine's time
            return Played(results.Result(case.title, case.causes, False, note=f"could not be played: {error!r}"))
        finally:
            seats.put(player)

    cases = chosen(given, found)
    with ThreadPoolExecutor(given.jobs) as pool:
        for case, played in zip(cases, pool.map(play, cases), strict=True):
            if played is None:
                print(f"       {case.title}: the time was over; --missing goes on")
                continue
            found.cases[case.title] = result = played.result
            print(f"{'right' if result.right else 'WRONG'}  {case.title}: {result.said or 'no verdict'} {result.note}")
            note_gpu(found, played, case)
            found.save(given.to)
    if given.only is None and not given.programs and time.monotonic() < until:
        measure(found, seats.get(), given, until)
    found.save(given.to)
    write_page(found, given.to)
    return 0 if all(result.right for result in found.cases.values()) else 1


def chosen(given: argparse.Namespace, found: results.Results) -> list[Case]:
    """The cases to play, in their order."""
    known = [case for folder in given.programs for case in programs(folder)] or CASES
    able = [case for case in known if not (given.rehearse and case.gpu_only)]
    if given.cost:
        return []
    if given.only is not None:
        return [case for case in able if case.title in given.only or case.fault in given.only]
    return [case for case in able if not (given.missing and case.title in found.cases)]


def note_gpu(found: results.Results, played: Played, case: Case) -> None:
    """What NVML said of the GPU in a case where a kernel was stuck, and in which functions hosts wait for it."""
    for function, used in played.waits.items():
        found.nvml[f"hosts in {function}"] = f"{used:.2f} s of processor time in a second"
    if played.gpus and case.fault == "stuck-kernel":
        gpu = played.gpus[0]
        found.nvml |= {
            "utilisation under a stuck kernel": f"{gpu.utilization_percent} %",
            "power then": f"{gpu.power_w} of {gpu.power_limit_w} W",
            "processes listed": str(len(gpu.processes)),
            "errors": ", ".join(gpu.errors) or "none",
        }


def measure(found: results.Results, player: Player, given: argparse.Namespace, until: float) -> None:
    """What the probe adds to a step; then steps per second of whole runs of one rank, plain and watched."""
    found.turns = player.turns()
    print(f"in turns: {found.turns or 'failed'}")
    found.overhead, player = {}, replace(player, ranks=1)
    for _ in range(given.rounds):
        for name, (watched, timed) in SPEEDS.items():
            if time.monotonic() > until or (timed and given.rehearse):
                continue
            speed = player.speed(STEPS, watched=watched, timed=timed)
            if speed is not None:
                found.overhead.setdefault(name, []).append(speed)
                print(f"{name}: {speed:.1f} steps/s")
                found.save(given.to)


def write_page(found: results.Results, to: Path) -> None:
    """The page beside the results."""
    from scripts.gpu.page import page

    to.with_suffix(".md").write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
