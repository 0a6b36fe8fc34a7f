"""Writes those pages of docs/ that are made from the code: `make docs`. A test holds them to the code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from hangwatch.commands.benchmark import results
from hangwatch.commands.benchmark.page import page as benchmark_page
from hangwatch.commands.benchmark.world_page import page as world_page
from hangwatch.settings import PREFIX, Settings
from hangwatch.world import tally
from scripts.gpu import results as gpu_results
from scripts.gpu.page import page as gpu_page
from scripts.matrix import results as matrix_results
from scripts.matrix.page import page as versions_page

DOCS = Path(__file__).parent.parent / "docs"


def configuration() -> str:
    """Every setting of hangwatch.settings, with its variable, default and meaning."""
    rows = "\n".join(_row(entry) for entry in fields(Settings))
    return f"""\
# Configuration

<!-- Written by `make docs` from hangwatch/settings.py. Edit there. -->

Each setting is an argument of `hangwatch.attach(...)` and a variable of the environment. The argument wins
over the variable, the variable over the default. Times are in seconds; yes and no are `1` and `0`. Common
ones are options of `hangwatch run` as well: `hangwatch run --help` lists them.

| argument | variable | default | what it does |
|---|---|---|---|
{rows}
"""


def _row(entry: Field[Any]) -> str:
    help = entry.metadata["help"].replace("|", "\\|")
    if choices := entry.metadata.get("choices"):
        help += f"; one of {', '.join(f'`{choice}`' for choice in choices)}"
    return f"| `{entry.name}` | `{PREFIX}{entry.name.upper()}` | {_default(entry.default)} | {help} |"


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return f"`{value}`" if value else "none"


def benchmark() -> str:
    """The results that `hangwatch bench --json docs/benchmark.json` has left."""
    return benchmark_page(results.load(DOCS / "benchmark.json"))


def world() -> str:
    """The results that `hangwatch bench --world N --json docs/world.json` has left."""
    return world_page(tally.load(DOCS / "world.json"))


def gpu() -> str:
    """The results that `make gpu` has left, if it has run."""
    return gpu_page(gpu_results.load(DOCS / "gpu.json"))


def versions() -> str:
    """The results that `make matrix` has left, if it has run."""
    return versions_page(matrix_results.load(DOCS / "versions.json"))


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "benchmark.md": benchmark,
    "world.md": world,
    "gpu.md": gpu,
    "versions.md": versions,
}


def main() -> None:
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
