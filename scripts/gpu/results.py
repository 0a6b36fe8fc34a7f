"""The results as data: what ran where, and what came of it. Kept in docs/gpu.json, also after each single case."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[2] / "docs" / "gpu.json"


@dataclass(frozen=True)
class Result:
    """What hangwatch said of one case. `seconds` is from the last progress to the verdict."""

    name: str
    expected: tuple[str, ...]
    right: bool
    said: str = ""  # the cause; "" for no verdict
    certainty: str = ""
    hang: str = ""
    culprits: tuple[int, ...] = ()
    seconds: float | None = None
    note: str = ""
    notes: tuple[str, ...] = ()  # of the capture, on torch's dumps and NCCL's RAS service


@dataclass
class Results:
    """All that was run. `machine` names GPU, driver and versions; `overhead` is steps per second by configuration.

    `turns` is what in_turns.py prints: microseconds.
    """

    machine: dict[str, str] = field(default_factory=dict)
    cases: dict[str, Result] = field(default_factory=dict)
    overhead: dict[str, list[float]] = field(default_factory=dict)
    turns: dict[str, float] = field(default_factory=dict)
    nvml: dict[str, str] = field(default_factory=dict)

    def save(self, path: Path = FILE) -> None:
        document = asdict(self)
        document["cases"] = [asdict(result) for result in self.cases.values()]
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def load(path: Path = FILE) -> Results:
    """The results of an earlier run; none where there was none."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Results()
    names = {entry.name for entry in fields(Result)}
    cases = [
        Result(**{key: _plain(value) for key, value in each.items() if key in names}) for each in document["cases"]
    ]
    return Results(
        document["machine"],
        {case.name: case for case in cases},
        document["overhead"],
        document.get("turns", {}),
        document.get("nvml", {}),
    )


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
