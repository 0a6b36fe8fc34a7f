"""Faults of whole ranks: loops that end early, errors, ends, and what never comes back."""

from __future__ import annotations

from dataclasses import replace

from hangwatch.model import Phase

from .acts import (
    Act,
    Collective,
    Die,
    Draw,
    Enter,
    Line,
    LoopEnd,
    Mark,
    Monitored,
    Raise,
    Slow,
    Stop,
)
from .edits import BACKWARD, Edits, Fault
from .looks import LOADER_KINDS, LOOKS


class FaultyRanks(Edits):
    """Loops, errors, ends and slow acts; each method is a fault, or None where the program has no place for it."""

    def uneven(self) -> Fault | None:
        """Some ranks have fewer batches in one epoch, or in all from then on."""
        if self.plan.loader == "none":
            return None
        epoch, ranks = self.dice.randrange(self.plan.epochs), self.some()
        lack = self.dice.randint(1, min(2, self.plan.batches - 1))
        every = self.dice.random() < 0.5
        limit = self.plan.batches - lack
        for rank in ranks:
            gone = [
                index
                for index, line in enumerate(self.programs[rank])
                if limit <= line.batch < self.plan.batches and (line.epoch == epoch or (every and line.epoch > epoch))
            ]
            self.drop(rank, gone)
            self._shorter(rank, epoch, limit, every=every)
        return self.made("uneven steps", ("uneven-steps",), ranks)

    def _shorter(self, rank: int, epoch: int, length: int, *, every: bool) -> None:
        for index, line in enumerate(self.programs[rank]):
            if line.role == "draw" and isinstance(line.act, Draw) and (line.epoch == epoch or every):
                self.programs[rank][index] = replace(line, act=replace(line.act, length=length))

    def early_exit(self) -> Fault | None:
        """Some ranks leave the loop before its end."""
        ranks, epoch = self.some(), self.dice.randrange(self.plan.epochs)
        batch = self.dice.randrange(1, self.plan.batches)
        for rank in ranks:
            gone = [i for i, line in enumerate(self.programs[rank]) if self._left_out(line, epoch, batch)]
            if not gone or all(isinstance(self.programs[rank][i].act, Mark) for i in gone):
                continue
            self.drop(rank, gone)
            if self.plan.loader != "none":
                mark = next(i for i, line in enumerate(self.programs[rank]) if line.act == Mark(self.index))
                self.insert(rank, mark + 1, (LoopEnd(0, exhausted=False, left=True),), "loop-end")
        causes = ("early-exit",) if self.plan.loader != "none" else ("early-exit", "uneven-steps", "skipped-collective")
        return self.made("early exit", causes, ranks)

    @staticmethod
    def _left_out(line: Line, epoch: int, batch: int) -> bool:
        return line.epoch > epoch or (line.epoch == epoch and line.batch >= batch)

    def error(self) -> Fault | None:
        """An error on one rank that nothing catches."""
        rank = self.one()
        index = self.anywhere(rank)
        lingers = self.dice.random() < 0.3
        site = self.plan.source.site("load")
        act = Raise("ValueError", "could not convert string to float: 'n/a'", site, lingers)
        self.insert(rank, index, (Mark(self.index), act))
        return self.made("error", ("exception-on-one-rank",), (rank,))

    def handled(self) -> Fault | None:
        """An error on one rank is caught, and its handler calls a collective that the others do not make."""
        rank = self.one()
        place = self.place("grad", rank, from_batch=1)
        if place is None:
            return None
        indices = [index for role in BACKWARD for index in self.at(rank, role, place)]
        self.drop(rank, indices)
        site = self.plan.source.site("handler", block="except")
        self.insert(rank, min(indices) + 1, (Collective("barrier", site),))
        causes = ("exception-on-one-rank", "skipped-collective", "rank-zero-only-collective")
        return self.made("error handled", causes, (rank,))

    def died(self) -> Fault | None:
        """A rank's process is killed, or leaves with os._exit."""
        rank = self.one()
        code = self.dice.choice((-9, -9, -11, 1, 0))
        self.insert(rank, self.anywhere(rank), (Mark(self.index), Die(code)))
        return self.made("died", ("rank-died", "early-exit") if code == 0 else ("rank-died",), (rank,))

    def stopped(self) -> Fault | None:
        rank = self.one()
        self.insert(rank, self.anywhere(rank), (Mark(self.index), Stop()))
        return self.made("stopped", ("rank-frozen",), (rank,))

    def slow(self) -> Fault | None:
        """A rank does something of its own that takes long, or never ends: nothing tells which."""
        kinds = (
            *("compute", "loop", "kernel-compute", "read", "read-fast", "sleep", "lock", "socket", "frozen"),
            *("compile", "backward-compute", "backward-read"),
        )
        kind, forever, ranks = self.dice.choice(kinds), self.dice.random() < 0.5, self.some()
        for rank in ranks:
            self._put_slow(rank, kind, forever=forever)
        causes = (LOOKS[kind].cause, "user-code-blocked")
        return self.made(f"slow {kind}" if not forever else f"stuck {kind}", causes, ranks, forever=forever)

    def _put_slow(self, rank: int, kind: str, *, forever: bool) -> None:
        source, index = self.plan.source, self.anywhere(rank)
        backward = kind.startswith("backward")
        if backward:  # in the middle of a backward, before or after one of its buckets
            found = [i for i, line in enumerate(self.programs[rank]) if line.role in ("grad", "grad-wait")]
            index = self.dice.choice(found) if found else index
        site = source.site("backward" if backward else self.dice.choice(("load", "forward")))
        self.insert(rank, index, (Slow(kind, site, forever, self.index),))

    def loader(self) -> Fault | None:
        """A loader worker of a rank is slow, stuck, stopped or gone."""
        if self.plan.loader == "none":
            return None
        rank, kind = self.one(), self.dice.choice(LOADER_KINDS)
        place = self.place("draw", rank)
        if place is None:
            return None
        forever = kind in ("loader-died", "loader-stopped") or self.dice.random() < 0.5
        index = self.at(rank, "draw", place)[0]
        line = self.programs[rank][index]
        assert isinstance(line.act, Draw)
        self.programs[rank][index] = replace(line, act=replace(line.act, workers=2))
        slow = Slow(kind, self.plan.source.site("loop"), forever, self.index)
        self.insert(rank, index, (Enter(Phase.DATA), slow))
        cause = {"loader-died": "loader-worker-died", "loader-stopped": "loader-worker-frozen"}.get(kind)
        causes = (cause,) if cause else ("loader-worker-blocked", "user-code-blocked", "loader-fork-deadlock")
        return self.made(f"{kind}", causes, (rank,), forever=forever)

    def checkpoint(self) -> Fault | None:
        """Rank 0 writes a checkpoint, and the others wait for it."""
        kind = self.dice.choice(("checkpoint", "checkpoint-stuck"))
        forever = self.dice.random() < 0.5
        site = self.plan.source.site("save", "rank")
        self.insert(0, self.anywhere(0), (Slow(kind, site, forever, self.index),))
        return self.made(f"{kind}", ("slow-checkpoint",), (0,), forever=forever)

    def monitored(self) -> Fault | None:
        """A monitored_barrier with a timeout of its own, which one rank does not reach in time, or never."""
        if self.plan.backend != "gloo":
            return None
        late, how = self.one(), self.dice.choice(("sleep", "compute", "skip"))
        site = self.plan.source.site("monitored")
        for rank in self.plan.world:
            index = next(i for i, line in enumerate(self.programs[rank]) if line.role in ("final", "end"))
            acts: list[Act] = [Monitored(site)]
            if rank == late:
                slow = Slow(how, self.plan.source.site("load"), forever=True, fault=self.index)
                acts = [Mark(self.index)] if how == "skip" else [slow, *acts]
            self.insert(rank, index, acts, "monitored")
        causes = ("skipped-collective",) if how == "skip" else ("user-code-blocked",)
        return self.made("monitored barrier", (*causes, "undetermined"), (late,))
