"""Ranks that have joined the rendezvous, that may still join, and that never will: facts for the rules of the start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf

from hangwatch.facts.case import Case
from hangwatch.model import Launched, Phase, ProcessEvidence, ProcessFacts
from hangwatch.ranks.processes import computed
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Doing
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import main_thread_of, name_of

# What a rank can have been in without ever having been a member; it goes on to its end from there.
OUTSIDE = frozenset({Phase.START, Phase.INIT, Phase.FAILED, Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING})
LATE = 10.0  # times the patience of the start: how long a living process may take to arrive
BY_OTHERS = 4.0  # times the patience of the start for what other people, or other commands, start: nodes, single ranks
_JOINS = frozenset({Doing.JOIN_CHILD, Doing.JOIN_THREADS})


@dataclass(frozen=True)
class Arrivals:
    """The start of a job at the moment of the snapshot."""

    case: Case

    @cached_property
    def waiting(self) -> tuple[RankView, ...]:
        """Living ranks that stand in the rendezvous."""
        return tuple(view for view in self.case if not (view.dead or view.stopped) and _in_rendezvous(view))

    @cached_property
    def late(self) -> tuple[RankView, ...]:
        """Living ranks that have not come to the rendezvous yet."""
        return tuple(
            view
            for view in self.case
            if not view.dead and view.phase is Phase.START and not registered(view) and not _in_rendezvous(view)
        )

    @cached_property
    def unborn(self) -> tuple[Launched, ...]:
        """Living processes that were started as ranks and have no board yet."""
        return tuple(each for each in self.case.snapshot.launched if each.ended_at is None and not self._known(each))

    @cached_property
    def stillborn(self) -> tuple[Launched, ...]:
        """Processes that were started as ranks, ended without a board, and were not replaced by another process."""
        launched = self.case.snapshot.launched
        alive = {each.rank for each in launched if each.ended_at is None}
        alive |= {view.rank for view in self.case if not view.dead}
        ended = (each for each in launched if each.ended_at is not None and each.rank not in alive)
        return tuple(each for each in ended if not self._known(each))

    @cached_property
    def dead(self) -> tuple[RankView, ...]:
        """Ranks that ended before they had registered."""
        known = (view for view in self.case if view.dead and view.reading is not None)
        return tuple(view for view in known if not registered(view))

    @cached_property
    def absent(self) -> tuple[int, ...]:
        """Numbers of ranks for which no process was ever seen."""
        started = {each.rank for each in self.case.snapshot.launched}
        return tuple(rank for rank in self.case.absent if rank not in started)

    @cached_property
    def newcomers(self) -> tuple[ProcessEvidence, ...]:
        """Living processes below the job's own that are no ranks yet and may become some.

        A trainer starts its other ranks itself, without a RANK in their environment: what is known of them is that they
        work, were given the LOCAL_RANK of a rank that has not come, or were started as the ranks were.
        """
        snapshot = self.case.snapshot
        below = [each for rank in snapshot.ranks for each in rank.children] + list(snapshot.others)
        return tuple(each for each in below if each.role in ("child", "job") and self._may_come(each))

    @cached_property
    def launchers(self) -> tuple[ProcessEvidence, ...]:
        """Launchers whose stack was captured."""
        return tuple(each for each in self.case.snapshot.launchers if main_thread_of(each.stacks) is not None)

    @cached_property
    def commands(self) -> tuple[ProcessEvidence, ...]:
        """What the script that has started ranks runs beside them, such as a copy: it may go on after it.

        A launcher in Python tells by its stack what it waits for. A sleep without an end keeps a script alive, and no
        more. What was started before a rank lies in the background; what reads a pipe, such as `tee`, ends with others.
        """
        ranks = [process for view in self.case if (process := view.evidence.process) is not None]
        youngest = {each.parent: each.started_at or 0.0 for each in sorted(ranks, key=lambda r: r.started_at or 0.0)}
        scripts = set(youngest)
        scripts &= {each.facts.pid for each in self.case.snapshot.launchers if each not in self.launchers}
        beside = (each for each in self.case.snapshot.others if each.facts.parent in scripts and each.role == "job")
        longest = LATE * self.case.snapshot.start_patience_s
        return tuple(
            each
            for each in beside
            if each.facts.state not in "XZ"
            and (each.facts.sleeps_s or 0.0) < longest
            and (each.facts.started_at or inf) >= youngest[each.facts.parent]
            and not (each.facts.blocked_on is not None and each.facts.blocked_on.is_pipe)
        )

    @property
    def still_starting(self) -> bool:
        """Some launcher is busy with its own code, or with a command that is no rank: it may start more ranks."""
        busy = any(not self._waits_for_ranks(each) for each in self.launchers)
        return busy or bool(self.commands) or self._just_started

    @cached_property
    def _just_started(self) -> bool:
        """A launcher has a child of which nothing else is known: it was started while the evidence was taken.

        It came after all that are known: a helper such as multiprocessing's resource tracker came before the ranks.
        """
        known = self._ranks_and_launchers | {each.facts.pid for each in self.case.snapshot.others}
        last = max((pid for pid in known if pid is not None), default=0)
        return any(pid > last for each in self.case.snapshot.launchers for pid in each.facts.children)

    @cached_property
    def _ranks_and_launchers(self) -> set[int | None]:
        """The pids of ranks, of what was started as one, and of what started them."""
        snapshot = self.case.snapshot
        started = {each.pid for each in snapshot.launched} | {each.facts.pid for each in snapshot.launchers}
        parents = {view.evidence.process.parent for view in self.case if view.evidence.process is not None}
        return {view.pid for view in self.case} | started | parents

    def _waits_for_ranks(self, launcher: ProcessEvidence) -> bool:
        """It stands in the wait for a child, and that is no command such as a copy of data."""
        child = launcher.facts.waits_for
        return _waits_for_children(launcher) and (child is None or child in self._ranks_and_launchers)

    @property
    def patience_s(self) -> float:
        """How long the others may take to come, once some ranks wait for them."""
        times = LATE if self.still_starting or self.newcomers else 1.0 if self.case.snapshot.launchers else BY_OTHERS
        return times * self.case.snapshot.start_patience_s

    @property
    def no_other_rank_can_join(self) -> bool:
        """All ranks must be of this machine, and their launcher only waits for their end."""
        if not self.launchers or len(self.launchers) != len(self.case.snapshot.launchers):
            return False
        if self.still_starting or self.newcomers:
            return False
        addresses = [address(view)[0] for view in self.waiting]
        return bool(addresses) and all(each.startswith("127.") or each in ("localhost", "::1") for each in addresses)

    def age(self, view: RankView) -> float:
        """For how long the rank's process has lived, in seconds."""
        reading = view.reading
        return self.case.snapshot.taken_at - reading.identity.started_at if reading is not None else 0.0

    def waited(self, view: RankView) -> float:
        """For how long the rank has waited for the others, in seconds, without the time of its own start."""
        reading = view.reading
        if reading is None or reading.phase is not Phase.INIT or not reading.phase_at:
            return self.age(view)
        return self.case.snapshot.taken_at - reading.phase_at

    def _may_come(self, each: ProcessEvidence) -> bool:
        facts = each.facts
        if facts.state in "XZ":
            return False
        if facts.environment.get("LOCAL_RANK", "") in {str(rank) for rank in self.absent}:
            return True
        return facts.state in "RD" or computed(facts) or self._started_alike(facts)

    def _started_alike(self, facts: ProcessFacts) -> bool:
        """By the parent of a rank, with the same command: it may sleep in the user's code before it says its rank."""
        return facts.parent is not None and (facts.parent, _command(facts)) in self._starts

    @cached_property
    def _starts(self) -> set[tuple[int | None, str]]:
        """Of each rank, its parent and its command."""
        processes = (view.evidence.process for view in self.case)
        return {(each.parent, _command(each)) for each in processes if each is not None}

    def _known(self, each: Launched) -> bool:
        return any(rank.pid == each.pid for rank in self.case.snapshot.ranks)


