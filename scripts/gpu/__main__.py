"""`make gpu`: every case under real NCCL, what it costs, what NVML says; results go to docs/gpu.json and docs/gpu.md.

Exit code 2 and one sentence where there is no GPU, or something else is missing; 1 where a verdict is not right.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "agent")]  # nothing of ours need be installed

from scripts.gpu import machine, results  # noqa: E402
from scripts.gpu.cases import CASES, Case  # noqa: E402

STEPS = 1500  # of a run whose speed is measured
SPEEDS = {
    "plain": (False, False),
    "watched": (True, False),
    "plain, start events": (False, True),
    "watched, start events": (True, True),
}


def arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make gpu")
    parser.add_argument("--ranks", type=int, default=4, help="processes on the one GPU")
    parser.add_argument("--only", nargs="*", default=None, metavar="CASE", help="these cases, and no overhead")
    parser.add_argument("--budget", type=float, default=1e9, metavar="SECONDS", help="begin nothing new after this")
    parser.add_argument("--recipe", choices=("hostid", "multirank"), default="hostid", help="how ranks share the GPU")
    parser.add_argument("--rounds", type=int, default=3, help="of each run whose cost is measured")
    parser.add_argument("--missing", action="store_true", help="only cases of which the results tell nothing yet")
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
    from scripts.gpu.play import Player  # here, where hangwatch's own needs are there

    until = time.monotonic() + given.budget
    found = results.load(given.to)
    found.machine = machine.described(given.ranks, given.rehearse)
    player = Player(given.ranks, given.rehearse, given.recipe)
    for case in chosen(given, found):
        if time.monotonic() > until:
            print("hangwatch: the time is over; --missing goes on where this ended")
            break
        found.cases[case.title] = result = player.play(case)
        print(f"{'right' if result.right else 'WRONG'}  {case.title}: {result.said or 'no verdict'} {result.note}")
        note_gpu(found, player, case)
        found.save(given.to)
    if given.only is None and time.monotonic() < until:
        measure(found, player, given, until)
    found.save(given.to)
    write_page(found, given.to)
    return 0 if all(result.right for result in found.cases.values()) else 1


def chosen(given: argparse.Namespace, found: results.Results) -> list[Case]:
    """The cases to play, in their order."""
    able = [case for case in CASES if not (given.rehearse and case.gpu_only)]
    if given.only is not None:
        return [case for case in able if case.title in given.only or case.fault in given.only]
    return [case for case in able if not (given.missing and case.title in found.cases)]


def note_gpu(found: results.Results, player: object, case: Case) -> None:
    """What NVML said of the GPU in a case where a kernel was stuck, and in which functions hosts wait for it."""
    gpus, waits = getattr(player, "gpus", ()), getattr(player, "waits", {})
    for function, used in waits.items():
        found.nvml[f"hosts in {function}"] = f"{used:.2f} s of processor time in a second"
    if gpus and case.fault == "stuck-kernel":
        gpu = gpus[0]
        found.nvml |= {
            "utilisation under a stuck kernel": f"{gpu.utilization_percent} %",
            "power then": f"{gpu.power_w} of {gpu.power_limit_w} W",
            "processes listed": str(len(gpu.processes)),
            "errors": ", ".join(gpu.errors) or "none",
        }


def measure(found: results.Results, player: object, given: argparse.Namespace, until: float) -> None:
    """Steps per second, plain and watched, with and without start events, in turn."""
    from scripts.gpu.play import Player

    assert isinstance(player, Player)
    found.overhead = {}
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
