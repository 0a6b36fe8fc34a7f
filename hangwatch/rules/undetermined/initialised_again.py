"""A second init_process_group of the same processes: the job's store still has the addresses of the first group."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, GroupMade, Stage
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def initialised_again(case: Case) -> Finding | None:
    """Every rank has destroyed its group, and does not get one with the same name, or no collective of it completes.

    torch makes the second group under the keys of the first one, which stay in the store: the ranks connect to ports
    at which the first group listened. Where it listens still, as something holds it, they are even connected.
    """
    if not case.ranks or len(case.ranks) < case.size:
        return None
    if not all(map(_not_made, case)) and not _none_completes(case):
        return None
    view = next(iter(case))
    made = view.reading.groups_made[-1] if view.reading is not None else None
    where = words.at(user_frame((made.where,)) if made is not None and made.where is not None else None)
    failed = [each.rank for each in case if each.failed]
    stand = f"; {case.name(failed)} failed there" if failed else ""
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{case.name(list(case.ranks), capital=True)} called init_process_group a second time{where}, after"
        " destroy_process_group, and do not reach one another, probably because the job's store still has the"
        f" addresses of the first group{stand}.",
        fix="keep the first group; or give the second one keys of its own:"
        " init_process_group(..., store=dist.PrefixStore('second', store), rank=rank, world_size=world_size)",
        victims=tuple(case.ranks),
        evidence=tuple(
            f"rank {each.rank} has made group {_last(each).name!r} before and destroyed it"
            for each in list(case)[: words.SHOWN]
        ),
        status=case.failed_status,
        stage=Stage.START,
        awaited=tuple(case.ranks),
    )


def _last(view: RankView) -> GroupMade:
    assert view.reading is not None
    return view.reading.groups_made[-1]


def _none_completes(case: Case) -> bool:
    """All ranks have made it, and all of them have issued the same of its collectives, none of which is complete."""
    again = (view for view in case if _made_again(view))
    heads = [head for view in again for head in view.evidence.board_heads if head.name == _last(view).name]
    same = len({head.issued for head in heads}) == 1
    return len(heads) == len(case.ranks) and same and all(head.issued > 0 > head.completed for head in heads)


def _made_again(view: RankView) -> bool:
    return _known_before(view) and _last(view).done


def _not_made(view: RankView) -> bool:
    """Its newest group is not there yet, and one of that name was, of which the rank is a member no more."""
    return _known_before(view) and not _last(view).done and not view.evidence.board_heads


def _known_before(view: RankView) -> bool:
    """Its newest group is that of init_process_group, of which one was made before: there is only one at a time."""
    made = view.reading.groups_made if view.reading is not None else ()
    return bool(made) and made[-1].name == "0" and any(each.done and each.name == "0" for each in made[:-1])
