"""The call in which a rank failed, where its board has not counted it any more: it has been made all the same."""

from __future__ import annotations

from hangwatch.facts.call_site import recorded_site, same, site_of
from hangwatch.facts.rank_end import follows
from hangwatch.model import Collective, Frame, ThreadStack
from hangwatch.ranks.ledger import Group, Ledger
from hangwatch.ranks.view import RankView
from hangwatch.stacks.classify import activity


def failed_uncounted(view: RankView, ledger: Ledger, group: Group) -> bool:
    """The rank lost a peer in a call of `group` that is not among those counted: these are complete, or made elsewhere.

    Which group that call was of, earlier calls from the same lines tell.
    """
    frames, head = _lost_a_peer_in(view), group.heads.get(view.rank)
    if not frames or head is None:
        return False
    groups = {call.group for call in ledger.calls(view.rank).values() if _may_be_from(call, frames)}
    if (groups or {each.name for each in ledger.groups_of(view.rank)}) != {group.name}:
        return False
    last = ledger.call(view.rank, group.name, head.issued)
    return 0 < head.issued <= head.completed or (last is not None and not _may_be_from(last, frames))


def _lost_a_peer_in(view: RankView) -> tuple[Frame, ...]:
    """The frames of the collective function in which a connection broke; none where it failed of something else."""
    error = view.exception
    lost = error is not None and error.fatal and follows(error)
    if not lost or error is None or not activity(ThreadStack(0, "", error.frames, main=True)).in_collective:
        return ()
    return error.frames


def _may_be_from(call: Collective, frames: tuple[Frame, ...]) -> bool:
    """As far as is known: of some calls only the user's innermost line is on record, and a trainer's above it."""
    one, other = recorded_site(call), site_of("", frames)
    return not call.frames or same(one._replace(lines=one.lines[:1]), other._replace(lines=other.lines[:1]))
