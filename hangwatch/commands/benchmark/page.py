"""The results as a page of the documentation. Pure: results in, Markdown out."""

from __future__ import annotations

from collections.abc import Sequence

from hangwatch.commands.benchmark import table
from hangwatch.commands.benchmark.gallery import STALL_AFTER
from hangwatch.commands.benchmark.results import Machine, Results


def page(results: Results) -> str:
    """docs/benchmark.md."""
    parts = [INTRODUCTION]
    if "accuracy" in results.machines:
        parts.append(_accuracy(results))
    if "peers" in results.machines:
        parts.append(_peers(results))
    if "figures" in results.machines:
        parts.append(_figures(results))
    return "\n".join(parts)


INTRODUCTION = """\
# Benchmark

<!-- Written by `make docs` from benchmark.json, which `hangwatch bench --json` writes. Never edited by hand. -->

`hangwatch bench` plays every script of the gallery, a real job that hangs for a known reason, with the culprit moved to
other ranks, and then its look-alike that does not hang.
What follows was measured on one machine, misses included. Measure it yourself:

```sh
make bench
hangwatch bench --accuracy --peers --figures --json results.json
```
"""


ACCURACY = f"""\
Patience where nothing can be proven is {STALL_AFTER:g} s (`--stall-after`) for the faults; the healthy look-alikes run
with the default, as users run their jobs. "Detected after" is from the last progress
of the job to the verdict. A job that only waits for a slow rank (*waiting*) should get no verdict of a hang, and one
that deserves a warning (*warned*) should get just that. A *wrong culprit* is a blamed rank that is innocent, even if a
later version of the verdict took it back.
"""

PEERS = """\
One script of a cause, without hangwatch, for as long as the hang needs to come and be noticed, or longer. *Says the
rank* means that the ranks in torch's error messages are exactly the culprits. `TORCH_DISTRIBUTED_DEBUG=DETAIL`
crashes in the constructor of DDP on this build of torch, healthy scripts too; a crash of all names none. torch writes
flight-recorder dumps by itself only when NCCL times out; here every rank was made to write one, and `torchfrtrace` was
given them all.
"""

FIGURES = """\
Each beside its budget. A load above the number of cores means that others worked on the machine at the same time; times
are then longer than they need be.
"""


def _accuracy(results: Results) -> str:
    lines = [*_table(table.HEADINGS, table.accuracy_rows(results.runs)), ""]
    lines += [f"- {line}" for line in table.summary(results.runs, results.controls)]
    scripts = len({run.case for run in results.runs})
    lines.append(f"- Played: {scripts} cases. Causes that are not in the table were not played in this run.")
    if found := table.misses(results.runs, results.controls):
        lines += ["", "What was not as it should be:", "", *(f"- {_text(miss)}" for miss in found)]
    if results.skipped:
        lines += ["", "Not played:", "", *(f"- {case}: {_text(why)}" for case, why in results.skipped.items())]
    return _section("Accuracy", results.machines["accuracy"], ACCURACY, lines)


def _peers(results: Results) -> str:
    lines = [*_table(table.PEER_HEADINGS, table.peer_rows(results.peers)), ""]
    lines += [f"- {_text(line)}" for line in table.peer_summary(results.peers)]
    return _section("What torch says of the same scripts", results.machines["peers"], PEERS, lines)


def _figures(results: Results) -> str:
    lines = _table(table.FIGURE_HEADINGS, table.figure_rows(results.figures))
    return _section("Figures", results.machines["figures"], FIGURES, lines)


def _section(title: str, machine: Machine, about: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", f"{table.about(machine)}.", "", about, *lines, ""])


def _table(headings: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [_row(headings), _row(["---"] * len(headings)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(cell: str) -> str:
    """What a program has printed may look like Markdown, or worse."""
    for character in "\\|<>`*_[]":
        cell = cell.replace(character, f"\\{character}" if character not in "<>" else f"&{'lg'[character == '>']}t;")
    return cell
