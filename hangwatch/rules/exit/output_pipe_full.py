"""A rank that stops in print: its output is a pipe, the pipe is full, and no process reads it."""

from __future__ import annotations

from dataclasses import dataclass

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.child import awaits_child
from hangwatch.facts.processes.data_waits import victims_of
from hangwatch.facts.processes.pipes import readers_of
from hangwatch.facts.start.launchers import place_of
from hangwatch.model import Certainty, Culprit, Frame, OpenFile, ProcessEvidence, ProcessFacts, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import main_thread_of, origin

_WRITES = ("write", "writev")
_OUTPUTS = {1: "standard output", 2: "standard error"}


@dataclass(frozen=True)
class _Writer:
    """A process of a rank that is blocked in a write to its output."""

    view: RankView
    facts: ProcessFacts
    file: OpenFile
    where: Frame | None


def output_pipe_full(case: Case) -> Finding | None:
    """A rank or one of its workers is blocked in a write to a pipe that is its output."""
    return _of_ranks(case) or _of_children(case)


def _of_ranks(case: Case) -> Finding | None:
    writers = [writer for view in case for writer in _writers(view)]
    if not writers:
        return None
    first = writers[0]
    ranks = sorted({writer.view.rank for writer in writers})
    pids = readers_of(case, first.file.path)
    reader = next((each for each in (*case.snapshot.launchers, *case.snapshot.others) if each.facts.pid in pids), None)
    waits = reader is not None and len(pids) == 1 and _waits_for(case, reader, ranks)
    reading = _reader_now(reader, pids)
    return Finding(
        "output-pipe-full",
        Certainty.PROVEN if waits else Certainty.LIKELY,
        f"{case.say(ranks, 'is', 'are', capital=True)} stuck writing to"
        f" {_OUTPUTS.get(first.file.fd, 'its output')}{words.at(first.where)}: the pipe is full, and {reading}.",
        culprits=_culprits(writers, reader, pids),
        victims=victims_of(case, ranks),
        step=first.view.step,
        evidence=tuple(_evidence(writers, reader, pids)),
        status=Status.HUNG if waits else None,
        awaited=tuple(ranks),
        dead="the one reader of the full pipe waits for its writer" if waits else "",
        held=tuple(ranks) if waits else (),
    )


def _of_children(case: Case) -> Finding | None:
    """Ranks wait for processes that they have started, which cannot go on until the ranks read their output."""
    found = [(view, child) for view in case for child in _unread(case, view)]
    if not found:
        return None
    ranks = sorted({view.rank for view, _ in found})
    view, child = found[0]
    output = _OUTPUTS.get(child.file.fd, "its output")
    sure = not any(_may_read(view) for view, _ in found)
    return Finding(
        "output-pipe-full",
        Certainty.PROVEN if sure else Certainty.LIKELY,
        f"Rank {view.rank} waits{words.at(view.where)} for its child process {child.facts.pid}, which is stuck writing"
        f" to {output}{words.at(child.where)}: that pipe is full, and only rank {view.rank} could read it.",
        fix="read the child's output all the time (a thread, or communicate()), or start it with stdout=DEVNULL or a"
        " file",
        culprits=case.culprits(ranks),
        victims=tuple(sorted({*case.blocked} - {*ranks})),
        step=view.step,
        evidence=tuple(_evidence([child for _, child in found], None, (view.pid,) if view.pid else ())),
        status=Status.HUNG if sure else None,
        awaited=tuple(ranks),
        dead="the one reader of the full pipe waits for its writer" if sure else "",
        held=tuple(ranks) if sure else (),
    )


def _read_what_it_writes(case: Case, view: RankView) -> tuple[int, ...]:
    """The processes that read the pipe in the write to which the rank stands: it waits for them to go on."""
    process = view.in_kernel
    if process is None or process.blocked_on is None or process.system_call not in _WRITES:
        return ()
    return readers_of(case, process.blocked_on.path)


