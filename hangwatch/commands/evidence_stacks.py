"""Stacks of ranks that were given as texts: what they add to dumps and logs, and what they say alone.

They are of one moment each: that ranks stand at the same lines later, they do not tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.commands.evidence_files import Pile
from hangwatch.facts.processes.own_code import IN_CODE
from hangwatch.judge import diagnose
from hangwatch.logs.model import Logs, Written
from hangwatch.logs.task_lines import placed
from hangwatch.model import Certainty, Culprit, Frame, Judgement, RankEvidence, Snapshot, Stage, Status, Verdict
from hangwatch.stacks.activity import Activity, Doing
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import main_thread_of

_NOT_KNOWN = "undetermined"
_WORKERS = "take the stacks of its loader workers too (py-spy dump --subprocesses): they tell what it waits for"
_AGAIN = "take the stacks again after some seconds, and of all ranks: those that stand at the same lines do not move"
_ONE_MOMENT = "whether the ranks have moved since, one stack of each does not tell"
_SHOWN = 4  # places


def with_stacks(snapshot: Snapshot, pile: Pile) -> Snapshot:
    """The evidence of ranks with the stacks of the files, where it has none."""
    known = {rank.rank: rank for rank in snapshot.ranks}
    for rank, (pid, stacks) in _of_ranks(pile.logs).items():
        own = known.get(rank, RankEvidence(rank))
        known[rank] = own if own.stacks else replace(own, pid=own.pid or pid, stacks=stacks)
    return replace(snapshot, ranks=tuple(known[rank] for rank in sorted(known)))


def _of_ranks(logs: Logs) -> dict[int, Written]:
    """The stacks of ranks, and of processes that other lines call ranks."""
    told = placed(logs)
    known = {told.rank_of_pid(written[0]): written for written in told.stacks_of_none if written[0] is not None}
    return {**{rank: written for rank, written in known.items() if rank is not None}, **told.stacks}


def judged(said: Judgement | None, snapshot: Snapshot, pile: Pile) -> Judgement | None:
    """What dumps and logs say, with what the stacks tell of the ranks that are blamed; else what the stacks say."""
    known = _of_ranks(pile.logs)
    if not known:
        return said
    stands = {rank.rank: stand for rank in snapshot.ranks if (stand := _stand(rank)) is not None}
    found = diagnose(snapshot)
    if said is None:
        interrupted = all(stacks[0].source == "error" for _, stacks in known.values() if stacks)
        if interrupted:
            return None
        return _of_one_moment(found) if found.verdict.cause != _NOT_KNOWN else _by_places(stands)
    return replace(said, verdict=_with_places(said.verdict, found.verdict, stands))


@dataclass(frozen=True)
class _Stand:
    """Where the main thread of a rank stands."""

    doing: Activity
    where: Frame
    inner: str  # the innermost function

    @property
    def waits(self) -> bool:
        """Frames show that it waits for other ranks, or for its device."""
        return self.doing.in_collective or self.doing.doing is Doing.DEVICE or self.doing.spins

    def __str__(self) -> str:
        inner = f", in {self.inner}" if self.inner != self.where.function else ""
        inner = ", waiting for a batch of its loader" if self.doing.doing is Doing.LOADER else inner
        return f"{words.place(self.where)} ({self.where.function}{inner})"


def _stand(rank: RankEvidence) -> _Stand | None:
    thread = main_thread_of(rank.stacks)
    if thread is None:
        return None
    doing = activity(thread)
    return _Stand(doing, doing.where or thread.frames[0], thread.frames[0].function)


# ------------------------------------------------------------------------------------------ alone


def _of_one_moment(found: Judgement) -> Judgement:
    """What rules find in stacks alone: ranks of a job that works stand so too, for a moment."""
    verdict = replace(found.verdict, evidence=(*found.verdict.evidence, _ONE_MOMENT))
    if verdict.certainty is not Certainty.UNDETERMINED:
        verdict = replace(
            verdict, certainty=Certainty.UNDETERMINED, details=(*verdict.details, f"To know more, {_AGAIN}.")
        )
    return replace(found, verdict=verdict)


def _by_places(stands: Mapping[int, _Stand]) -> Judgement:
    """What the places say: the ranks of one place, where all others stand at another one, are those to look at."""
    places = _places(stands)
    aside = _aside(places, stands)
    named = _of_code(aside, places, stands)
    told = [
        f"{words.ranks(ranks)} {words.verb(len(ranks), 'stands', 'stand')} at {stands[ranks[0]]}" for ranks in places
    ]
    loader = bool(aside) and stands[aside[0]].doing.doing is Doing.LOADER
    return Judgement(
        Status.WAITING,
        Stage.STEP,
        Verdict(
            "user-code-blocked" if named else _NOT_KNOWN,
            Certainty.UNDETERMINED,
            f"At the moment of these stacks {words.listed(told[:_SHOWN])}{' ...' if told[_SHOWN:] else ''}.",
            fix=cause("user-code-blocked").fix if named else _WORKERS if loader else _AGAIN,
            culprits=tuple(Culprit(rank, where=stands[rank].where) for rank in aside),
            victims=tuple(rank for rank in sorted(stands) if rank not in aside) if aside else (),
            evidence=(_ONE_MOMENT,),
        ),
    )


def _places(stands: Mapping[int, _Stand]) -> list[list[int]]:
    """The ranks by the line at which they stand, those of most ranks first."""
    found: dict[tuple[str, int], list[int]] = {}
    for rank, stand in sorted(stands.items()):
        found.setdefault((stand.where.file, stand.where.line), []).append(rank)
    return sorted(found.values(), key=len, reverse=True)


def _aside(places: list[list[int]], stands: Mapping[int, _Stand]) -> list[int]:
    """The few ranks that stand at one other place than all others, which may wait for them; none where it is not so.

    A wait for the device may have no frame (`loss.item()`): then the frames of the few must tell what these do.
    """
    if len(places) != 2 or len(places[0]) <= len(places[1]) or any(stands[rank].waits for rank in places[1]):
        return []
    if all(stands[rank].waits for rank in places[0]):
        return places[1]
    unseen = all(stands[rank].doing.doing is Doing.CODE for rank in places[0])
    return places[1] if unseen and all(stands[rank].doing.doing is not Doing.CODE for rank in places[1]) else []


def _of_code(aside: list[int], places: list[list[int]], stands: Mapping[int, _Stand]) -> bool:
    """They stand in code of their own, and frames of all others show a wait."""
    alone = bool(aside) and all(stands[rank].doing.doing in IN_CODE for rank in aside)
    return alone and all(stands[rank].waits for rank in places[0])


# ------------------------------------------------------------------------------------------ beside dumps and logs


def _with_places(verdict: Verdict, found: Verdict, stands: Mapping[int, _Stand]) -> Verdict:
    """The verdict of dumps and logs with where the blamed ranks stand, which may tell what these do instead."""
    ranks = [*verdict.blamed]
    seen = [rank for rank in ranks if rank in stands]
    told = tuple(f"the stack of rank {rank} stands at {stands[rank]}" for rank in seen[:_SHOWN])
    verdict = replace(verdict, evidence=(*verdict.evidence, *told))
    if verdict.cause != _NOT_KNOWN or not seen or seen != ranks:
        return verdict
    if found.cause != _NOT_KNOWN and {each.rank for each in found.culprits} == {*ranks}:
        return _explained(verdict, found.cause, found.summary, found.fix, stands)
    if any(stands[rank].waits or stands[rank].doing.doing not in IN_CODE for rank in ranks):
        return verdict
    places = words.listed(f"rank {rank} at {stands[rank]}" for rank in ranks[:_SHOWN])
    blocked = "user-code-blocked"
    return _explained(
        verdict, blocked, f"By its stack it stands in code of its own: {places}.", cause(blocked).fix, stands
    )


def _place(culprit: Culprit, stands: Mapping[int, _Stand]) -> Frame | None:
    """Where a culprit's stack stands; one of no known rank has its own place."""
    stand = stands.get(culprit.rank) if culprit.rank is not None else None
    return stand.where if stand is not None else culprit.where


def _explained(verdict: Verdict, name: str, said: str, fix: str, stands: Mapping[int, _Stand]) -> Verdict:
    return replace(
        verdict,
        cause=name,
        certainty=Certainty.LIKELY,
        summary=f"{verdict.summary} {said}",
        fix=fix or cause(name).fix,
        culprits=tuple(replace(each, where=_place(each, stands)) for each in verdict.culprits),
        details=(),  # that a record does not show what the host does
        alternatives=tuple(each for each in verdict.alternatives if each.cause not in (name, "uneven-steps")),
    )
