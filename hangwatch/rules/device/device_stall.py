"""A GPU that computes and does not come back."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.processes.devices import Bound, all_have_come, bound
from hangwatch.facts.processes.own_code import status_of
from hangwatch.facts.processes.standstill import awaited_for_a_device
from hangwatch.model import Certainty, Status
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.rules.undetermined import without_cause


def device_stall(case: Case) -> Finding | None:
    """Ranks wait for their devices, and one device spins while the others are done."""
    gpus = list(bound(case))
    few = [each for each in gpus if each.spins]
    if not few or (len(few) * 2 >= len(gpus) and len(gpus) > 1):
        return None
    ranks = [each.view.rank for each in few]
    head = f"The GPU of {case.name(ranks)} does not finish: it is fully used at low power"
    return _stall(case, head, few, few)


def no_device_finishes(case: Case) -> Finding | None:
    """Ranks wait for their devices, of which none is known to be behind the others."""
    gpus = list(bound(case))
    return _stall(case, "The devices do not finish what the ranks wait for", gpus, []) if gpus else None


def _stall(case: Case, head: str, gpus: list[Bound], few: list[Bound]) -> Finding | None:
    waiting = [view for view in case if case.waits.shows_device_wait(view)]
    if not waiting or not all_have_come(case):
        return None
    ranks, first = {each.view.rank for each in few}, waiting[0]
    return Finding(
        "device-stall",
        Certainty.LIKELY if few else Certainty.UNDETERMINED,
        f"{head}; {case.wait_words(view.rank for view in waiting)} in {first.now.op or 'a device call'}"
        f"{words.at(first.where)}.",
        culprits=tuple(each.view.culprit() for each in few),
        victims=tuple(view.rank for view in waiting if view.rank not in ranks),
        step=first.step,
        evidence=tuple(dict.fromkeys(each.figures for each in gpus[: words.SHOWN])),
        awaited=tuple(view.rank for view in waiting),
    )


def awaited_device(case: Case) -> Finding | None:
    """The ranks that are awaited wait for their devices, where no collective is outstanding.

    A kernel of their own may run there, or calls that no record shows: those of a captured graph, whose partner may not
    have arrived, a send or receive. So ranks are blamed only where they are few and known to have sent nothing.
    """
    awaited = awaited_for_a_device(case)
    if not awaited:
        return None
    ranks = [view.rank for view in awaited]
    first, victims, them = awaited[0], case.victims(ranks), words.verb(len(ranks), "it", "them")
    theirs = words.verb(len(ranks), "its device, which does", "their devices, which do")
    status = status_of(case, awaited)
    alone = status is not Status.WAITING and len(ranks) * 2 < case.size and all(map(_sent_nothing, awaited))
    unrecorded = "those of a captured graph" if alone else "those of a captured graph, a send or receive"
    finding = Finding(
        "device-stall",
        Certainty.LIKELY if alone else Certainty.UNDETERMINED,
        f"{case.say(ranks, 'waits', 'wait', capital=True)} for {theirs} not finish"
        f"{words.at(first.where)}, and no collective of {them} is outstanding; {case.wait_words(victims)} for {them}"
        f"{words.at(case.usual_place(victims))}.",
        culprits=tuple(view.culprit() for view in awaited) if alone else (),
        victims=victims,
        step=first.step,
        evidence=(f"a native frame of {case.name(ranks)} shows the wait for the device",),
        details=(f"A kernel runs there, or calls that no record shows: {unrecorded}.",),
        status=status,
        awaited=tuple(ranks),
    )
    return without_cause(finding) if status is Status.WAITING else finding  # a long kernel looks the same for a while


def _sent_nothing(view: RankView) -> bool:
    """Its recorder has answered, and it has never sent to or received from a peer."""
    told = view.evidence.collectives
    return told.source == "flight-recorder" and not any(head.sent or head.received for head in told.heads)
