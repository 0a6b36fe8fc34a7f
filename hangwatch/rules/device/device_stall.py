"""A GPU that computes and does not come back."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.case import Case
from hangwatch.facts.devices import all_have_come, bound
from hangwatch.facts.own_code import status_of
from hangwatch.facts.standstill import awaited_for_a_device
from hangwatch.model import Certainty, Status
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing


def device_stall(case: Case) -> Finding | None:
    """Ranks wait for their devices, and one device spins while the others are done."""
    waiting = [view for view in case if view.main.doing is Doing.DEVICE]
    gpus = list(bound(case))
    spinning = [each for each in gpus if each.spins]
    if not waiting or not gpus or not all_have_come(case):
        return None
    few = spinning if len(spinning) * 2 < len(gpus) or len(gpus) == 1 else []
    ranks = [each.view.rank for each in few]
    first = waiting[0]
    if few:
        head = f"The GPU of {case.name(ranks)} does not finish: it is fully used at low power"
    else:
        head = "The devices do not finish what the ranks wait for"
    return Finding(
        "device-stall",
        Certainty.LIKELY if few else Certainty.UNDETERMINED,
        f"{head}; {case.wait_words(view.rank for view in waiting)} in {first.now.op or 'a device call'}"
        f"{words.at(first.where)}.",
        culprits=tuple(each.view.culprit() for each in few),
        victims=tuple(view.rank for view in waiting if view.rank not in ranks),
        step=first.step,
        evidence=tuple(each.figures for each in (few or gpus)[: words.SHOWN]),
        awaited=tuple(view.rank for view in waiting),
    )


def awaited_device(case: Case) -> Finding | None:
    """The ranks that are awaited wait for their devices, where no collective is outstanding.

    A kernel of their own may run there, or calls that no record shows: those of a captured graph, whose partner may not
    have arrived, a send or receive. So no rank is blamed.
    """
    awaited = awaited_for_a_device(case)
    if not awaited:
        return None
    ranks = [view.rank for view in awaited]
    first, victims, them = awaited[0], case.victims(ranks), words.verb(len(ranks), "it", "them")
    theirs = words.verb(len(ranks), "its device, which does", "their devices, which do")
    status = status_of(case, awaited)
    return Finding(
        "undetermined" if status is Status.WAITING else "device-stall",  # a long kernel looks the same for a while
        Certainty.UNDETERMINED,
        f"{case.name(ranks, capital=True)} {words.verb(len(ranks), 'waits', 'wait')} for {theirs} not finish"
        f"{words.at(first.where)}, and no collective of {them} is outstanding; {case.wait_words(victims)} for {them}"
        f"{words.at(case.usual_place(victims))}.",
        victims=victims,
        step=first.step,
        evidence=(f"a native frame of {case.name(ranks)} shows the wait for the device",),
        details=("A kernel runs there, or calls that no record shows: those of a captured graph, a send or receive.",),
        status=status,
        awaited=tuple(ranks),
    )