def _command(facts: ProcessFacts) -> str:
    """Without numbers: each child of multiprocessing is told other ones."""
    return re.sub(r"\d+", "", facts.command or "")


def _waits_for_children(launcher: ProcessEvidence) -> bool:
    stack = main_thread_of(launcher.stacks)
    if stack is None:
        return False
    if activity(stack).doing in _JOINS or launcher.facts.waits_for is not None:
        return True
    names = {(name_of(frame.function), frame.file.rpartition("/")[2]) for frame in stack.frames}
    return not names.isdisjoint([("join", "spawn.py"), ("_monitor_workers", "api.py"), ("_invoke_run", "api.py")])


def _in_rendezvous(view: RankView) -> bool:
    if view.main.doing in (Doing.RENDEZVOUS, Doing.NOTHING):
        return view.main.doing is Doing.RENDEZVOUS or view.phase is Phase.INIT
    return False


def registered(view: RankView) -> bool:
    """It has been a member of the world."""
    reading = view.reading
    if reading is None:
        return bool(view.evidence.collectives.heads)
    made = any(group.done for group in reading.groups_made)
    worked = reading.progress.step >= 0 or reading.progress.calls > 0
    return bool(reading.heads) or made or worked or reading.phase not in OUTSIDE


def settings_of(view: RankView) -> Mapping[str, str]:
    """Its distributed settings: as its board says them, else as its process was started."""
    process = view.evidence.process
    return {**(process.environment if process is not None else {}), **view.evidence.board_settings}


def address(view: RankView) -> tuple[str, str]:
    """MASTER_ADDR and MASTER_PORT in the rank's own settings."""
    found = settings_of(view)
    return found.get("MASTER_ADDR", ""), found.get("MASTER_PORT", "")


def ends_the_others(case: Case) -> bool:
    """Its launcher ends all ranks when one fails: torchrun does, and mp.spawn, but not a bare Process."""
    name = launcher_of(case)
    stacks = [stack for each in case.snapshot.launchers if (stack := main_thread_of(each.stacks)) is not None]
    spawn = any(frame.file.endswith("torch/multiprocessing/spawn.py") for stack in stacks for frame in stack.frames)
    return name == "torchrun" or (name == "spawn" and (spawn or not stacks))


def launcher_of(case: Case) -> str:
    """ "torchrun", "spawn", "plain", ..."""
    own = (view.reading.identity.launcher for view in case if view.reading is not None)
    return case.job.launcher or next((name for name in own if name), "")


def host_of(case: Case) -> str:
    """The one host of the job; "" where it has several, or none is known."""
    return case.snapshot.nodes[0].host if len(case.snapshot.nodes) == 1 else ""


def restarted_with_its_store(view: RankView) -> bool:
    """A restart by torchrun, which shares the store of its rendezvous with the workers; no group exists yet."""
    restarts = settings_of(view).get("TORCHELASTIC_RESTART_COUNT", "")
    shared = settings_of(view).get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return shared and restarts.isdecimal() and int(restarts) > 0 and view.reading is not None and not view.reading.heads
