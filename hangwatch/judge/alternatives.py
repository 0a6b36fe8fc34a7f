"""The causes that a person would suspect as well, and what speaks against each."""

from __future__ import annotations

from collections.abc import Callable

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.facts.case import Case
from hangwatch.facts.differences.other_loaders import uneven_elsewhere
from hangwatch.facts.processes.locks import lock_waits
from hangwatch.facts.processes.own_code import saving_thread
from hangwatch.model import Alternative, Certainty, LoaderFacts
from hangwatch.proof.conditions import board_is_fresh
from hangwatch.ranks.ledger import family
from hangwatch.ranks.shared_steps import GroupKey
from hangwatch.ranks.sides import spread
from hangwatch.rules.finding import Finding
from hangwatch.stacks.activity import Doing

Reason = Callable[[Case], str]  # why this cause is not it; "" where nothing speaks against it


def alternatives(case: Case, finding: Finding) -> tuple[Alternative, ...]:
    """The look-alikes of a finding's cause that the evidence speaks against."""
    found = dict(finding.not_causes)
    for other in cause(finding.cause).look_alikes:
        if other not in found and (reason := REASONS.get(other, _silent)(case)):
            found[other] = reason
    return tuple(Alternative(other, Certainty.UNDETERMINED, reason) for other, reason in found.items())


def _silent(case: Case) -> str:
    return ""


def _uneven(case: Case) -> str:
    loaders = [view.loader for view in case if view.loader is not None]
    if len(loaders) < len(case.ranks) or len({loader.drawn_per_epoch for loader in loaders}) > 1:
        return ""
    if len({loader.epoch for loader in loaders if loader.exhausted}) > 1:
        return ""
    if uneven_elsewhere(case) is not None:
        return ""
    return "every rank drew the same number of training batches in every epoch that has ended"


def _left_early(case: Case) -> str:
    loaders = [loader for view in case for loader in view.loaders]
    if not any(loader.training for loader in loaders) or any(map(_may_be_left, loaders)):
        return ""
    return "no rank has left a loop over its data before the data was exhausted"


def _may_be_left(loader: LoaderFacts) -> bool:
    """Its loop was left, or may have been: a trainer that counts the batches of a validation keeps the iterator."""
    kept = not loader.training and not loader.exhausted and 0 < loader.drawn < (loader.length or 0)
    return loader.left or kept


def _skipped(case: Case) -> str:
    recorded = [view for view in case if view.reading is not None and len(view.reading.steps) > 1]
    if case.divergences or len(recorded) < len(case.ranks) or _apart(case, [view.rank for view in recorded]):
        return ""
    return "in every step that all ranks have completed, they issued the same number of collectives"


def _apart(case: Case, ranks: list[int]) -> bool:
    """Some step has another number of calls on one rank than on the first one, even if that evened out later."""

    def groups(rank: int) -> set[GroupKey]:
        return {group.key for group in case.ledger.groups_of(rank)}

    asked = spread(ranks[1:])
    alike = [rank for rank in asked if groups(rank) == groups(ranks[0])]
    return any(case.ledger.first_apart(rank, ranks[0]) is not None for rank in alike)


def _lone(case: Case) -> str:
    if len(case.blocked) < 2:
        return ""
    places = {words.place(entry.where) for entry in case.blocked.values()}
    if len(places) == 1:
        return f"all waiting ranks stand at the same place ({places.pop()})"
    if any(case.ranks[rank].guarded for rank in case.blocked):
        return ""
    return "no check of the rank, as far as the source shows it, leads to a collective in which a rank waits"


def _raised(case: Case) -> str:
    if any(view.reading is not None and view.reading.exception is not None for view in case):
        return ""
    return "no rank has recorded an exception"


def _died(case: Case) -> str:
    if any(view.failed or view.dead or view.evidence.process is None for view in case) or case.absent:
        return ""  # one that fails ends before long
    return f"all {words.plural(len(case.ranks), 'process')} of the job live"


def _frozen(case: Case) -> str:
    if any(view.stopped or view.state in ("D", "") for view in case):
        return ""
    return "no process is stopped or sleeps uninterruptibly"


def _mismatched(case: Case) -> str:
    """What ranks issued under each number in which one waits is compared, whichever thread issued it."""
    made: dict[tuple[int, int], dict[int, str]] = {}
    for entry in case.blocked.values():
        if entry.group is None or not entry.seq or not entry.op:
            continue
        number = id(entry.group), entry.seq
        if number not in made:
            issued = case.ledger.under(entry.group.name, entry.seq, entry.group.heads)
            made[number] = {rank: call.op for rank, call in issued.items()}
        made[number].setdefault(entry.rank, entry.op)
    paired = [{family(op) or op for op in calls.values()} for calls in made.values() if len(calls) > 1]
    alike = bool(paired) and all(len(kinds) == 1 for kinds in paired)
    return "the paired calls of all ranks are the same operation" if alike else ""


def _blocked_in_code(case: Case) -> str:
    awaited = case.views(case.awaited())
    if not awaited or any(not (view.dead or view.stopped) for view in awaited):
        return ""
    return "no rank that is awaited stands in code of its own"


def _circle(case: Case) -> str:
    groups = {id(entry.group) for entry in case.blocked.values() if entry.group is not None}
    return "all waits are in one process group" if len(groups) == 1 else ""


def _compiling(case: Case) -> str:
    return "" if any(view.now.doing is Doing.COMPILE for view in case) else "no rank compiles"


def _saving(case: Case) -> str:
    found = any(saving_thread(view) is not None for view in case)
    return "" if found else "no rank reads or writes a checkpoint"


def _lock_held(case: Case) -> str:
    if not all(board_is_fresh(view) for view in case):
        return ""
    return "Python threads of all ranks run: no C call holds the interpreter lock"


def _locked(case: Case) -> str:
    if any(view.evidence.process is None for view in case) or lock_waits(case):
        return ""
    return "no process is seen to wait for a file lock that another one holds"


def _forked(case: Case) -> str:
    if any(view.evidence.process is None for view in case) or any(view.evidence.children for view in case):
        return ""
    return "no rank has a child process besides loader workers"


REASONS: dict[str, Reason] = {
    "uneven-steps": _uneven,
    "early-exit": _left_early,
    "skipped-collective": _skipped,
    "rank-zero-only-collective": _lone,
    "exception-on-one-rank": _raised,
    "rank-died": _died,
    "rank-frozen": _frozen,
    "collective-mismatch": _mismatched,
    "user-code-blocked": _blocked_in_code,
    "group-order-cycle": _circle,
    "compile-skew": _compiling,
    "slow-checkpoint": _saving,
    "gil-held": _lock_held,
    "lock-held-by-process": _locked,
    "fork-deadlock": _forked,
}
