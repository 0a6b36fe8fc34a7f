"""Two samples and what belongs to them, put together to the records of `hangwatch.model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hangwatch.model import (
    Collectives,
    Frame,
    LoaderFacts,
    LockFile,
    NodeFacts,
    PolledFile,
    ProcessEvidence,
    ProcessFacts,
    RankEvidence,
    Reading,
    ThreadStack,
)
from hangwatch.stacks.frames import stacks_of_calls, stacks_of_error, stacks_of_trace, told, via
from hangwatch_agent.capture.gpu import bound_gpu
from hangwatch_agent.capture.options import CaptureOptions, Target
from hangwatch_agent.capture.proc import locks
from hangwatch_agent.capture.proc.lock_owners import Owners
from hangwatch_agent.capture.proc.polled_files import polled_file
from hangwatch_agent.capture.proc.process import second_sample
from hangwatch_agent.capture.proc.tree import Member
from hangwatch_agent.capture.rank import outputs
from hangwatch_agent.capture.sample import Sample
from hangwatch_agent.capture.source.files import Sources, with_source
from hangwatch_agent.capture.stacks import loader_workers
from hangwatch_agent.shared.own_stacks import last_size, stacks_file


@dataclass(frozen=True)
class Seen:
    """What a capture has seen: `living` are targets by pid, `readings` the boards as read last, `rings` by pid too."""

    living: Mapping[int, Target]
    members: Sequence[Member]
    first: Sample
    second: Sample
    readings: Mapping[int, Reading]
    rings: Mapping[int, Collectives]
    node: NodeFacts
    options: CaptureOptions
    sources: Sources = field(default_factory=Sources)

    def rank(self, target: Target, rank: int) -> RankEvidence:
        """All evidence of one rank."""
        pid, reading = target.pid, self.readings[target.pid]
        facts, dump = self._facts(pid, target), self.second.dumps.get(pid)
        own = [each for each in self.members if each.rank == rank and each.role != "orphan"]
        trace = outputs.crash_trace(target.run_dir, target.own_pid)
        found = _last(dump.stacks if dump is not None else (), facts, reading, trace)
        return RankEvidence(
            rank=rank,
            host=self.node.host,
            pid=pid,
            reading=_brief(reading),
            process=facts if target.visible else None,
            stacks=with_source(found, self.sources, self.options.proc / str(pid) / "root"),
            earlier_stacks=self._earlier(pid),
            collectives=self.rings[pid],
            workers=self._workers(target, own, reading.loaders),
            children=tuple(self.process(each) for each in own if not self._is_worker(each.pid, each, reading.loaders)),
            gpu=bound_gpu(pid, reading.identity.local_rank, reading.identity.environment, self.node.gpus),
            moved=self.options.moved(target.reading, reading),
            last_output=outputs.of_rank(pid, target.log_files, reading.identity.environment, self.options.proc),
            crash_trace=trace,
            lock_files=self._locks(facts, target),
            polled=self._polled(facts, target),
        )

    def process(self, member: Member) -> ProcessEvidence:
        """All evidence of a process that is no rank and no worker."""
        dump = self.second.dumps.get(member.pid)
        return ProcessEvidence(
            role=member.role,
            facts=self._facts(member.pid),
            stacks=dump.stacks if dump else (),
            earlier_stacks=self._earlier(member.pid),
            rank=member.rank,
            lock_files=self._locks(self._facts(member.pid)) if member.role == "child" else (),
        )

    def _locks(self, facts: ProcessFacts, target: Target | None = None) -> tuple[LockFile, ...]:
        found = locks.lock_files(
            facts,
            self.second.dumps.get(facts.pid),
            run_dir=target.run_dir if target else None,
            own_pid=target.own_pid if target else None,
            proc=self.options.proc,
        )
        if target is not None and not found and target.own_pid in (None, facts.pid):  # else its pids are other ones
            found = locks.left_behind(facts, target.reading.exception, proc=self.options.proc)
        return tuple(self._owners.known(lock) for lock in found)

    def _polled(self, facts: ProcessFacts, target: Target) -> PolledFile | None:
        told = target.run_dir / f"polled-{target.own_pid or facts.pid}.txt"
        return polled_file(facts.pid, told, target.reading.identity.started_at, proc=self.options.proc)

    @property
    def _owners(self) -> Owners:
        ranks = {pid: each.rank for pid, each in self.living.items()}
        return Owners(ranks, {each.pid: each for each in self.members}, self.first.table, self.second.table)

    def _facts(self, pid: int, target: Target | None = None) -> ProcessFacts:
        """Of a rank that is gone, only what its board says is left: another process may have its pid by now."""
        first, second = self.first.facts.get(pid), self.second.facts.get(pid)
        facts = second_sample(first, second) if first and second else second or ProcessFacts(pid, "X")
        if target is None:
            return facts
        identity = target.reading.identity
        if facts.state == "X":
            return ProcessFacts(pid, "X", started_at=identity.started_at, command=identity.command)
        if facts.cpu_delta_s is not None:
            facts = replace(facts, cpu_delta_s=max(facts.cpu_delta_s - self.rings[pid].answer_cpu_s, 0.0))
        facts = replace(facts, written_delta_bytes=_of_its_own(facts.written_delta_bytes, target))
        return facts if facts.state != "D" else replace(facts, command=identity.command or facts.command)

    def _earlier(self, pid: int) -> tuple[ThreadStack, ...]:
        dump = self.first.dumps.get(pid)
        return dump.stacks if dump else ()

    def _is_worker(self, pid: int, member: Member, loaders: Sequence[LoaderFacts]) -> bool:
        listed = loader_workers.listed_index(pid, loaders) is not None
        return listed or member.role == "loader-worker" or loader_workers.is_worker(self._earlier(pid))

    def _workers(
        self, target: Target, own: Sequence[Member], loaders: Sequence[LoaderFacts]
    ) -> tuple[ProcessEvidence, ...]:
        pids = [each.pid for each in own if self._is_worker(each.pid, each, loaders)]
        if target.pid in self.living:  # a worker that the loader still counts on and that is no descendant has died
            pids += [pid for pid in loader_workers.listed(loaders) if pid not in pids]
        found = [self._worker(pid, target.rank, loaders) for pid in pids]
        return tuple(sorted(found, key=lambda each: (each.worker is None, each.worker or 0, each.facts.pid)))

    def _worker(self, pid: int, rank: int | None, loaders: Sequence[LoaderFacts]) -> ProcessEvidence:
        dump, index = self.second.dumps.get(pid), loader_workers.listed_index(pid, loaders)
        return ProcessEvidence(
            role="loader-worker",
            facts=self._facts(pid),
            stacks=with_source(dump.stacks if dump else (), self.sources, self.options.proc / str(pid) / "root"),
            earlier_stacks=self._earlier(pid),
            rank=rank,
            worker=loader_workers.index(dump) if index is None and dump else index,
            sample=loader_workers.sample(dump) if dump else None,
            lock_files=self._locks(self._facts(pid)),
        )


def _last(found: tuple[ThreadStack, ...], facts: ProcessFacts, reading: Reading, trace: str) -> tuple[ThreadStack, ...]:
    """The stacks of a rank; of one that has ended, or that an error takes out of its main program, its last ones."""
    raised = stacks_of_error(reading.exception)
    if not found and facts.state in "XZ":
        return stacks_of_trace(trace) or stacks_of_calls(reading.open_calls) or raised
    if any(each.main and each.frames for each in found):
        return found
    return (*raised, *(each for each in found if each.frames)) if raised else found


def _brief(reading: Reading) -> Reading:
    """The long list of calls with the frames that tell most of a path; whole paths stand with the last calls."""
    short: dict[int, tuple[tuple[Frame, ...], int]] = {}  # by identity: the reader has one tuple for a path's calls
    for call in reading.calls:
        if id(call.frames) not in short:
            short[id(call.frames)] = told(call.frames), via(call.frames)
    of_path = [(call, *short[id(call.frames)]) for call in reading.calls]
    return replace(reading, calls=tuple(replace(call, frames=frames, via=way) for call, frames, way in of_path))


def _of_its_own(written: int | None, target: Target) -> int | None:
    """What a rank wrote between the samples without its answer to us and its stacks, where it has written them then."""
    if written is None:
        return None
    answer = _size(target.board_path.with_name(f"collectives-{target.own_pid}.json"), lambda path: path.stat().st_size)
    stacks = _size(stacks_file(target.run_dir, target.own_pid), last_size)
    return written - max(ours for ours in (answer + stacks, answer, stacks, 0) if ours <= written)


def _size(path: Path, measure: Callable[[Path], int]) -> int:
    try:
        return measure(path)
    except OSError:
        return 0
