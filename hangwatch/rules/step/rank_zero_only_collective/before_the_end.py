"""Calls from where no other rank ever was, by ranks that the end of the others left behind."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.call_site import BACKWARD, Caller, caller, in_the_engine, path, recorded_caller
from hangwatch.facts.calls.call_sites import sites_of
from hangwatch.facts.calls.last_calls import frames_at_end
from hangwatch.facts.calls.skip_paths import asked_for_the_rank, rank_check
from hangwatch.facts.case import Case
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, Frame
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import origin, user_frame

from .witnesses import alone_at, behind, call_on_every_rank

RECORDED = 4  # calls of a rank that must be on record before its never having been at a place says anything


def stayed_with_a_lone_call(case: Case) -> Finding | None:
    """Most ranks have ended; the few that still wait have called from where no other rank ever was."""
    left = [view.rank for view in case if view.over and view.rank not in case.blocked]
    stayed = [rank for rank in case.blocked if rank not in left]
    if not left or len(left) + len(stayed) < len(case.ranks):
        return None
    return _found(case, left, stayed)


def _found(case: Case, left: list[int], stayed: list[int]) -> Finding | None:
    if (
        not stayed
        or len(stayed) >= len(left)
        or any(case.blocked[rank].to_a_peer for rank in stayed if rank in case.blocked)
    ):
        return None
    found = ((rank, _lone_place(case, rank, left) or _behind_a_check(case, rank, left)) for rank in stayed)
    places = {rank: place for rank, place in found if place is not None}
    if len(places) < len(stayed):
        return None
    where = Frame(places[stayed[0]][0], places[stayed[0]][2], places[stayed[0]][1])
    guard = rank_check(case, path(frames_at_end(case.ranks[stayed[0]])[0]))
    return Finding(
        "rank-zero-only-collective",
        Certainty.LIKELY,
        f"{case.name(stayed, capital=True)} called a collective in {where.function}{words.at(where)}, which the other"
        f" ranks never call{behind(guard)}; that call, or a later one, lacks a partner, and"
        f" {case.say(left, 'has', 'have')} ended.",
        fix=call_on_every_rank(guard),
        culprits=case.culprits(stayed, where if origin(where.file) == "user" else None),
        victims=(),
        step=case.ranks[stayed[0]].step,
        evidence=(f"{case.say(left, 'has', 'have')} ended the program",),
        witnesses=(
            alone_at(case, "a collective", f"at {words.place(where)}"),
            *((Witness(Kind.SOURCE, asked_for_the_rank(guard)),) if guard is not None else ()),
        ),
    )


def _lone_place(case: Case, rank: int, others: Iterable[int]) -> Caller | None:
    """The one place from which `rank` has called, and none of `others` ever, as far as all of them are recorded."""
    sites = sites_of(case)
    records = [sites.callers(other) for other in others]
    if any(sum(found.values()) < RECORDED for found in records):
        return None
    listed = all(case.ranks[other].evidence.collectives.complete for other in others)
    made = sites.callers(rank) if listed else _on_board(case, rank)
    here = {*made, *_stands_in(case, rank)} - {BACKWARD}  # of some ranks' it is known, of others' not
    lone = [place for place in here if not any(place in found for found in records)]
    return lone[0] if len(lone) == 1 else None


def _behind_a_check(case: Case, rank: int, others: Iterable[int]) -> Caller | None:
    """The user's line of the call in which `rank` is or failed, where the source leads to it by a check of the rank.

    A package makes calls for many lines of the user from one place of its own. Programs let ranks wait for rank 0 in
    calls behind such checks at several lines: then the others have called from behind one too.
    """
    frames, _, _ = frames_at_end(case.ranks[rank])
    where = user_frame(frames)
    if where is None or rank_check(case, path(frames)) is None:
        return None
    made = (path(call.frames) for other in others for call in case.ledger.calls(other).values())
    if any(rank_check(case, each) is not None for each in made):
        return None
    return where.file, where.function, where.line


def _on_board(case: Case, rank: int) -> set[Caller]:
    """From where Python code of `rank` has called: what DDP issues by itself, a rank that has ended shows no more."""
    made = (recorded_caller(call) for call in case.ranks[rank].evidence.board_calls)
    return {each for each in made if each is not None}


def _stands_in(case: Case, rank: int) -> list[Caller]:
    """The collective in which `rank` stands, or stood at its end, may have left no record.

    Of a backward its place says nothing: the gradients' collectives of the others have left no place either.
    """
    frames, _, _ = frames_at_end(case.ranks[rank])
    made = caller(frames) if not in_the_engine(frames) else None
    return [made] if made is not None else []
