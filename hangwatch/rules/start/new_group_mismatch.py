"""new_group, which every rank must call for every group, in the same order."""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch import words
from hangwatch.facts.call_site import path
from hangwatch.facts.case import Case
from hangwatch.facts.start.new_groups import (
    GroupCall,
    Members,
    cannot_come,
    first_difference,
    is_in_new_group,
    is_only_late,
    members_words,
    not_called,
    sentences,
)
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.by_hash import with_its_hash
from hangwatch.rules.finding import Finding

OF_ONE_SHAPE = "make the mesh of the same shape and names on every rank: what they are computed from differs by rank"
UNKNOWN_SIDE = "; which side is wrong is not known"


def new_group_mismatch(case: Case) -> Finding | None:
    """Ranks stand in new_group or in a group that it made, and not all of them have made the same calls of it."""
    inside = [view for view in case if not view.dead and is_in_new_group(view)]
    call = first_difference(case)
    if not inside or call is None:
        return _of_one_name(case, call) if call is not None else None
    if len(call.lists) > 1:
        return _different_lists(case, inside, call)
    return _not_called(case)


def _different_lists(case: Case, inside: list[RankView], call: GroupCall) -> Finding:
    odd, stuck = _odd(case, call), [view.rank for view in inside]
    settled = all(view.steady for view in inside)
    certain = settled and cannot_come(case, stuck)
    lists = [f"{case.name(ranks)} {members_words(members)}" for members, ranks in _by_list(call)]
    first = case.ranks[odd[0]]
    what = (
        f"The ranks called new_group with different lists: call {call.index} was made with {words.listed(lists)}"
        f"{words.at(call.where(odd[0]))}"
    )
    if members := call.by_members_only:
        what = (
            f"{case.name(odd, capital=True)} did not call new_group({members_words(members)}), of which"
            f" {words.verb(len(odd), 'it is no member', 'they are no members')}{words.at(call.where_made(members))}:"
            " every rank must call it"
        )
    said = Finding(
        "new-group-mismatch",
        Certainty.PROVEN if certain else Certainty.LIKELY,
        f"{what}; {case.wait_words(stuck)} in new_group.",
        fix="" if call.by_members_only or not any(map(_makes_a_mesh, inside)) else OF_ONE_SHAPE,
        culprits=case.culprits_at(odd, lambda view: call.where(view.rank) or call.where_made(members)),
        victims=tuple(sorted({*case.blocked, *stuck}.difference(odd))),
        step=first.step,
        evidence=tuple(sentences(call)),
        status=Status.HUNG if certain or case.stalled(stuck) else Status.WAITING,
    )
    return with_its_hash(case, said, said.cause, {view.rank: path(view.evidence.main_stack) for view in inside})


def _makes_a_mesh(view: RankView) -> bool:
    """A DeviceMesh calls new_group for it, by its own shape and its own order."""
    return any(frame.file.endswith("torch/distributed/device_mesh.py") for frame in view.evidence.main_stack)


def _odd(case: Case, call: GroupCall) -> tuple[int, ...]:
    """Those to blame; also the ranks that can no longer make a call which its members alone have made."""
    never = (rank for rank in call.lacking if cannot_come(case, [rank])) if call.by_members_only else ()
    return tuple(sorted({*call.odd, *never}))


def failed_in_one_name(case: Case) -> Finding | None:
    """Ranks failed before their first step, and groups of different ranks have one name."""
    call = first_difference(case) if case.any_rank_failed else None
    if call is None or any(case.ranks[rank].step.step is not None for rank in call.made):
        return None
    return _of_one_name(case, call)


def _of_one_name(case: Case, call: GroupCall) -> Finding | None:
    """Groups of different ranks got one name: by that they find their peers, and so those of the other group."""
    name = call.shared_name
    stuck = [rank for rank, entry in case.blocked.items() if entry.group is not None and entry.group.name == name]
    failed = [view.rank for view in case.views(sorted(call.made)) if view.failed]
    if not name or not (stuck or failed):
        return None
    end = (
        f"{case.wait_words(stuck)} in one of them{words.at(case.usual_place(stuck))}"
        if stuck
        else f"{case.name(failed)} failed{words.at(case.usual_place(failed))}"
    )
    lists = [f"{case.name(ranks)} {members_words(members)}" for members, ranks in _by_list(call)]
    return Finding(
        "new-group-mismatch",
        Certainty.LIKELY,
        f"The ranks called new_group with different lists: call {call.index} was made with {words.listed(lists)}"
        f"{words.at(call.where(call.odd[0]))}. Both groups are called {name} in the store by which members find each"
        f" other, and members of one may be connected with those of the other; {end}.",
        culprits=case.culprits_at(call.odd, lambda view: call.where(view.rank)),
        victims=case.victims(call.odd),
        step=case.furthest_step(stuck or failed),
        evidence=tuple(sentences(call)),
        status=case.failed_status,
        awaited=tuple(sorted(call.made)),
    )


def _not_called(case: Case) -> Finding | None:
    """Some ranks have not made the call, and never will."""
    found = not_called(case)
    if found is None or is_only_late(case, found):
        return None
    call, awaited, stuck, never = found.call, found.awaited, found.stuck, found.never
    members, first, odd = next(iter(call.lists)), case.ranks[awaited[0]], found.odd(case)
    return Finding(
        "new-group-mismatch",
        Certainty.PROVEN if never and odd == awaited else Certainty.LIKELY,
        f"{case.name(awaited, capital=True)} did not call new_group({members_words(members)}), and"
        f" {words.verb(len(awaited), 'is', 'are')} elsewhere{words.at(first.where)};"
        f" {case.wait_words(stuck)} in it{words.at(call.where(stuck[0]))}{'' if odd else UNKNOWN_SIDE}.",
        culprits=case.culprits_at(odd, lambda view: call.where(view.rank)),
        victims=tuple(sorted({*case.blocked, *stuck}.difference(odd))),
        step=first.step,
        evidence=tuple(sentences(call)),
        status=Status.HUNG if never or case.stalled(stuck) else Status.WAITING,
    )


def _by_list(call: GroupCall) -> Iterable[tuple[Members, list[int]]]:
    for members, _ in call.lists.most_common():
        yield members, sorted(rank for rank, made in call.made.items() if made.members == members)
