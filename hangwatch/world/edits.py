"""How the programs of a job are changed: places are found, lines inserted and left out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from .acts import (
    Act,
    Line,
    Mark,
)
from .program import Design, Program

BACKWARD = ("grad", "grad-second", "grad-wait", "optimizer")


@dataclass(frozen=True)
class Fault:
    """What is wrong with a program. `causes` are all that a right verdict may name, the best one first."""

    kind: str
    causes: tuple[str, ...]
    ranks: frozenset[int]
    forever: bool = True  # a slow act that ends is no fault, but the job waits for it


class Edits:
    """Finds places in the programs of one job, and changes them."""

    def __init__(self, plan: Design, programs: list[Program], dice: random.Random) -> None:
        self.plan, self.programs, self.dice = plan, programs, dice
        self.faults: list[Fault] = []

    @property
    def index(self) -> int:
        """The number of the fault that is being made."""
        return len(self.faults)

    def one(self) -> int:
        return self.dice.randrange(self.plan.size)

    def some(self, *, majority: bool = False) -> list[int]:
        """One rank or several of them, fewer than half unless `majority`; never all."""
        size = self.plan.size
        if majority:
            count = self.dice.randint(size // 2, size - 1)
        else:
            count = 1 if self.dice.random() < 0.7 else self.dice.randint(1, max((size - 1) // 2, 1))
        return sorted(self.dice.sample(range(size), count))

    def places(self, role: str, rank: int = 0) -> list[tuple[int, int]]:
        """Each (epoch, batch) in which a rank has lines of this role."""
        return sorted({(line.epoch, line.batch) for line in self.programs[rank] if line.role == role})

    def place(self, role: str, rank: int = 0, *, from_batch: int = 0) -> tuple[int, int] | None:
        """A random one of them."""
        found = [place for place in self.places(role, rank) if place[1] >= from_batch]
        return self.dice.choice(found) if found else None

    def everywhere(self, *roles: str) -> tuple[int, int] | None:
        """A random (epoch, batch) in which every rank has lines of all these roles."""
        shared = set.intersection(*(set(self.places(role, rank)) for rank in self.plan.world for role in roles))
        return self.dice.choice(sorted(shared)) if shared else None

    def at(self, rank: int, role: str, place: tuple[int, int]) -> list[int]:
        """The positions of a rank's lines of this role in this epoch and batch."""
        return [
            index
            for index, line in enumerate(self.programs[rank])
            if line.role == role and (line.epoch, line.batch) == place
        ]

    def anywhere(self, rank: int) -> int:
        """A random position inside the training of a rank, before its end."""
        last = next(index for index, line in enumerate(self.programs[rank]) if line.role in ("final", "end"))
        return self.dice.randrange(1, last + 1)

    def _have(self, ranks: Iterable[int], role: str) -> bool:
        return all(any(line.role == role for line in self.programs[rank]) for rank in ranks)

    def _first(self, rank: int, role: str) -> int:
        return next(index for index, line in enumerate(self.programs[rank]) if line.role == role)

    def insert(self, rank: int, index: int, acts: Iterable[Act], role: str = "fault") -> None:
        place = self.programs[rank][min(index, len(self.programs[rank]) - 1)]
        self.programs[rank][index:index] = [Line(act, role, place.epoch, place.batch) for act in acts]

    def drop(self, rank: int, indices: Iterable[int], *, mark: bool = True) -> None:
        """Leaves out these lines; where the first of them stood the fault takes effect."""
        lines = self.programs[rank]
        gone = {index for index in indices if not isinstance(lines[index].act, Mark)}
        kept: Program = []
        for index, line in enumerate(lines):
            if index not in gone:
                kept.append(line)
            elif mark and index == min(gone):
                kept.append(Line(Mark(self.index), "fault", line.epoch, line.batch))
        self.programs[rank] = kept

    def made(self, kind: str, causes: Iterable[str], ranks: Iterable[int], *, forever: bool = True) -> Fault:
        fault = Fault(kind, tuple(causes), frozenset(ranks), forever)
        self.faults.append(fault)
        return fault
