"""Faults of threads beside the main one."""

from __future__ import annotations

from dataclasses import replace

from .acts import (
    Act,
    Collective,
    End,
    Line,
    Mark,
    Slow,
    Start,
    ThreadPlan,
)
from .edits import Edits, Fault


class FaultyThreads(Edits):
    """Background threads; each method is a fault, or None where the program has no place for it."""

    def concurrent(self) -> Fault | None:
        """A background thread of every rank uses the group of the training."""
        site = self.plan.source.site("thread-call")
        acts: list[Act] = [Collective("all_reduce", site, size=16) for _ in range(self.dice.randint(1, 4))]
        for rank in self.plan.world:
            lines = tuple(Line(act) for act in (Mark(self.index), *acts))
            self.plan.threads.setdefault(rank, []).append(ThreadPlan("stats", lines))
        causes = ("concurrent-collectives", "collective-mismatch")
        return self.made("concurrent threads", causes, self.plan.world)

    def own_group_thread(self) -> Fault | None:
        """A background thread of every rank has a group of its own: as it should be."""
        self.plan.groups["stats"] = [tuple(self.plan.world)]
        site = self.plan.source.site("thread-call")
        for rank in self.plan.world:
            lines = tuple(Line(Collective("all_reduce", site, "stats", size=16)) for _ in range(3))
            self.plan.threads.setdefault(rank, []).append(ThreadPlan("stats", lines))
        return None

    def helper(self) -> Fault | None:
        """On one rank a background thread will make a call instead of the main thread, which goes on meanwhile."""
        rank = self.one()
        place = self.place("log", rank, from_batch=1)
        if place is None:
            return None
        indices = self.at(rank, "log", place)
        call = self.programs[rank][indices[0]].act
        if not isinstance(call, Collective) or call.handle or call.backend:
            return None
        forever = self.dice.random() < 0.3
        slow = Slow("idle-thread", self.plan.source.site("thread"), forever, self.index)
        lines = tuple(Line(act) for act in (slow, replace(call, site=self.plan.source.site("thread-call"))))
        number = len(self.plan.threads.get(rank, ())) + 1
        self.plan.threads.setdefault(rank, []).append(ThreadPlan("helper", lines, starts=False))
        self.drop(rank, indices, mark=False)
        self.insert(rank, indices[0], (Mark(self.index), Start(number)))
        causes = ("user-code-blocked", "skipped-collective", "concurrent-collectives", "undetermined")
        return self.made("helper thread", causes, (rank,), forever=forever)

    def uploader(self) -> Fault | None:
        """The main program of some ranks ends; a thread uploads, and makes the last barrier after that."""
        forever, ranks = self.dice.random() < 0.4, self.some()
        if not self._have(ranks, "final"):
            return None
        for rank in ranks:
            index = self._first(rank, "final")
            slow = Slow("upload", self.plan.source.site("upload"), forever, self.index)
            barrier = Collective("barrier", self.plan.source.site("upload"))
            lines = tuple(Line(act) for act in (slow, barrier))
            number = len(self.plan.threads.get(rank, ())) + 1
            self.plan.threads.setdefault(rank, []).append(ThreadPlan("uploader", lines, daemon=False, starts=False))
            end = [Line(Mark(self.index)), Line(Start(number)), Line(End(), "end")]
            self.programs[rank][index:] = end
        causes = ("exit-non-daemon-thread", "user-code-blocked", "exit-destroy-asymmetric", "undetermined")
        return self.made("uploader thread", causes, ranks, forever=forever)

    def lasting_thread(self) -> Fault | None:
        """Training is over, and a non-daemon thread keeps some processes."""
        ranks = self.some()
        if not self._have(ranks, "end"):
            return None
        for rank in ranks:
            slow = Slow("lock", self.plan.source.site("thread"), forever=True, fault=self.index)
            number = len(self.plan.threads.get(rank, ())) + 1
            plan = ThreadPlan("writer", (Line(slow),), daemon=False, starts=False)
            self.plan.threads.setdefault(rank, []).append(plan)
            self.insert(rank, self._first(rank, "end"), (Start(number),))
        return self.made("lasting thread", ("exit-non-daemon-thread",), ranks)