def _may_read(view: RankView) -> bool:
    """It has a thread of Python, torch's and ours aside, which may be the one that copies the child's output."""
    threads = (stack for stack in view.evidence.stacks if not stack.main)
    origins = ({origin(frame.file) for frame in stack.frames} for stack in threads)
    return any(each & {"user", "package", "stdlib"} and not each & {"torch", "hangwatch"} for each in origins)


def _unread(case: Case, view: RankView) -> list[_Writer]:
    """The children for which the rank waits and of whose full output it alone holds the other end."""
    if view.dead:
        return []
    children, fed = view.evidence.children, _read_what_it_writes(case, view)
    waiting = [child for child in children if awaits_child(view, child.facts) or child.facts.pid in fed]
    alone = {pipe.path for node in case.snapshot.nodes for pipe in node.pipes if pipe.readers == (view.pid,)}
    return [
        _Writer(view, child.facts, child.facts.blocked_on, place_of(child))
        for child in waiting
        if child.facts.blocked_on is not None
        and child.facts.blocked_on.path in alone
        and _is_output(child.facts)
        and not _writes(child.facts)
    ]


def _writers(view: RankView) -> list[_Writer]:
    found = []
    if view.evidence.process is not None and not view.dead and (view.steady or not view.evidence.stacks):
        found.append((view.evidence.process, view.where))
    found += [(worker.facts, place_of(worker)) for worker in view.evidence.workers]
    return [
        _Writer(view, facts, facts.blocked_on, where)
        for facts, where in found
        if facts.blocked_on is not None and _is_output(facts) and not _writes(facts)
    ]


def _writes(facts: ProcessFacts) -> bool:
    written = facts.io_delta_bytes if facts.written_delta_bytes is None else facts.written_delta_bytes
    return bool(written)


def _is_output(facts: ProcessFacts) -> bool:
    file = facts.blocked_on
    return (
        file is not None
        and facts.system_call in _WRITES
        and file.fd in _OUTPUTS
        and any(pipe.path == file.path for pipe in facts.standard_pipes)
    )


def _waits_for(case: Case, reader: ProcessEvidence, ranks: list[int]) -> bool:
    """The reader waits for the end of a rank, and that rank for the reader, itself or through others."""
    stack = main_thread_of(reader.stacks)
    pids = {view.pid for view in case if not view.dead}
    if reader.facts.waits_for in pids:
        held = {view.pid for view in case if view.rank in ranks or view.rank in case.blocked}
        return reader.facts.waits_for in held
    return stack is not None and activity(stack).doing is Doing.JOIN_CHILD


def _reader_now(reader: ProcessEvidence | None, pids: tuple[int, ...]) -> str:
    if reader is None:
        return f"pid {pids[0]}, which should read it, does not" if pids else "no process reads it"
    return f"the {reader.role} (pid {reader.facts.pid}) does not read it{words.at(place_of(reader))}"


def _culprits(writers: list[_Writer], reader: ProcessEvidence | None, pids: tuple[int, ...]) -> tuple[Culprit, ...]:
    """The processes that should read, for each rank whose output it is; the line is the one that writes."""
    pid = reader.facts.pid if reader is not None else pids[0] if pids else None
    if pid is None:
        return ()
    process = "launcher" if reader is not None and reader.role == "launcher" else "other"
    first = {writer.view.rank: writer for writer in reversed(writers)}
    return tuple(
        Culprit(rank, pid, writer.view.evidence.host, process, writer.where) for rank, writer in sorted(first.items())
    )


def _evidence(writers: list[_Writer], reader: ProcessEvidence | None, pids: tuple[int, ...]) -> list[str]:
    found = [
        f"pid {writer.facts.pid} of rank {writer.view.rank} is in {writer.facts.system_call} to descriptor"
        f" {writer.file.fd}, {writer.file.path}, and no byte moves"
        for writer in writers[: words.SHOWN]
    ]
    if reader is not None and reader.facts.waits_for:
        found.append(f"pid {reader.facts.pid} has the other end, and waits for pid {reader.facts.waits_for} to end")
    elif pids:
        found.append(f"the other end belongs to {words.listed(f'pid {pid}' for pid in pids[: words.SHOWN])}")
    return found
