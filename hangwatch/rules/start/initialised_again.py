"""A second init_process_group of the same processes: the job's store still has the addresses of the first group."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.model import Certainty, GroupMade, Stage
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.frames import user_frame


def initialised_again(case: Case) -> Finding | None:
    """Every rank has destroyed its group and is in, or failed in, init_process_group of one with the same name.

    torch makes the second group under the keys of the first one, which stay in the store: the ranks connect to ports
    at which the first group listened.
    """
    if not case.ranks or len(case.ranks) < case.size or not all(map(_again, case)):
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
        " destroy_process_group, and do not get connected, probably because the job's store still has the addresses of"
        f" the first group{stand}.",
        fix="keep the first group; or give the second one keys of its own:"
        " init_process_group(..., store=dist.PrefixStore('second', store), rank=rank, world_size=world_size)",
        victims=tuple(case.ranks),
        evidence=tuple(
            f"rank {each.rank} has made group {_last(each).name!r} before and destroyed it"
            for each in list(case)[: words.SHOWN]
        ),
        status=case.failed,
        stage=Stage.START,
        awaited=tuple(case.ranks),
    )


def _last(view: RankView) -> GroupMade:
    assert view.reading is not None
    return view.reading.groups_made[-1]


def _again(view: RankView) -> bool:
    """Its newest group is not there yet, and one of that name was, of which the rank is a member no more."""
    reading = view.reading
    if reading is None or reading.heads or len(reading.groups_made) < 2:
        return False
    *before, last = reading.groups_made
    return not last.done and any(each.done and each.name == last.name for each in before)
