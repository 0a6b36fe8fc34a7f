"""The verdict where torch's desync report is all there is: which ranks are behind, or stand in different calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status

from ..queues.model import Queues
from . import desync
from .model import Desync, Logs, Reached
from .unknown import unknown

_ARGUMENT = ("torch's watchdog gave up a call, and wrote how far the device of each rank had come",)
_DUMPS = (
    "give the flight recorder's dumps too (TORCH_FR_BUFFER_SIZE): they hold the calls of each rank, with their lines"
)
_EITHER = (
    "Either their calls of that number are not the same one, as after a call that some ranks left out, or the device or"
    " the network of {who} does not finish it. The report does not tell which."
)


@dataclass(frozen=True)
class _Said:
    """What the reports of one group tell, in words, and by its numbers."""

    summary: str
    fix: str
    blamed: tuple[int, ...] = ()
    details: tuple[str, ...] = ()
    cause: str = "undetermined"


def judged(logs: Logs) -> Judgement | None:
    """What the reports tell; of several groups, those of the job's numbers, else of the group that is named first."""
    own = desync.of_job(logs)
    reports = own or [each for each in logs.desyncs if each.group == logs.desyncs[0].group]
    if not reports:
        return None
    report = _joined(reports)
    said = _said(report)
    if said is None:
        return None
    everyone = sorted({*report.reached, *report.never})
    if not own:
        return _of_a_group(said, report.group, reports)
    return _judgement(said, tuple(rank for rank in everyone if rank not in said.blamed))


def told(judged_before: Judgement, queues: Queues, logs: Logs) -> Judgement:
    """The report's verdict, where the other one waits for ranks without a record, which the report shows in a call."""
    verdict = judged_before.verdict
    blamed = {each.rank for each in verdict.culprits if each.rank is not None}
    awaited = blamed | {rank for each in verdict.waits for rank in each.awaited}
    within = {rank for each in desync.of_job(logs) for rank, known in each.reached.items() if not known.finished}
    silent = (awaited & within) - queues.ranks
    own = judged(logs) if verdict.cause == "undetermined" and silent else None
    if own is None:
        return judged_before
    freed = blamed - {each.rank for each in own.verdict.culprits}
    victims = tuple(sorted({*verdict.victims, *own.verdict.victims, *freed}))
    return replace(own, verdict=replace(own.verdict, victims=victims, evidence=verdict.evidence))


def _judgement(said: _Said, victims: tuple[int, ...]) -> Judgement:
    found = unknown(
        Status.HUNG,
        Stage.STEP,
        said.summary,
        said.fix,
        culprits=tuple(map(Culprit, said.blamed)),
        victims=victims,
        details=said.details,
        hang=Certainty.LIKELY,
        argument=_ARGUMENT,
    )
    if said.cause == found.verdict.cause:
        return found
    verdict = replace(found.verdict, cause=said.cause, certainty=Certainty.LIKELY)
    return replace(found, verdict=verdict)


def _of_a_group(said: _Said, group: str, reports: Iterable[Desync]) -> Judgement:
    """Its numbers are its own: no rank of the job is named but those that wrote a report, which waited."""
    whose = f"group {group}" if group else "a group that no line names"
    summary = f"{said.summary} These are the ranks of {whose}, by its own numbers."
    waited = tuple(sorted({each.rank for each in reports if each.rank is not None}))
    fix = f"{_DUMPS}; they name the job's ranks of each group"
    return _judgement(replace(said, summary=summary, fix=fix, blamed=()), waited)


def _joined(reports: Iterable[Desync]) -> Desync:
    """One report of all: the last state of each rank, as ranks that came later have written it."""
    found = Desync(next(iter(reports)).group)
    for each in reports:
        for rank, reached in each.reached.items():
            known = found.reached.get(rank)
            found.reached[rank] = reached if known is None else desync.further(known, reached)
        found.never |= each.never
    found.never -= found.reached.keys()
    found.whole = any(each.whole for each in reports)
    return found


def _said(report: Desync) -> _Said | None:
    if not report.reached and not report.never:
        return None
    if desync.messages(report):
        return _messages(report)
    if (unlike := _unlike(report)) is not None:
        return unlike
    if late := desync.behind(report):
        return _late(report, late)
    return _apart(report) or _all_within(report)


def _messages(report: Desync) -> _Said:
    waiting = sorted(rank for rank, each in report.reached.items() if not each.finished)
    summary = (
        f"By torch's desync report {_within(report, waiting)}; sends and receives are among these calls, whose numbers"
        " count those of each rank alone."
    )
    return _Said(summary, _DUMPS)


