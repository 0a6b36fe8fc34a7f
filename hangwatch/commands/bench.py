"""`hangwatch bench`: is it right, is it soon, and what does it cost?"""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "measure accuracy over the gallery, time to a verdict, and overhead"
PARTS = ("accuracy", "peers", "figures")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--accuracy", action="store_true", help="play the gallery and its look-alikes")
    parser.add_argument(
        "--figures", action="store_true", help="overhead, time to a proof, size; each beside its budget"
    )
    parser.add_argument("--peers", action="store_true", help="what torch itself says on the same scripts")
    parser.add_argument("--cause", action="append", default=[], metavar="ID", help="only this cause; may be repeated")
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="play all cases N times (2)")
    parser.add_argument(
        "--controls",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="play the healthy look-alikes too (yes)",
    )
    parser.add_argument(
        "--seconds-per-case", type=float, default=90.0, metavar="S", help="the longest wait for a verdict (90)"
    )
    parser.add_argument("--minutes", type=float, metavar="M", help="stop then, and keep what has been measured")
    parser.add_argument("--json", metavar="FILE", help="also write the results there; what else is in it is kept")
    parser.add_argument(
        "--world",
        type=int,
        metavar="N",
        help="hold the diagnosis against N simulated jobs whose truth is known, and stop",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="the first of them (0); with --world 1 it is told"
    )
    parser.add_argument("--jobs", type=int, metavar="J", help="processes for --world (one per core)")
    parser.epilog = "Without --accuracy, --figures and --peers it measures accuracy and figures."


def run(arguments: argparse.Namespace) -> int:
    if arguments.world is not None:
        from hangwatch.commands.benchmark import world

        return world.run(arguments.world, arguments.seed, arguments.jobs, arguments.json)
    return _measured(arguments)


def _measured(arguments: argparse.Namespace) -> int:
    from hangwatch.commands.benchmark import measure, table
    from hangwatch.commands.benchmark.results import dump

    kept = Path(arguments.json) if arguments.json else None
    wanted = {part for part in PARTS if getattr(arguments, part)} or {"accuracy", "figures"}
    plan = measure.Plan(
        parts=tuple(part for part in PARTS if part in wanted),
        cases=measure.chosen(arguments.cause),
        rounds=arguments.rounds,
        controls=arguments.controls,
        seconds=arguments.seconds_per_case,
        minutes=arguments.minutes,
        keep=lambda results: dump(results, kept, arguments.cause) if kept else None,
    )
    results, interrupted = measure.measure(plan)
    table.show(results)
    return 130 if interrupted else 0
