"""Some ranks destroy their process group while others still issue collectives."""

from __future__ import annotations

from hangwatch import words
from hangwatch.facts.calls.extra_calls import extra_calls
from hangwatch.facts.case import Case
from hangwatch.facts.processes.process_end import ended_before_others, ended_for, had_destroyed, has_gone_on, last_place
from hangwatch.facts.rank_end import Why
from hangwatch.facts.witness import Kind, Witness
from hangwatch.model import Certainty, LoopFacts, Phase, Status
from hangwatch.ranks.sides import fewer_of
from hangwatch.ranks.view import RankView
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Within
from hangwatch.stacks.frames import user_frame

_DESTROYED = (Phase.DESTROYED, Phase.DESTROYING, Phase.INIT)


def destroy_asymmetric(case: Case) -> Finding | None:
    """Some ranks have destroyed the group or are about to, and others wait in a collective of it."""
    left = [view for view in case if _has_left(view) and view.rank not in case.blocked]
    lost = [view.rank for view in case if view.raised and ended_for(view) is Why.PEER]
    staying = [rank for rank in case.blocked if rank not in {*lost, *(view.rank for view in left)}]
    remaining = sorted(staying + lost)
    if not left or not staying or len(left) + len(remaining) < len(case.ranks):
        return None
    if not all(_fed_alike(view, case.ranks[rank]) for view in left for rank in staying[: words.SHOWN]):
        return None  # the difference began with the data
    if extra_calls(case) is not None or _some_train_on(case, left, staying):
        return None  # it began before: those that have ended made all that they had to make
    ranks = [view.rank for view in left]
    first = case.ranks[staying[0]]
    few = left if len(left) <= len(remaining) else case.views(remaining)
    witnesses = tuple(
        Witness(Kind.FACT, f"rank {view.rank} is past destroy_process_group{words.at(view.where)}")
        if view.phase in _DESTROYED
        else Witness(Kind.HABIT, f"the main program of rank {view.rank} is over{words.at(view.where)}")
        for view in left[: words.SHOWN]
    )
    group, own = "the process group", words.verb(len(left), "its program", "their programs")
    ended = group if all(view.phase in _DESTROYED or had_destroyed(view) for view in left) else own
    failed = f"; {case.name(lost)} lost {words.verb(len(left), 'it', 'them')}, and failed" if lost else ""
    return Finding(
        "exit-destroy-asymmetric",
        case.weigh(witnesses),
        f"{case.say(ranks, 'has', 'have', capital=True)} ended {ended}, while {case.wait_words(staying)} in"
        f" {first.now.called}{' of it' if ended is group else ''}{words.at(first.where)}{failed}.",
        culprits=tuple(view.culprit() for view in few),
        victims=tuple(remaining),
        step=first.step,
        evidence=tuple(_stays_in(case, rank) for rank in staying[: words.SHOWN]),
        witnesses=witnesses,
        awaited=tuple(ranks),
    )


def _some_train_on(case: Case, left: list[RankView], staying: list[int]) -> bool:
    """Of those that wait, some are as far as the ranks that left, and others in a further step, at another place."""
    steps = {rank: case.ranks[rank].step.step for rank in staying}
    ended = {view.step.step for view in left}
    level = {case.ranks[rank].where for rank, step in steps.items() if step in ended}
    further = {case.ranks[rank].where for rank, step in steps.items() if step is not None and step not in ended}
    return bool(level and further) and level.isdisjoint(further)


def _has_left(view: RankView) -> bool:
    """It is past its last collective, or will be; one that an error takes out of its program has not chosen to be."""
    return (view.over or view.phase is Phase.DESTROYING or has_gone_on(view)) and not view.raised


def _stays_in(case: Case, rank: int) -> str:
    """A host that waits for its device stands at another line than that of the call, which may be any of its last."""
    wait, now = case.blocked[rank], case.ranks[rank].now
    if not wait.activity.in_collective:
        return f"rank {rank} waits for its GPU{words.at(wait.where)}"
    op = "backward" if Within.BACKWARD in now.within else now.call or wait.op
    return f"rank {rank} is in {op}{words.at(wait.where)}"


def _fed_alike(view: RankView, stayer: RankView) -> bool:
    """Ranks that left drew all of their data, as much in each epoch as the others; or made as many steps.

    Without a loader and with fewer steps a rank may have left early, if a loop of the others has a way out.

    A rank that ended its program epochs before the others, without destroying the group, left the loop too early.
    """
    left, staying = view.loader, stayer.loader
    if left is None or staying is None:
        steps, loop = (view.step.step, stayer.step.step), stayer.now.loop
        return None in steps or steps[0] == steps[1] or loop is None or not _can_be_left(loop)
    finished = all(one == other for one, other in zip(left.drawn_per_epoch, staying.drawn_per_epoch, strict=False))
    if left.left or not finished:
        return False
    if staying.epoch > left.epoch:
        return view.phase in (Phase.DESTROYING, Phase.DESTROYED)
    return staying.drawn == left.drawn and staying.exhausted == left.exhausted


def _can_be_left(loop: LoopFacts) -> bool:
    return bool(loop.leaves or loop.exits or loop.skips or any(loop.outer_leaves))


def destroyed_before(case: Case) -> Finding | None:
    """Ranks failed because others had destroyed their groups and ended."""
    found = ended_before_others(case)
    if found is None or not all(had_destroyed(case.ranks[rank]) for rank in found[0]):
        return None
    return _destroyed(case, *found)


def began_anew_before(case: Case) -> Finding | None:
    """Ranks failed, or wait, because others had destroyed their groups, and are in their next init_process_group."""
    on = [view.rank for view in case if has_gone_on(view) and not view.raised]
    lost = [view.rank for view in case if view.failed and ended_for(view) is Why.PEER]
    if on and not lost:
        return destroy_asymmetric(case)
    if not on or case.blocked or len(on) + len(lost) < len(case.ranks):
        return None
    return _destroyed(case, on, lost, ", and went on to the next init_process_group,")


def _destroyed(case: Case, left: list[int], failed: list[int], then: str = "") -> Finding:
    """The fewer are to blame; of two halves, none is: one side left too early, or the other called too much."""
    fewer = fewer_of(left, failed)
    errors = [(rank, error) for rank in failed if (error := case.ranks[rank].exception) is not None]
    where = words.at(user_frame(errors[0][1].frames)) if errors else ""
    return Finding(
        "exit-destroy-asymmetric",
        Certainty.LIKELY,
        f"{case.name(left, capital=True)} destroyed {'its' if len(left) == 1 else 'their'} process group{then} while"
        f" {case.name(failed)} still used it{where}: {'it' if len(failed) == 1 else 'they'} failed.",
        culprits=case.culprits_at(fewer, last_place),
        victims=tuple(failed) if fewer != failed else (),
        step=case.furthest_step(failed),
        evidence=(
            *(f"rank {rank} had destroyed its process groups" for rank in left[: words.SHOWN]),
            *(f"rank {rank} failed with {e.type}{words.at(user_frame(e.frames))}" for rank, e in errors[: words.SHOWN]),
        ),
        status=Status.FAILED,
    )