def _unlike(report: Desync) -> _Said | None:
    """Ranks that stand in a call of the same number, and not in the same call."""
    for number in sorted({each.number for each in report.reached.values()}):
        ops: dict[str, list[int]] = {}
        for rank, each in sorted(report.reached.items()):
            if each.number == number and each.op:
                ops.setdefault(each.op, []).append(rank)
        if len(ops) > 1:
            return _of_ops(number, ops, len(report.reached))
    return None


def _of_ops(number: int, ops: Mapping[str, list[int]], size: int) -> _Said:
    sides = words.listed(f"{op} on {words.ranks(ranks)}" for op, ranks in ops.items())
    most = max(ops.values(), key=len)
    few = sorted(rank for ranks in ops.values() if ranks is not most for rank in ranks)
    entry = cause("collective-mismatch")
    return _Said(
        f"By torch's desync report collective {number} is not the same call on all ranks: {sides}.",
        entry.fix,
        tuple(few) if 2 * len(most) > size else (),
        cause=entry.id,
    )


def _late(report: Desync, late: Mapping[int, str]) -> _Said:
    """Some ranks have not come to a call in which others wait."""
    who = words.ranks(sorted(late))
    came = late[min(late)]
    waiting = sorted(rank for rank, each in report.reached.items() if not each.finished)
    some = f"; {_within(report, waiting)}" if waiting else ""
    size = max((*report.reached, *report.never)) + 1  # at least
    return _Said(
        f"By torch's desync report {who} {came}{some}.",
        f"find out what {who} did after that: look at the stack or the last output of {who}",
        tuple(sorted(late)) if 2 * len(late) <= size else (),
    )


def _apart(report: Desync) -> _Said | None:
    """The earliest of the waiting ranks stand in a call that others have behind them: they wait for each other."""
    waits = {rank: each.number for rank, each in report.reached.items() if not each.finished}
    lowest = min(waits.values(), default=0)
    first = sorted(rank for rank, number in waits.items() if number == lowest)
    past = sorted(rank for rank, each in report.reached.items() if rank not in first)
    if not past:
        return None
    later = [rank for rank in past if rank in waits]
    beyond = f", and {_within(report, later)}" if later else ""
    idle = [rank for rank in past if rank not in waits]
    came = _came(report.reached, idle)
    each_other = "; they wait for each other" if later else ""
    return _Said(
        f"By torch's desync report {_within(report, first)}, which {words.ranks(past)}"
        f" {words.verb(len(past), 'has', 'have')} passed{beyond}{came}"
        f"{each_other}.",
        f"compare what {words.ranks(first)} and {words.ranks(past)} called up to collective {lowest}: {_DUMPS}",
        details=(_EITHER.format(who=words.ranks(first)),),
    )


def _came(reached: Mapping[int, Reached], idle: list[int]) -> str:
    """The ranks that wait in no call."""
    alike: dict[int, list[int]] = {}
    for rank in idle:
        alike.setdefault(reached[rank].number, []).append(rank)
    told = [f"{words.ranks(ranks)} did not start {number + 1}" for number, ranks in sorted(alike.items())]
    return f"; {words.listed(told)}" if told else ""


def _all_within(report: Desync) -> _Said | None:
    """All that are told of wait in one call."""
    waiting = sorted(rank for rank, each in report.reached.items() if not each.finished)
    if not waiting:
        return None
    everyone = "" if report.whole else "; the lines do not tell of other ranks"
    return _Said(
        f"By torch's desync report {_within(report, waiting)}{everyone}.",
        "look at the network and the GPUs (NCCL_DEBUG=INFO, dmesg), and compare the sizes of that call on all ranks; "
        + _DUMPS
        if report.whole
        else _DUMPS,
        details=("No rank of the report is behind another one.",) if report.whole else (),
    )


def _within(report: Desync, waiting: list[int]) -> str:
    """ranks 0-2 wait in collective 512 (allreduce)"""
    alike: dict[tuple[int, str], list[int]] = {}
    ops = {each.number: each.op for each in report.reached.values() if each.op}
    for rank in waiting:
        number = report.reached[rank].number
        op = report.reached[rank].op or ops.get(number, "")
        alike.setdefault((number, f" ({op})" if op else ""), []).append(rank)
    return words.listed(
        f"{words.ranks(ranks)} {words.verb(len(ranks), 'waits', 'wait')} in collective {number}{op}"
        for (number, op), ranks in sorted(alike.items())
    )
