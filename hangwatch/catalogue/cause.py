"""One entry of the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch.model import Stage

DOCS = "docs/causes.md"


@dataclass(frozen=True)
class Cause:
    """One entry of the catalogue.

    `look_alikes` are the causes that a person would suspect first. Of `explains` this one is the reason: where both are
    found of the same ranks, the others say only what they came to. `fix_of_condition` is for a call that stands under a
    condition which ends no turn of a loop, `fix_of_error` for one that a caught error leads past.
    """

    id: str
    stage: Stage | None  # None for health warnings and where the cause is not known
    title: str
    explanation: str
    fix: str
    look_alikes: tuple[str, ...] = ()
    explains: tuple[str, ...] = ()
    forecast: bool = False  # a warning of a hang to come
    fix_of_condition: str = ""
    fix_of_error: str = ""

    @property
    def rules(self) -> str:
        """The module of its rules, or the package: no other module finds it."""
        room = f"rules.{self.stage}" if self.stage else "rules" if self.id == "undetermined" else "health"
        return f"hangwatch.{room}.{self.id.replace('-', '_')}"

    @property
    def docs(self) -> str:
        """Where the documentation explains it."""
        return f"{DOCS}#{self.id}"
