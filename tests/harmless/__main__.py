"""`make harmless`: the whole matrix, as a table; with `--write` it becomes docs/harmless.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tests.harmless.harness import DISASTERS, LAUNCHERS, MANNERS, observe
from tests.harmless.programs import PROGRAMS

PAGE = Path(__file__).parents[2] / "docs" / "harmless.md"
INTRODUCTION = """\
# Harmless

<!-- Written by `make harmless`. -->

Each program trains two ranks on gloo, first plain, then watched; then everything that it shows is compared:
parameters, gradients and optimizer state bit by bit, the random number generators of torch and Python, the samples
with the seeds of the loader's workers, what is printed, standard error (numbers left out), the exit code, warnings,
graph breaks and graphs of torch.compile, names and signatures of torch's functions, pickles and copies of models, the
ids that torch gives to hooks, Python's threads, open files (but hangwatch's own) and
the names in the environment (but `HANGWATCH_*` and `PYTHONPATH`). "equal" says that nothing differs; a cell else
names what does.

"""


def main() -> int:
    named = [name for name in sys.argv[1:] if not name.startswith("--")]
    rows = []
    for row in _rows(named or list(PROGRAMS), everything=not named):
        rows.append(row)
        if "--write" in sys.argv:
            PAGE.write_text(page(rows), encoding="utf-8")
    different = [row for row in rows if row[3] != "equal"]
    print(f"{len(rows) - len(different)} of {len(rows)} runs are equal to plain ones")
    return 1 if different else 0


def page(rows: list[tuple[str, str, str, str]]) -> str:
    lines = ["| program | started by | watched by | result |", "|---|---|---|---|"]
    return INTRODUCTION + "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _rows(wanted: list[str], *, everything: bool) -> Iterator[tuple[str, str, str, str]]:
    for program in wanted:
        plain = observe(program)
        for manner in MANNERS:
            yield _shown(program, "processes", manner, plain.differences(observe(program, manner)))
    if not everything:
        return
    for launcher in LAUNCHERS[1:]:
        for program in ("plain_ddp", "persistent_workers"):
            plain = observe(program, launcher=launcher)
            yield _shown(program, launcher, "run", plain.differences(observe(program, "run", launcher)))
    plain = observe("persistent_workers")
    for disaster in DISASTERS:
        found = observe("persistent_workers", "run", chaos=disaster)
        yield _shown("persistent_workers", "processes", f"run, {disaster}", plain.differences(found))


def _shown(program: str, launcher: str, manner: str, different: list[str]) -> tuple[str, str, str, str]:
    row = program, launcher, manner, ", ".join(different) or "equal"
    print("{:24} {:10} {:28} {}".format(*row), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
