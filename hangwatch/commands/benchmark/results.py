"""What a benchmark has measured, as plain records: the machine-readable output, and all that tables are made from."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from hangwatch.errors import HangwatchError
from hangwatch.report import versions
from hangwatch.version import __version__

SCHEMA = "hangwatch.benchmark/1"


@dataclass(frozen=True)
class Machine:
    """Where and when something was measured. `load` is the system's load before we added to it (1 minute)."""

    date: str
    hangwatch: str
    torch: str
    python: str
    system: str
    cores: int
    load: float

    @classmethod
    def here(cls) -> Machine:
        return cls(
            date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            hangwatch=__version__,
            torch=_version("torch"),
            python=platform.python_version(),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            cores=len(os.sched_getaffinity(0)),
            load=round(os.getloadavg()[0], 2),
        )


@dataclass(frozen=True)
class Run:
    """One faulty case, played once.

    `expected` is the status that should follow, and `blame` the ranks that should be named (none where no rank is to
    blame). `cause`, `status`, `certainty` (of the cause) and `hang` (that the job is dead) are what was said, "" if
    nothing was. `named` are the ranks and
    `processes` the kinds of process that were blamed; `accused` are all ranks that any version of the verdict blamed.
    `detected_after_s` is from the last progress of the job to the verdict.
    """

    case: str
    truth: str
    ranks: int
    expected: str
    blame: tuple[int, ...]
    process: str = "rank"
    cause: str = ""
    status: str = ""
    certainty: str = ""
    named: tuple[int, ...] = ()
    processes: tuple[str, ...] = ()
    accused: tuple[int, ...] = ()
    detected_after_s: float | None = None
    seconds: float = 0.0  # from the start of the command to the verdict, or to the end
    warned: bool = False
    hang: str = ""

    @property
    def wants_verdict(self) -> bool:
        """Whether an incident should be opened; a job that only waits, or deserves a warning, should have none."""
        return self.expected not in ("waiting", "warned")

    @property
    def cause_right(self) -> bool:
        if not self.wants_verdict:
            return not self.status and (self.warned or self.expected == "waiting")
        return self.cause == self.truth

    @property
    def culprit_right(self) -> bool:
        if not self.wants_verdict:
            return not self.accused
        kinds = {self.process} if self.blame or self.process != "rank" else set()
        return bool(self.status) and set(self.named) == set(self.blame) and set(self.processes) <= kinds

    @property
    def wrong_culprit(self) -> bool:
        """Whether an innocent rank was blamed, be it only in the first version of a verdict."""
        return bool(set(self.accused) - set(self.blame))


@dataclass(frozen=True)
class Control:
    """One healthy look-alike, played once. `alarm` is the cause that was said all the same, "" for none."""

    case: str
    truth: str
    seconds: float
    alarm: str = ""
    finished: bool = True


@dataclass(frozen=True)
class PeerRun:
    """What torch itself said on a script without hangwatch. `named` are the ranks that its output points at."""

    case: str
    truth: str
    peer: str
    seconds: float
    blame: tuple[int, ...]
    named: tuple[int, ...] = ()
    said: str = ""  # the last line that looks like an error

    @property
    def says_the_rank(self) -> bool:
        return bool(self.named) and set(self.named) == set(self.blame)


@dataclass(frozen=True)
class Figure:
    """One figure beside its budget. `value` is None where it could not be measured; `note` says why, or how."""

    name: str
    value: float | None
    unit: str
    budget: float
    at_least: bool = False
    note: str = ""

    @property
    def held(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.budget if self.at_least else self.value <= self.budget

    @property
    def share(self) -> float | None:
        """The value as a share of the budget."""
        return None if self.value is None else self.value / self.budget


@dataclass
class Results:
    """All parts; each has its own machine, for parts may be measured on different days."""

    machines: dict[str, Machine] = field(default_factory=dict)  # by part: "accuracy", "peers", "figures"
    runs: list[Run] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    peers: list[PeerRun] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  # case: why it was not played

    def update(self, other: Results, causes: Collection[str] = ()) -> None:
        """Take over the parts that `other` has measured; with `causes`, only those of the accuracy."""
        self.machines |= other.machines
        if "accuracy" in other.machines:
            self.runs = [each for each in self.runs if causes and each.truth not in causes] + other.runs
            self.controls = [each for each in self.controls if causes and each.truth not in causes] + other.controls
            self.skipped = (self.skipped if causes else {}) | other.skipped
        if "peers" in other.machines:
            self.peers = other.peers
        if "figures" in other.machines:
            self.figures = other.figures


def dump(results: Results, path: Path, causes: Collection[str] = ()) -> None:
    """Write the results to `path`; what was not measured this time stays as it stands there.

    Args:
        causes: those that were played; empty for all.
    """
    kept = load(path) if path.exists() else Results()
    kept.update(results, causes)
    document = {"schema": SCHEMA, **asdict(kept)}
    try:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise HangwatchError(f"cannot write {path}: {error.strerror}") from error


def load(path: Path) -> Results:
    """The results in a file that `dump` has written. Raises HangwatchError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.pop("schema") != SCHEMA:
            raise HangwatchError(f"{path} is of another version of the benchmark")
        return Results(
            machines={part: Machine(**values) for part, values in document["machines"].items()},
            runs=[_run(values) for values in document["runs"]],
            controls=[Control(**values) for values in document["controls"]],
            peers=[PeerRun(**_tuples(values)) for values in document["peers"]],
            figures=[Figure(**values) for values in document["figures"]],
            skipped=document["skipped"],
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HangwatchError(f"cannot read {path} as results of the benchmark: {error}") from error


def _run(values: dict[str, Any]) -> Run:
    """A run; those of before there were two answers had one certainty, as reports of format 1."""
    if "hang" not in values and values.get("certainty"):
        values = values | versions.answers(values["certainty"], values.get("status"))
    return Run(**_tuples(values | {"hang": values.get("hang") or ""}))


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
        for name, value in values.items()
    }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "none"
