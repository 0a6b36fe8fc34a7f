"""Everything about the ranks of one machine at one moment, from all sources, in two samples a second apart.

What hangs (a driver, a name server, a frozen rank) is given up after its time and named in a note. Native frames are
not taken here: they pause a process, see `native`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hangwatch.model import CaptureNote, Collectives, Phase, Pipe, RankEvidence, Reading, StoreKey, Switch
from hangwatch_agent.capture import sample
from hangwatch_agent.capture.assemble import Seen
from hangwatch_agent.capture.options import CaptureOptions, CaptureResult, Target
from hangwatch_agent.capture.proc import locks, pipes, tree
from hangwatch_agent.capture.proc.node import Place, node_facts
from hangwatch_agent.capture.proc.tree import Member
from hangwatch_agent.capture.rank import collectives
from hangwatch_agent.capture.sample import Sample
from hangwatch_agent.capture.source.call_sites import call_sites
from hangwatch_agent.capture.source.excerpts import excerpts
from hangwatch_agent.capture.source.store_keys import store_keys
from hangwatch_agent.capture.source.switches import switches
from hangwatch_agent.capture.source.variables import named
from hangwatch_agent.capture.stacks import loader_workers
from hangwatch_agent.capture.stacks.py_spy import Dump
from hangwatch_agent.shared import procfs
from hangwatch_agent.shared.procfs import Table

Reread = Callable[[Target], Reading | None]
_WITHOUT_STACKS = frozenset(["helper", "compile-worker"])  # many, and their frames say nothing
_IN_TRAINING = frozenset(Phase) - {Phase.DESTROYED, Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING, Phase.FAILED}
LEAST_REST = 0.5  # of the gap: between the end of the first sample and the second one
_MOVEMENT_S = 0.2  # samples closer than this cannot tell movement


def capture(
    targets: Sequence[Target],
    *,
    reread: Reread = lambda target: None,
    root: int | None = None,
    run_id: str = "",
    host: str | None = None,
    options: CaptureOptions | None = None,
) -> CaptureResult:
    """Takes the evidence of all ranks of this machine, those that are gone included.

    Takes `means.sample_gap_s` and about a second; never raises for the world's faults.

    Args:
        targets: The ranks, with their boards as last read.
        reread: Reads a target's board again after the gap; None where that fails. A rank whose two readings differ
            has moved.
        root: The process that `hangwatch run` started; None where the ranks attached by themselves.
        run_id: The value of HANGWATCH_RUN_ID in the job's processes, to find its orphans.
        host: This machine's name.
        means: What to work with.
    """
    return _Capture(targets, reread, root, run_id, host or socket.gethostname(), options or CaptureOptions()).take()


class _Capture:
    """One capture under way."""

    def __init__(
        self,
        targets: Sequence[Target],
        reread: Reread,
        root: int | None,
        run_id: str,
        host: str,
        options: CaptureOptions,
    ) -> None:
        self.targets, self.reread, self.root, self.run_id = targets, reread, root, run_id
        self.host, self.options = host, options
        self.living = {each.pid: each for each in targets if _lives(each, options)}
        self.members = self._find_members()
        self.notes: list[CaptureNote] = []

    def take(self) -> CaptureResult:
        asked = {pid: self._ask(each) for pid, each in self.living.items()}
        with ThreadPoolExecutor(1, "hangwatch-node") as pool:
            node = pool.submit(
                node_facts, self._place(), self.options.gpus, proc=self.options.proc, cgroups=self.options.cgroups
            )
            first = self._sample()
            self.options.sleep(self._rest_of_gap(first))
            readings = {each.pid: self._read_again(each) for each in self.targets}
            second = self._sample(after=first)
            states = {pid: facts.state for pid, facts in second.facts.items()}
            if any(states.get(pid, "X") in "XZ" for pid in self.living):
                readings = {each.pid: self._read_again(each) for each in self.targets}  # what they did until then
            rings = {each.pid: self._ring(each, readings[each.pid], asked, states) for each in self.targets}
            facts, notes = node.result()
        self.notes.extend(notes)
        self._note_stacks(second)
        self._note_outputs(readings, second)
        facts = replace(facts, pipes=self._pipes(second))
        seen = Seen(self.living, self.members, first, second, readings, rings, facts, self.options)
        return self._result(seen)

    def _rest_of_gap(self, first: Sample) -> float:
        """What is left of the gap, which begins with the first sample: on a busy machine that takes a while itself."""
        gap = self.options.sample_gap_s
        return max(gap * LEAST_REST, gap - (time.monotonic() - first.at))

    def _find_members(self) -> tuple[Member, ...]:
        table, options = Table.read(self.options.proc), self.options
        ranks = {each.pid: each.rank for each in self.targets}
        ourselves = options.ourselves | {os.getpid()}
        found = tree.members(ranks, table, root=self.root, run_id=self.run_id, ourselves=ourselves)
        known = {member.pid for member in found}
        left_behind = (
            Member(pid, "orphan", each.rank)
            for each in self.targets
            if each.pid not in self.living
            for pid in loader_workers.listed(each.reading.loaders)
            if pid not in known and tree.kind_of(pid, table) == "loader-worker"
        )
        return (*found, *left_behind)

    def _sample(self, after: Sample | None = None) -> Sample:
        """With `after`, local variables are taken too of those whose stacks asked for it then."""
        pids = [*self.living, *(member.pid for member in self.members)]
        looked_at = [*self.living, *(each.pid for each in self.members if each.role not in _WITHOUT_STACKS)]
        curious = [pid for pid, dump in (after.dumps if after else {}).items() if _worth_locals(dump)]
        return sample.take(pids, looked_at, self.living, self.options, with_locals=curious)

    def _ask(self, target: Target) -> collectives.Request:
        return collectives.ask(
            target.board_path, target.own_pid, self.options.request_collectives, self.options.taken_up
        )

    def _ring(
        self, target: Target, reading: Reading, asked: Mapping[int, collectives.Request], states: Mapping[int, str]
    ) -> Collectives:
        if target.pid not in asked:
            return collectives.left_behind(target.board_path, target.own_pid, reading)
        state = states.get(target.pid, "X")
        found, note = collectives.answer(
            asked[target.pid], reading, rank=target.rank, stopped=state in "Tt", ended=state in "XZ"
        )
        self.notes.append(note)
        return found

    def _read_again(self, target: Target) -> Reading:
        try:
            return self.reread(target) or target.reading
        except (OSError, ValueError) as error:
            self.notes.append(CaptureNote("board", False, str(error), rank=target.rank))
            return target.reading

    def _place(self) -> Place:
        settings = next((each.reading.identity.environment for each in self.targets), {})
        ranks = tuple(sorted(each.rank for each in self.targets if each.rank is not None))
        pid = next(iter(self.living), os.getpid())
        return Place(self.host, ranks, pid, settings, self.options.oom_kills_before)

    def _pipes(self, second: Sample) -> tuple[Pipe, ...]:
        """The idle among helpers and workers are blocked on pipes too, which says nothing."""
        idlers = {each.pid for each in self.members if each.role in (*_WITHOUT_STACKS, "loader-worker")}
        blocked = pipes.awaited(facts for pid, facts in second.facts.items() if pid not in idlers)
        orphans = [
            second.facts[each.pid] for each in self.members if each.role == "orphan" and each.pid in second.facts
        ]
        left_open = {pipe.path for facts in orphans for pipe in facts.standard_pipes}
        return pipes.ends(blocked | left_open, self.options.proc)

    def _note_stacks(self, second: Sample) -> None:
        roles = {member.pid: member for member in self.members}
        for pid, dump in second.dumps.items():
            member = roles.get(pid)
            alive = second.facts[pid].state not in "XZ" if pid in second.facts else False
            if not dump.ok and alive and (member is None or member.role == "loader-worker"):
                self.notes.append(dump.note(member.rank if member else self.living[pid].rank))
        taken = [dump for dump in second.dumps.values() if dump.stacks]
        slowest = max((dump.took_s for dump in taken), default=0.0)
        self.notes.append(CaptureNote("stacks", True, f"of {len(taken)} processes", slowest))

    def _note_outputs(self, readings: Mapping[int, Reading], second: Sample) -> None:
        """A backend says on standard error why it ends a rank: where that is kept nowhere, the report says so."""
        for each in self.targets:
            facts, reading = second.facts.get(each.pid), readings[each.pid]
            ended = each.pid not in self.living or facts is None or facts.state in "XZ"
            if ended and each.unreadable_output and reading.phase in _IN_TRAINING and reading.exception is None:
                detail = (
                    f"standard error of the rank was {each.unreadable_output}: what its backend wrote there cannot be"
                    " read; in a file (torchrun --redirects 3 --log-dir DIR) it can"
                )
                self.notes.append(CaptureNote("last output", False, detail, rank=each.rank))

    def _switches(self, ranks: tuple[RankEvidence, ...], seen: Seen) -> tuple[Switch, ...]:
        """A hint, for which no verdict may be lost, whatever the user's source is like."""
        try:
            return switches(ranks, seen.sources, self.options.proc)
        except Exception as error:
            self.notes.append(CaptureNote("source files", False, f"what is set for trainers was not read: {error!r}"))
            return ()

    def _store_keys(self, ranks: tuple[RankEvidence, ...], seen: Seen) -> tuple[StoreKey, ...]:
        """A hint as well."""
        try:
            return store_keys(ranks, seen.sources, self.options.proc)
        except Exception as error:
            self.notes.append(CaptureNote("source files", False, f"keys of stores were not looked for: {error!r}"))
            return ()

    def _with_variables(self, ranks: tuple[RankEvidence, ...], seen: Seen) -> tuple[RankEvidence, ...]:
        """The variables that the program names: a hint, for which no verdict may be lost."""
        known = {each.rank: each.variables for each in self.targets if each.rank is not None and each.variables}
        try:
            found = named(ranks, known, seen.sources, self.options.proc) if known else {}
        except Exception as error:
            self.notes.append(CaptureNote("source files", False, f"the variables it names were not read: {error!r}"))
            return ranks
        return tuple(replace(each, variables=found.get(each.rank)) for each in ranks)

    def _result(self, seen: Seen) -> CaptureResult:
        ranks = self._with_variables(
            tuple(seen.rank(each, each.rank) for each in self.targets if each.rank is not None), seen
        )
        unranked = tuple(seen.process(Member(each.pid, "job")) for each in self.targets if each.rank is None)
        loose = [each for each in self.members if each.rank is None or each.role == "orphan"]
        launchers = tuple(seen.process(each) for each in loose if each.role == "launcher")
        others = (*unranked, *(seen.process(each) for each in loose if each.role != "launcher"))
        sites = call_sites(ranks, seen.sources, self.options.proc)
        quoted = excerpts(ranks, (*others, *launchers), seen.sources, self.options.proc, sites)
        if seen.sources.stuck:
            self.notes.append(CaptureNote("source files", False, "reading one of them did not come to an end"))
        return CaptureResult(
            taken_at=self.options.clock(),
            ranks=tuple(sorted(ranks, key=lambda each: (each.rank, each.pid or 0))),
            launchers=launchers,
            others=others,
            node=seen.node,
            notes=tuple(self.notes),
            sampled_twice=seen.second.at - seen.first.at >= _MOVEMENT_S,
            excerpts=quoted,
            call_sites=sites,
            switches=self._switches(ranks, seen),
            store_keys=self._store_keys(ranks, seen),
        )


def _lives(target: Target, options: CaptureOptions) -> bool:
    identity = target.reading.identity
    return target.visible and procfs.is_same(target.pid, identity.started_at, options.proc, mapped=target.board_path)


def _worth_locals(dump: Dump) -> bool:
    return loader_workers.is_worker(dump.stacks) or locks.polls_a_lock(dump.stacks)
