"""Many scores added up: shares of right and wrong verdicts by cause, backend and size, and the seeds that failed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .score import Outcome, Score, score
from .world import play

CHUNK = 50  # seeds that a process is given at a time
BANDS = ((2, "2"), (4, "3-4"), (8, "5-8"), (16, "9-16"), (1 << 30, "more"))
KEPT = 200  # failing seeds that are kept
NO_FAULT = "none"  # the row of jobs in which no fault has taken effect
BEGINS = {"cause": "Cause", "backend": "Backend", "size": "Ranks"}

Row = dict[str, int]


@dataclass
class Failure:
    """A seed whose verdict must not be: a false proof, an innocent rank proven guilty, or a false sentence of evidence.

    `said` is the cause, or the sentence.
    """

    seed: int
    what: str
    kind: str
    said: str
    backend: str


@dataclass
class Tally:
    """Counts of outcomes: by column ("cause", "backend", "size"), row and outcome."""

    first: int = 0
    programs: int = 0
    false_proofs: int = 0
    alive: int = 0
    checked: int = 0  # sentences of evidence
    false_claims: int = 0
    seconds: float = 0.0
    counts: dict[str, dict[str, Row]] = field(default_factory=lambda: {name: {} for name in BEGINS})
    failures: list[Failure] = field(default_factory=list)

    def add(self, found: Score) -> None:
        self.programs += 1
        self.alive += found.alive
        self.false_proofs += found.false_proof
        self.checked += found.checked
        self.false_claims += len(found.false_claims)
        rows = {"cause": _cause(found), "backend": found.backend, "size": _band(found.size)}
        for column, row in rows.items():
            outcomes = self.counts[column].setdefault(row, {})
            outcomes[found.outcome] = outcomes.get(found.outcome, 0) + 1
        if found.unforgivable:
            what = "false proof" if found.false_proof else "innocent proven guilty"
            self.failures.append(Failure(found.seed, what, found.kind, found.said, found.backend))
        for sentence in found.false_claims:
            self.failures.append(Failure(found.seed, "false sentence", found.kind, sentence, found.backend))

    def merge(self, other: Tally) -> None:
        self.programs += other.programs
        self.alive += other.alive
        self.false_proofs += other.false_proofs
        self.checked += other.checked
        self.false_claims += other.false_claims
        for column, rows in other.counts.items():
            for row, outcomes in rows.items():
                mine = self.counts[column].setdefault(row, {})
                for outcome, count in outcomes.items():
                    mine[outcome] = mine.get(outcome, 0) + count
        self.failures += other.failures

    @property
    def proven_innocents(self) -> int:
        return self.total(Outcome.PROVEN_INNOCENT)

    def total(self, outcome: Outcome) -> int:
        return sum(row.get(outcome, 0) for row in self.counts["backend"].values())

    def rows(self, column: str) -> Iterator[tuple[str, Row]]:
        """The rows of one column, in order."""
        names = [name for _, name in BANDS] if column == "size" else sorted(self.counts[column])
        yield from ((name, self.counts[column][name]) for name in names if name in self.counts[column])


def share(row: Row, outcome: Outcome) -> str:
    """`12.5` (percent), or nothing for none."""
    count = row.get(outcome, 0)
    return f"{100 * count / sum(row.values()):.1f}" if count else ""


def _cause(found: Score) -> str:
    return found.cause or NO_FAULT


def _band(size: int) -> str:
    return next(name for most, name in BANDS if size <= most)


def tally(seeds: Iterable[int]) -> Tally:
    """The scores of these seeds."""
    found = Tally()
    for seed in seeds:
        found.add(score(play(seed)))
    return found


def over(first: int, count: int, jobs: int) -> Iterator[Tally]:
    """Tallies of parts of the `count` seeds from `first` on, as `jobs` processes finish them."""
    parts = [range(start, min(start + CHUNK, first + count)) for start in range(first, first + count, CHUNK)]
    if jobs <= 1 or len(parts) == 1:
        yield from map(tally, parts)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(partial(tally), parts)


def dump(found: Tally, path: Path) -> None:
    """Keeps the results, for the page of the documentation."""
    failures = sorted(found.failures, key=lambda failure: failure.seed)[:KEPT]
    document = {
        "first": found.first,
        "programs": found.programs,
        "alive": found.alive,
        "false_proofs": found.false_proofs,
        "checked": found.checked,
        "false_claims": found.false_claims,
        "seconds": round(found.seconds, 1),
        "counts": found.counts,
        "failures": [vars(failure) for failure in failures],
    }
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def load(path: Path) -> Tally:
    """What `dump` has written."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    failures = [Failure(**failure) for failure in document.pop("failures")]
    return Tally(**document, failures=failures)
