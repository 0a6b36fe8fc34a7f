"""`make harmless`: the whole matrix, as a table; with `--write` it becomes docs/harmless.md."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.harmless.harness import DISASTERS, LAUNCHERS, MANNERS, observe
from tests.harmless.programs import NEEDS, PROGRAMS

Row = tuple[str, str, str, str]  # program, started by, watched by, result
SKIPPED = "skipped"
PAGE = Path(__file__).parents[2] / "docs" / "harmless.md"
INTRODUCTION = """\
# Harmless

<!-- Written by `make harmless`. -->

Each program trains two ranks on gloo, first plain, then watched; then everything that it shows is compared:
parameters, gradients and optimizer state bit by bit, the random number generators of torch and Python, the samples
with the seeds of the loader's workers, what is printed, standard error (numbers left out), the exit code, warnings,
graph breaks and graphs of torch.compile, names and signatures of torch's functions, pickles and copies of models, the
ids that torch gives to hooks, Python's threads, open files (but hangwatch's own) and
the names in the environment (but `HANGWATCH_*` and `PYTHONPATH`). What befalls the watch meanwhile stands behind
"run": "tracing denied" takes CAP_SYS_PTRACE from all processes and makes them undumpable, so that py-spy gets no
stack, and stops one rank for some seconds, so that it is asked for them; "large files denied" is a limit of 64 kB
(RLIMIT_FSIZE), less than a board takes. "equal" says that nothing differs; a cell else
names what does.

"""


def main() -> int:
    named = [name for name in sys.argv[1:] if not name.startswith("--")]
    rows = []
    for row in _rows(named or list(PROGRAMS), everything=not named):
        rows.append(row)
        if "--write" in sys.argv:
            PAGE.write_text(page(rows), encoding="utf-8")
    played = [row for row in rows if not row[3].startswith(SKIPPED)]
    different = [row for row in played if row[3] != "equal"]
    print(f"{len(played) - len(different)} of {len(played)} runs are equal to plain ones")
    return 1 if different else 0


def page(rows: list[Row]) -> str:
    lines = ["| program | started by | watched by | result |", "|---|---|---|---|"]
    return INTRODUCTION + "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _rows(wanted: list[str], *, everything: bool) -> Iterator[Row]:
    for program in wanted:
        if (needed := NEEDS.get(program)) and importlib.util.find_spec(needed) is None:
            yield _told((program, "-", "-", f"{SKIPPED}: {needed} is not installed"))
            continue
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


def _shown(program: str, launcher: str, manner: str, different: list[str]) -> Row:
    return _told((program, launcher, manner, ", ".join(different) or "equal"))


def _told(row: Row) -> Row:
    print("{:24} {:10} {:28} {}".format(*row), flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
