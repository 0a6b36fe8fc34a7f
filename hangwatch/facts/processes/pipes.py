"""Which processes hold the other end of a pipe that a process is blocked on."""

from __future__ import annotations

from hangwatch.facts.case import Case


def readers_of(case: Case, path: str) -> tuple[int, ...]:
    """The pids that could read a pipe, by its name in /proc; () where none does, or none is known."""
    return next((pipe.readers for node in case.snapshot.nodes for pipe in node.pipes if pipe.path == path), ())
