"""docs/gpu.md from docs/gpu.json. Pure: results in, Markdown out."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from .results import Result, Results

INTRODUCTION = """\
# On a GPU

<!-- Written by `make docs` from gpu.json, which `make gpu` writes. Never edited by hand. -->

`make gpu` plays hangs and look-alikes under real NCCL, several ranks on one GPU, and writes this page. It needs no
network, only a Python with a CUDA build of torch and the packages that hangwatch needs
(`make gpu GPU_PYTHON=/path/to/python`). NCCL refuses two ranks of one host on one GPU, so each rank is given a host
identifier of its own, and they talk by sockets over loopback. Ranks take turns on the GPU, so times are long.
"""
COST = """\
## Cost

Of one rank, whose DDP reduces gradients on the GPU all the same, with a model as small as models get."""
WHOLE_RUNS = """\
Whole runs, which differ by more than that from one to the next:"""
NOT_YET = """\
**It has not run yet**: so far hangwatch is tested on gloo, with real jobs, and on simulated NCCL: by
[simulated jobs](world.md), stand-ins, and dumps and logs in its formats.
"""


def page(results: Results) -> str:
    """The whole page."""
    if not results.cases:
        return f"{INTRODUCTION}\n{NOT_YET}"
    parts = [INTRODUCTION, _machine(results), _cases(results)]
    if results.turns or results.overhead:
        parts.append(_overhead(results))
    if results.nvml:
        parts.append(_table("## What waits look like", ("figure", "value"), list(results.nvml.items())))
    return "\n".join(parts)


def _machine(results: Results) -> str:
    return "Run on " + ", ".join(f"{name} {value}" for name, value in results.machine.items()) + ".\n"


def _cases(results: Results) -> str:
    cases = list(results.cases.values())
    right = sum(case.right for case in cases)
    rows = [
        (
            case.name,
            " or ".join(case.expected) or "no verdict",
            f"{case.said} ({case.certainty})" if case.said else "no verdict",
            case.hang,
            ", ".join(map(str, case.culprits)),
            "" if case.seconds is None else f"{case.seconds:.1f} s",
            "yes" if case.right else f"**no**{f': {case.note}' if case.note else ''}",
        )
        for case in cases
    ]
    head = ("case", "expected", "said", "hang", "culprits", "after", "right")
    return _table(f"## Verdicts\n\n{right} of {len(cases)} are right.", head, rows) + _notes(cases)


def _notes(cases: list[Result]) -> str:
    said = dict.fromkeys(f"- {case.name}: {note}" for case in cases for note in case.notes)
    return "\n## torch's dumps and NCCL's RAS service\n\n" + "\n".join(said) + "\n" if said else ""


def _overhead(results: Results) -> str:
    base = statistics.median(results.overhead["plain"]) if results.overhead.get("plain") else 0.0
    rows = []
    for name, speeds in results.overhead.items():
        middle = statistics.median(speeds)
        slower = f"{(base / middle - 1) * 100:+.1f} %" if base and middle and name != "plain" else ""
        rows.append((name, str(len(speeds)), f"{middle:.1f}", f"{min(speeds):.1f}-{max(speeds):.1f}", slower))
    told = f"{COST}\n\n{_turns(results.turns)}" if results.turns else COST
    whole = _table(WHOLE_RUNS, ("run", "times", "steps/s, median", "range", "time of a step"), rows) if rows else ""
    return f"{told}\n{whole}"


def _turns(turns: dict[str, float]) -> str:
    share = turns["added"] / turns["plain"] * 100 if turns["plain"] else 0.0
    return (
        f"The probe adds **{turns['added']:.0f} us** to a step of {turns['plain']:.0f} us ({share:.1f} %; half of"
        f" {turns['pairs']:.0f} pairs lie between {turns['added_low']:.0f} and {turns['added_high']:.0f} us), and"
        f" {turns['added_processor']:.0f} us to the processor time of the training thread. Longer steps pay no more.\n"
        "Measured with and without it in turns, in one process; where half of the pairs lie far apart, other programs"
        " took the machine meanwhile, and the figure says little.\n"
    )


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [title, "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
