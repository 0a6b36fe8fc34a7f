"""What was run on which Python and which torch, and what came of it. Kept in docs/versions.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs" / "versions.json"
HEALTHY = "healthy"  # the name under which the look-alike stands


@dataclass(frozen=True)
class Said:
    """What hangwatch said of one script. `right` is: the cause and its culprits, or nothing of a healthy job."""

    right: bool
    cause: str = ""  # "" where nothing was reported
    hang: str = ""
    certainty: str = ""


@dataclass(frozen=True)
class Entry:
    """One Python with one torch. `torch` is the version as torch tells it, `error` why nothing could be run."""

    python: str
    torch: str
    day: str
    recorder: bool = False  # whether torch's flight recorder can be asked about gloo
    said: dict[str, Said] | None = None
    error: str = ""

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Torch and Python as numbers, to sort by."""
        return _numbers(self.torch), _numbers(self.python)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdigit())


def load(path: Path = FILE) -> list[Entry]:
    """What earlier runs have found, newest torch first; nothing where there was none."""
    if not path.exists():
        return []
    document: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return sorted((_entry(each) for each in document), key=lambda entry: entry.key, reverse=True)


def _entry(given: dict[str, Any]) -> Entry:
    said = given.pop("said")
    return Entry(**given, said=said and {name: Said(**each) for name, each in said.items()})


def put(entry: Entry, path: Path = FILE) -> None:
    """Add one entry; an earlier one of the same Python and torch goes."""
    kept = [each for each in load(path) if each.key != entry.key]
    entries = sorted([*kept, entry], key=lambda each: each.key, reverse=True)
    path.write_text(json.dumps([asdict(each) for each in entries], indent=1) + "\n", encoding="utf-8")
