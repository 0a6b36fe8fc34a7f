"""`hangwatch bench --world N`: the diagnosis against N simulated jobs that know the truth."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hangwatch.world import play, score
from hangwatch.world.score import Outcome
from hangwatch.world.tally import BEGINS, Tally, dump, over, share
from hangwatch.world.tell import tell

SHOWN = 20  # failing seeds that are printed
SHORT = {
    Outcome.RIGHT: "right",
    Outcome.CAUSE: "cause",
    Outcome.CULPRIT: "culprit",
    Outcome.UNDETERMINED: "none",
    Outcome.NO_CULPRIT: "wrong",
    Outcome.INNOCENT: "likely",
    Outcome.PROVEN_INNOCENT: "proven",
}
LEGEND = """\
right: cause and ranks; cause, culprit: only that is right; none: undetermined; wrong: another cause, and no rank named;
likely, proven: an innocent rank is named, with that certainty"""


def run(count: int, first: int, jobs: int | None, json: str | None) -> int:
    """Prints the shares, or the one job where `count` is 1; 1 where a verdict must not be, 2 where N makes no sense."""
    if count < 1:
        print("hangwatch bench: --world wants at least 1", file=sys.stderr)
        return 2
    if count == 1 and json is None:
        return _one(first)
    found = _many(first, count, jobs or os.cpu_count() or 1)
    if json is not None:
        dump(found, Path(json))
    _show(found)
    return 1 if found.failures else 0


def _one(seed: int) -> int:
    played = play(seed)
    print(tell(played))
    return 1 if score(played).unforgivable else 0


def _many(first: int, count: int, jobs: int) -> Tally:
    found, began = Tally(first=first), time.monotonic()
    for part in over(first, count, jobs):
        found.merge(part)
    found.seconds = time.monotonic() - began
    return found


def _show(found: Tally) -> None:
    console = Console()
    for column in BEGINS:
        console.print(_table(found, column))
    console.print(LEGEND, highlight=False)
    rate = found.programs / max(found.seconds, 1e-9)
    console.print(
        f"{found.programs} programs from seed {found.first} on, {found.alive} of which could go on;"
        f" {rate:.0f} per second"
    )
    console.print(
        f"false proofs of a hang: {found.false_proofs}; innocent ranks proven guilty: {found.proven_innocents};"
        f" false sentences: {found.false_claims} of {found.checked} of the evidence that were checked",
        soft_wrap=True,
    )
    for failure in sorted(found.failures, key=lambda failure: failure.seed)[:SHOWN]:
        console.print(
            f"  seed {failure.seed}: {failure.what}; {failure.kind}, {failure.backend}; said {failure.said}",
            highlight=False,
            soft_wrap=True,
        )
    if found.failures:
        console.print("  replay one with: hangwatch bench --world 1 --seed SEED", highlight=False)


def _table(found: Tally, column: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for index, title in enumerate((BEGINS[column], "programs", *SHORT.values())):
        table.add_column(title, no_wrap=True, justify="left" if index == 0 else "right")
    for name, row in found.rows(column):
        table.add_row(name, str(sum(row.values())), *(share(row, outcome) for outcome in Outcome))
    return table
