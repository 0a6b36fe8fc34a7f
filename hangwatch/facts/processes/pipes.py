"""Which processes hold the other end of a pipe that a process is blocked on."""

from __future__ import annotations

from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import Child
from hangwatch.model import Pipe, ProcessFacts
from hangwatch.ranks.view import RankView

_READS = frozenset({"read", "readv"})


def readers_of(case: Case, path: str) -> tuple[int, ...]:
    """The pids that could read a pipe, by its name in /proc; () where none does, or none is known."""
    return next((pipe.readers for node in case.snapshot.nodes for pipe in node.pipes if pipe.path == path), ())


def awaits_its_own_input(case: Case, view: RankView) -> Child | None:
    """The child whose output `view` reads, and that reads itself what only `view` could write: neither goes on.

    A filter, such as `sort`, gives nothing before the end of its input, and that comes once its writer closes it.
    """
    asked = _read_by(view.in_kernel)
    children = [Child(each) for each in view.evidence.children]
    writers = _writers_of(case, asked)
    child = next((each for each in children if (each.pid,) == writers), None)
    theirs = _writers_of(case, _read_by(child.facts)) if child is not None else ()
    return child if view.pid is not None and theirs == (view.pid,) else None


def _read_by(process: ProcessFacts | None) -> str:
    """The pipe that it is blocked on in a read; "" for none."""
    file = process.blocked_on if process is not None and process.system_call in _READS else None
    return file.path if file is not None and file.is_pipe else ""


def _writers_of(case: Case, path: str) -> tuple[int, ...]:
    pipes: list[Pipe] = [pipe for node in case.snapshot.nodes for pipe in node.pipes if path and pipe.path == path]
    return pipes[0].writers if pipes else ()
