"""Hangs whose cause is not known: what is told where no rule finds anything, or where one finds too little.

The modules beside this one tell of jobs of which it is known what happened to them, and not why.
"""

from __future__ import annotations

from dataclasses import replace

from hangwatch import words
from hangwatch.facts.case import Case, call_words
from hangwatch.model import Certainty
from hangwatch.proof.waits import Blocked
from hangwatch.ranks.device_waits import on_device
from hangwatch.rules.after_restart import fix_after_restart
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

_DESTROY = "All ranks are in destroy_process_group, and every collective that they enqueued is complete."
_OF_GRAPHS = (
    "where a CUDA graph has captured calls of the group, delete it (and all that holds it) before"
    " destroy_process_group: NCCL waits there for such graphs (seen with NCCL 2.28)"
)


def undetermined(case: Case) -> Finding:
    """The last resort, where no rule finds anything: say what is seen, and blame no rank."""
    proven, destroy = bool(case.deadlocked), _all_destroy(case)
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{_head(case)}{_who_waits(case)}",
        fix=_OF_GRAPHS if destroy else fix_after_restart(case),
        details=(_DESTROY,) if destroy else (),
        victims=tuple(case.blocked),
        step=case.furthest_step(case.ranks),
        evidence=(f"no rank of {words.ranges(case.deadlocked)} can ever go on",) if proven else (),
        awaited=tuple(case.ranks),
    )


def _all_destroy(case: Case) -> bool:
    """All ranks are in destroy_process_group, with nothing outstanding on their devices."""
    living = [view for view in case if not view.dead]
    groups = list(case.ledger.groups.values())
    on_devices = bool(groups) and all(on_device(group, rank) for group in groups for rank in group.heads)
    return on_devices and not case.blocked and all(view.now.doing is Doing.DESTROY for view in living)


def without_cause(finding: Finding) -> Finding:
    """The same, where the facts do not bear out the cause that it tells."""
    return replace(finding, cause="undetermined")


def of_either_side(said: str) -> Finding:
    """Ranks made different calls, as `said`, and nothing tells which of them are not where they should be."""
    return Finding(
        "undetermined",
        Certainty.UNDETERMINED,
        f"{said}; nothing tells which of them left a call out, or made one that the others do not make.",
        fix="compare what leads to these calls: each of them must be made by every rank of the group, or by none",
        victims=(),
    )


def _head(case: Case) -> str:
    ended, moving = [view.rank for view in case if view.finished], [view.rank for view in case if case.works(view)]
    if ended and len(ended) == len(case.ranks):
        return f"{case.say(ended, 'has', 'have', capital=True)} ended without an error."
    seen = _what_is_seen(case)
    if moving:
        return f"{case.say(moving, 'still works', 'still work', capital=True)}: {seen}."
    return f"Nothing moves, and the cause is not known: {seen}."


def _who_waits(case: Case) -> str:
    """The wait of most ranks, in a sentence; "" where it is not known for whom they wait."""
    waiting: dict[tuple[object, ...], list[Blocked]] = {}
    for entry in case.blocked.values():
        if entry.need is not None and entry.need.absent:
            waiting.setdefault((entry.need.absent, entry.need.group, entry.need.seq), []).append(entry)
    most = max(waiting.values(), key=len, default=[])
    if not most or most[0].need is None:
        return ""
    ranks, awaited = [entry.rank for entry in most], most[0].need.absent
    inside = words.at(case.usual_place(ranks))
    waits = case.say(ranks, "waits", "wait", capital=True)
    return f" {waits} for {case.name(awaited)} in {call_words(most[0])}{inside}."


def _what_is_seen(case: Case) -> str:
    places: dict[tuple[str, str], list[int]] = {}
    for view in case:
        places.setdefault((str(view.now.doing), words.place(view.where)), []).append(view.rank)
    most = sorted(places.items(), key=lambda item: -len(item[1]))[:3]
    return words.listed(_seen(case, ranks, *at) for at, ranks in most) or "no rank could be looked at"


def _seen(case: Case, ranks: list[int], doing: str, place: str) -> str:
    if not place and doing == Doing.NOTHING:
        named = "any rank" if len(ranks) == case.size else case.name(ranks)
        return f"no stack was captured for {named}"
    return f"{case.say(ranks, 'is', 'are')} at {place or doing.replace('-', ' ')}"
