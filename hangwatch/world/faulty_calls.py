"""Faults of calls: left out, made too often, or made otherwise."""

from __future__ import annotations

from dataclasses import replace

from .acts import (
    Act,
    Collective,
    Forward,
    Mark,
    Peer,
    Slow,
)
from .edits import Edits, Fault


class FaultyCalls(Edits):
    """Calls left out, added or changed; each method is a fault, or None where the program has no place for it."""

    def skipped(self) -> Fault | None:
        """Some ranks leave out what all have made in earlier steps: one rank, several, or most of them."""
        known = [role for role in ("grad", "log", "vote", "tensor") if self.place(role, from_batch=1) is not None]
        if not known:
            return None
        role = self.dice.choice(known)
        places = self.places(role)
        if len(places) < 4:
            return None
        place = self.dice.choice(places[3:])
        majority = self.plan.size > 2 and self.dice.random() < 0.25
        ranks = [rank for rank in self.some(majority=majority) if self.at(rank, role, place)]
        roles = {"grad": ("grad", "grad-second", "grad-wait", "optimizer"), "log": ("log", "log-wait")}.get(
            role, (role,)
        )
        for rank in ranks:
            self.drop(rank, [index for each in roles for index in self.at(rank, each, place)])
        kind = "skipped by most" if 2 * len(ranks) >= self.plan.size else "skipped"
        causes = ("skipped-collective", "exception-on-one-rank")
        return self.made(kind, causes, ranks) if ranks else None

    def extra(self) -> Fault | None:
        """One rank makes a call more, in the middle of its training."""
        rank = self.one()
        place = self.place("forward", rank, from_batch=1)
        if place is None:
            return None
        index = self.at(rank, "forward", place)[0]
        site = self.plan.source.site(self.dice.choice(("extra", "extra", "log")))
        op = self.dice.choice(("all_reduce", "all_gather", "barrier"))
        call = Collective(op, site, size=self.dice.choice((1, 8, 1024)))
        self.insert(rank, index, (Mark(self.index), call))
        return self.made("extra", ("rank-zero-only-collective", "collective-mismatch"), (rank,))

    def rank_zero_only(self) -> Fault | None:
        """One rank validates, saves or logs with a call that the others never make."""
        rank = 0 if self.dice.random() < 0.8 else self.one()
        if not self._have((rank,), "end"):
            return None
        source, kind = self.plan.source, self.dice.choice(("validate", "save", "log"))
        place = self.place("forward", rank, from_batch=1)
        if kind == "log" and place is not None:
            index = self.at(rank, "forward", place)[0]
            acts: list[Act] = [Collective("all_reduce", source.site("lone-log", "rank"), size=1)]
        else:
            ends = [
                index
                for index, line in enumerate(self.programs[rank])
                if line.batch == self.plan.batches and line.role != "loop-end"
            ]
            index = self.dice.choice(ends) if ends else self._first(rank, "end")
            acts = self._alone(kind)
        self.insert(rank, index, (Mark(self.index), *acts))
        return self.made("rank zero only", ("rank-zero-only-collective",), (rank,))

    def _alone(self, kind: str) -> list[Act]:
        source = self.plan.source
        if kind == "save":
            return [Collective("all_gather", source.site("save-gather", "rank"), size=256) for _ in range(3)]
        return [
            Forward(grad=False),
            Collective("broadcast", source.site("validate", "rank"), size=4, via="buffers", root=0),
            Collective("all_reduce", source.site("validate", "rank"), size=1),
        ]

    def mismatch(self) -> Fault | None:
        """One rank calls another operation, or brings another size, at a point where all call."""
        role = self.dice.choice(("log", "vote", "tensor", "validate-gather"))
        rank = self.one()
        place = self.place(role, rank)
        if place is None:
            return None
        indices = self.at(rank, role, place)
        old = self.programs[rank][indices[0]]
        assert isinstance(old.act, Collective)
        how = self.dice.choice(("op", "size", "dtype"))
        if how == "op":
            new = replace(old.act, op="all_gather" if old.act.op != "all_gather" else "all_reduce")
        else:
            new = replace(old.act, size=old.act.size * 3) if how == "size" else replace(old.act, dtype="Double")
        self.programs[rank][indices[0]] = replace(old, act=new)
        self.insert(rank, indices[0], (Mark(self.index),))
        return self.made(f"{how} mismatch" if how == "op" else "size mismatch", ("collective-mismatch",), (rank,))

    def group_order(self) -> Fault | None:
        """A rank uses two groups in the opposite order."""
        if not self.plan.tensor or not self.plan.buffers:
            return None
        rank = self.one()
        place = self.place("tensor", rank)
        if place is None or not self.at(rank, "buffers", place):
            return None
        tensor, buffers = self.at(rank, "tensor", place)[0], self.at(rank, "buffers", place)[0]
        lines = self.programs[rank]
        call = Collective("all_reduce", self.plan.source.site("forward"), size=4)
        for other in self.plan.world:  # a symmetric call in place of the broadcast, so that the circle closes
            for index, line in enumerate(self.programs[other]):
                if line.role == "buffers":
                    self.programs[other][index] = replace(line, act=call)
        lines[tensor], lines[buffers] = lines[buffers], lines[tensor]
        self.insert(rank, buffers, (Mark(self.index),))
        return self.made("group order", ("group-order-cycle",), self.plan.world)

    def cadence(self) -> Fault | None:
        """One rank synchronises its gradients at another interval."""
        if self.plan.batches < 6:
            return None
        rank, plan = self.one(), self.plan
        from .program import Writer

        other = replace(plan, cadence=2 if plan.cadence == 1 else 1)
        lines = Writer(other, rank).program()
        pairs = zip(self.programs[rank], lines, strict=False)
        first = next((index for index, (one, two) in enumerate(pairs) if one != two), None)
        if first is None or self.faults:
            return None
        self.programs[rank] = lines
        self.insert(rank, first, (Mark(self.index),))
        return self.made("cadence", ("gradient-sync-mismatch", "skipped-collective"), (rank,))

    def peers(self) -> Fault | None:
        """Sends that wait for receives all at once, or a receive without its send."""
        if not self.plan.pipeline or self.plan.nccl:
            return None
        place, rank = self.everywhere("send"), self.one()
        if place is None:
            return None
        if self.dice.random() < 0.5:
            self.drop(rank, self.at(rank, "send", place))
            return self.made("send left out", ("point-to-point-deadlock", "skipped-collective"), self.plan.world)
        for each in self.plan.world:
            for index in self.at(each, "send", place):
                line = self.programs[each][index]
                if isinstance(line.act, Peer):
                    self.programs[each][index] = replace(line, act=replace(line.act, handle=""))
                    self.insert(each, index, (Mark(self.index),))
        return self.made("send before receive", ("point-to-point-deadlock",), self.plan.world)

    def bucket_order(self) -> Fault | None:
        """Two models, whose gradients come in another order on some ranks, while all of them compute or read."""
        if not self.plan.two_models:
            return None
        place = self.everywhere("grad", "grad-second")
        if place is None:
            return None
        kind, ranks = self.dice.choice(("backward-read", "backward-compute")), self.some()
        for rank in self.plan.world:
            second = self.at(rank, "grad-second", place)[0]
            if rank in ranks:
                line = self.programs[rank].pop(second)
                self.programs[rank].insert(self.at(rank, "grad", place)[0], line)
                second = self.at(rank, "grad", place)[0]
            slow = Slow(kind, self.plan.source.site("backward"), forever=False, fault=self.index)
            self.insert(rank, second, (slow,))
        return self.made("bucket order", ("undetermined", "user-code-blocked"), (), forever=False)

    def destroyed_early(self) -> Fault | None:
        """Some ranks destroy their group before the last barrier, and end."""
        ranks = self.some()
        if not self._have(ranks, "final"):
            return None
        for rank in ranks:
            self.drop(rank, [self._first(rank, "final")])
        causes = ("exit-destroy-asymmetric", "early-exit", "skipped-collective")
        return self.made("destroyed early", causes, ranks)
