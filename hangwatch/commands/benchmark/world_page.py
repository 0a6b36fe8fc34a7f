"""The results of `hangwatch bench --world` as a page of the documentation. Pure: results in, Markdown out."""

from __future__ import annotations

from hangwatch.world.score import Outcome
from hangwatch.world.tally import BEGINS, Row, Tally, share

HEADINGS = {
    Outcome.RIGHT: "right",
    Outcome.CAUSE: "cause only",
    Outcome.CULPRIT: "ranks only",
    Outcome.UNDETERMINED: "undetermined",
    Outcome.NO_CULPRIT: "wrong cause",
    Outcome.INNOCENT: "innocent, likely",
    Outcome.PROVEN_INNOCENT: "innocent, proven",
}
TITLES = {"cause": "By cause", "backend": "By backend", "size": "By world size"}


def page(found: Tally) -> str:
    """docs/world.md."""
    tables = [f"## {TITLES[column]}\n\n{_table(found, column)}" for column in BEGINS]
    return "\n".join((INTRODUCTION, _sums(found), COLUMNS, *tables))


INTRODUCTION = """\
# The simulated world

<!-- Written by `make docs` from world.json, which `hangwatch bench --world N --json` writes. Never edited by hand. -->

Real jobs that hang are few; simulated ones are as many as you like, and their truth is known.
`hangwatch bench --world N` makes N random training programs, each from one seed: ranks on hosts, process groups, DDP
steps with buckets, subgroups, pipelines, loaders, validation, checkpoints and background threads, on a backend that
blocks as gloo does or queues as NCCL does. It puts no fault, one or two into each, runs it until nothing can move at
once, and takes the evidence that the agent would have taken, sometimes late or with parts missing. Then it asks the
diagnosis, and compares:

- Is the hang *proven* although the job can go on, if everything slow comes to its end? That must never be.
- Is an innocent rank named with the certainty *proven*? That must never be.
- Is a sentence of the evidence false? Those that tell of steps, batches, calls, waits and ends are held against what
  the ranks have done. Of process groups with two backends they are not: no number tells their calls.
- Are cause and ranks right, or undetermined, or wrong?

```sh
hangwatch bench --world 100000
hangwatch bench --world 1 --seed 35
hangwatch bench --world 100000 --json docs/world.json
```

The first prints these tables and exits with 1 if there is a verdict that must not be, with the seeds. The second tells
one program, its truth and what was said of it. The third is how this page is made.
"""

COLUMNS = """\
A fault may be told by several causes (a skipped call after an error that is not seen, say); each is right. *Right*: the
cause, and no rank but guilty ones. *Cause only*: no rank is named. *Ranks only*: guilty ranks, for another cause.
*Undetermined*: nothing is claimed. *Wrong cause*: another cause, and no rank is named. *Innocent*: a rank that has done
nothing wrong is named. `none` are jobs in which no fault had taken effect, or that have ended as they should. Shares
are percent of the programs of a row.
"""


def _sums(found: Tally) -> str:
    return (
        f"Last run: {found.programs:,} programs, seeds {found.first} to {found.first + found.programs - 1};"
        f" {found.alive:,} of them could go on.\n\n"
        "| | |\n|---|---:|\n"
        f"| false proofs of a hang | {found.false_proofs} |\n"
        f"| programs with an innocent rank proven guilty | {found.proven_innocents} |\n"
        f"| false sentences of {found.checked:,} of the evidence | {found.false_claims} |\n"
    )


def _table(found: Tally, column: str) -> str:
    head = f"| {BEGINS[column].lower()} | programs | {' | '.join(HEADINGS.values())} |"
    line = f"|---|---:|{'---:|' * len(HEADINGS)}"
    return "\n".join((head, line, *(_row(name, row) for name, row in found.rows(column)), ""))


def _row(name: str, row: Row) -> str:
    shares = " | ".join(share(row, outcome) for outcome in HEADINGS)
    return f"| `{name}` | {sum(row.values())} | {shares} |"
