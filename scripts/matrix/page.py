"""docs/versions.md, made of what `make matrix` has found."""

from __future__ import annotations

from scripts.matrix.results import Entry, Said

NOTHING = "-"
HEAD = """\
# Versions of Python and torch

<!-- Written by `make docs` from versions.json, which `make matrix` writes. Never edited by hand. -->

`make matrix` makes a virtual environment for each Python (3.11 to 3.14) and each torch (from 2.4 on) that can be had
on the machine, installs torch, then hangwatch's wheel beside it, and lets `hangwatch demo` play scripts of the gallery
with two ranks on gloo. What is not in the table has not been tried by it. torch is the build that pip installs.
`recorder` says whether this torch's flight recorder can be asked about gloo; without it, and where it records nothing,
there are fewer witnesses, and verdicts are likely, not proven.

`make test` runs everything on torch 2.13.0 and the Python of the machine, here 3.11. Without torch, the unit tests
of reports, commands, preflight, shared plans and dashboard, and the integration tests of the service on SQLite were run
by hand on Python 3.12.1 and 3.13.0 (2026-11-22): all pass but six of `hangwatch bench`, which trains.
"""
LEGEND = """\
"right, proven/likely": the cause and the rank at fault are right; the hang is called proven, the cause likely.
"hang not claimed" is a job that failed and did not hang. `healthy` is the look-alike of the first script, which must
not be called hung.
"""


def page(entries: list[Entry]) -> str:
    """The page; says so where nothing has been run."""
    if not entries:
        return f"{HEAD}\n**It has not run yet.**\n"
    names = list(dict.fromkeys(name for entry in entries for name in entry.said or {}))
    head = ["torch", "Python", "recorder", *names, "run on"]
    lines = [_line(head), _line(["---"] * len(head)), *(_line(_cells(entry, names)) for entry in entries)]
    return "\n".join([HEAD, *lines, "", LEGEND])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(entry: Entry, names: list[str]) -> list[str]:
    if entry.said is None:
        why = f"not run: {entry.error}".replace("|", "\\|")
        return [entry.torch, entry.python, why, *(NOTHING for _ in names), entry.day]
    said = (entry.said.get(name) for name in names)
    recorder = "yes" if entry.recorder else "no"
    return [entry.torch, entry.python, recorder, *(_words(each) for each in said), entry.day]


def _words(said: Said | None) -> str:
    if said is None:
        return NOTHING
    if not said.cause:
        return "nothing said, right" if said.right else "**nothing said**"
    verdict = f"{said.hang or 'hang not claimed'}/{said.certainty}"
    return f"right, {verdict}" if said.right else f"**{said.cause}**, {verdict}"
