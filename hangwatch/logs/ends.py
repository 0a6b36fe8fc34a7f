"""Ends of processes, as torchrun's table and the ranks' own tracebacks tell of them: which of them is no consequence.

A process that torch's watchdog or another rank's end has brought down is a victim, however early it ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.catalogue.deaths import advice
from hangwatch.model import Certainty, Culprit, Judgement, Stage, Status, Verdict

from . import kernel, slurm
from .model import Failure, Logs, Raised, Reaped
from .mpirun import CALLED_ABORT
from .tracebacks import brought_down, crashed
from .unknown import unknown

_GPU_MEMORY = "OutOfMemoryError: CUDA"
_OF_A_GPU = re.compile(r"Xid \d|CUDA error: (?:uncorrectable|hardware|.*ECC error)|fallen off the bus", re.IGNORECASE)
_OF_A_WORKER = re.compile(r"DataLoader worker .*(?:exited unexpectedly|killed by signal)")
_OF_SHARED_MEMORY = re.compile(r"DataLoader worker .*out of shared memory")
_GAVE_UP = re.compile(r"timed? ?out", re.IGNORECASE)
_BY_TEXT = {  # what helps where the exception's own words tell it
    "No space left on device": "free space on that disk, or write elsewhere: checkpoints, caches, logs",
    "invalid device ordinal": (
        "start no more processes on a node than it has GPUs (nproc_per_node), and let each process see all of them"
        " (CUDA_VISIBLE_DEVICES)"
    ),
    "device-side assert triggered": (
        "run with CUDA_LAUNCH_BLOCKING=1 to find the call, and look for the assertion's own line in the log: mostly an"
        " index, such as a label or a token, is out of range"
    ),
    "Too many open files": "raise the limit of open files (ulimit -n), or use fewer loader workers",
}
_ABORT, _TERMINATE = -6, -15
_CRASHES = (-4, -7, -8, -11)  # SIGILL, SIGBUS, SIGFPE and SIGSEGV
_EXCEPTION = 1  # with which Python ends where no one catches one


def failures(logs: Logs) -> dict[int, Failure]:
    """What torchrun saw, with what the ranks' tracebacks add; and ranks that only an exception is known of."""
    found = dict(logs.failures)
    for own in kernel.failures(logs):
        found[own.rank] = replace(found.get(own.rank, own), pid=own.pid, text=own.text, exit_code=own.exit_code)
    for task in (*slurm.failures(logs), *_noticed(logs)):
        found.setdefault(task.rank, task)
    gone = any(raised.last and brought_down(raised.text) for raised in logs.raised.values())  # they tell of one
    for rank, raised in logs.raised.items():
        known = found.get(rank)
        if known is None and (raised.ended or (raised.last and gone)):
            found[rank] = Failure(rank, text=raised.text, where=raised.where)
        elif known is not None and _completes(known, raised):
            found[rank] = replace(known, text=raised.text, where=raised.where)
    return _with_nameless(found, logs)


def _noticed(logs: Logs) -> Iterable[Failure]:
    """What other launchers saw. Of mpirun's processes, each of which is a launcher, the numbers are no ranks."""
    yield from (each for each in logs.noticed.values() if not logs.launched or each.rank in logs.noticed_by)


def _with_nameless(found: dict[int, Failure], logs: Logs) -> dict[int, Failure]:
    """The only traceback without a rank is of the only process whose launcher tells of an exception and not which.

    So is the only stack of a crash that of the only process which died by such a signal.
    """
    crashes = [each for each in logs.nameless if crashed(each.text)]
    if crashes:
        raised = crashes[0] if len(crashes) == 1 else None
        bare = [each for each in found.values() if each.exit_code in _CRASHES]
    else:
        raised = _only_nameless(logs)
        bare = [each for each in found.values() if each.exit_code == _EXCEPTION and not each.text]
        bare = bare or [each for each in found.values() if each.text == CALLED_ABORT]
    if len(bare) == 1 and raised is not None:
        found[bare[0].rank] = replace(bare[0], text=raised.text, where=raised.where)
    return found


def _only_nameless(logs: Logs) -> Raised | None:
    """The one traceback of which no line tells the rank; None where there are several, or none."""
    return next(iter(logs.nameless)) if len(logs.nameless) == 1 and not logs.raised else None


def _completes(known: Failure, raised: Raised) -> bool:
    """The exception is why the process ended: by itself, or by the abort that follows where no one catches it."""
    if known.exit_code == _ABORT or crashed(raised.text):
        return raised.ended
    return not _killed(known) and (not known.text or known.text.startswith(("srun", "Slurm", CALLED_ABORT)))


def first_ends(logs: Logs) -> list[Failure]:
    """The failures that are no consequence of others; only the first of them where torchrun tells which it is."""
    victims = {timeout.rank for timeout in logs.timeouts}
    own = [each for each in failures(logs).values() if _by_itself(each, victims)]
    first = [each for each in own if each.first]
    if any(_as_likely(one, each) for one in first for each in own if not each.first):
        first = []
    return first or sorted(own, key=lambda each: each.rank)


def _by_itself(failure: Failure, victims: set[int]) -> bool:
    """A GPU that failed is no consequence of a wait, even where the rank's watchdog gave its call up."""
    return failure.text.startswith("Xid") or (failure.rank not in victims and not _brought_down(failure))


def _as_likely(first: Failure, other: Failure) -> bool:
    """torchrun saw both in one second, so that either may have been first; or both failed of the same."""
    same = bool(first.text) and (first.text, first.where) == (other.text, other.where)
    return same or (first.at == other.at != "")


def _brought_down(failure: Failure) -> bool:
    if failure.exit_code == _ABORT and kernel.OF_CUDA.match(failure.text):
        return False
    return failure.exit_code in (_ABORT, _TERMINATE) or brought_down(failure.text)


def _killed(failure: Failure) -> bool:
    return failure.exit_code is not None and failure.exit_code < 0


def failed(ends: list[Failure], logs: Logs) -> Judgement:
    """The verdict on the first of the ends; on all of them where nothing tells which was first."""
    name = _cause(ends)
    entry = cause(name)
    blamed = {each.rank for each in ends}
    victims = ({each.rank for each in logs.timeouts} | failures(logs).keys()) - blamed
    return Judgement(
        Status.FAILED,
        entry.stage or Stage.STEP,
        Verdict(
            cause=name,
            certainty=Certainty.LIKELY if len(ends) == 1 else Certainty.UNDETERMINED,
            summary=" ".join(_said(ends)),
            fix=_fix(name, ends[0]),
            culprits=tuple(Culprit(each.rank, each.pid, each.host, where=each.where) for each in ends),
            victims=tuple(sorted(victims)),
            evidence=(_order(ends, logs), *_raised_besides(ends, logs), *slurm.taken(blamed, logs), *outside(logs)),
        ),
    )


def _fix(name: str, end: Failure) -> str:
    if crashed(end.text):
        return cause(name).fix
    if _GPU_MEMORY in end.text:
        return "use less of the GPU's memory (a smaller batch, activation checkpointing), or see what else is on it"
    if name == "rank-died":
        return advice(end.exit_code, out_of_memory=slurm.is_of_memory(end.text)) or cause(name).fix
    if name == "exception-on-one-rank" and (
        fix := next((each for key, each in _BY_TEXT.items() if key in end.text), "")
    ):
        return fix
    if name == "exception-on-one-rank" and end.where is not None:
        return f"mend what raised it{words.at(end.where)}"
    return cause(name).fix


def _cause(ends: list[Failure]) -> str:
    if len(ends) == 1 and _OF_A_GPU.search(ends[0].text):
        return "gpu-fault"
    if all(_OF_A_WORKER.search(each.text) for each in ends):
        return "shared-memory-exhausted" if _OF_SHARED_MEMORY.search(ends[0].text) else "loader-worker-died"
    died = all((_killed(each) and not each.where) or crashed(each.text) for each in ends)
    return "rank-died" if died else "exception-on-one-rank"


def _said(ends: list[Failure]) -> Iterable[str]:
    """One sentence for all that ended alike."""
    alike: dict[str, list[int]] = {}
    for each in ends:
        alike.setdefault(_how(each), []).append(each.rank)
    for how, ranks in list(alike.items())[:3]:
        yield f"{words.ranks(ranks, capital=True)} {how.rstrip('.')}."


def _how(end: Failure) -> str:
    said = f": {end.text}" if end.text and not end.text.startswith("Signal ") else ""
    code = end.exit_code
    if end.text.startswith("Xid"):
        return f"lost its GPU{said}"
    if crashed(end.text):
        return f"crashed{words.at(end.where)}{said}"
    if end.text == CALLED_ABORT:
        return f"ended all others{said}"
    how = "raised an exception" if code is None else f"failed with exit code {code}"
    return f"{f'died by signal {-code}' if code is not None and code < 0 else how}{words.at(end.where)}{said}"


def _order(ends: list[Failure], logs: Logs) -> str:
    if len(ends) > 1:
        return "nothing tells which of them failed first"
    if said := next((said for said in logs.kernel.values() if said.text == ends[0].text), None):
        whose = f"its process {said.pid}" if said.pid is not None else f"its GPU ({said.gpu})"
        return f"the kernel log says so of {whose}"
    if not ends[0].first:
        return "it alone failed by itself"
    launcher = "mpirun" if ends[0].rank in logs.noticed else "torchrun"
    return f"{logs.noticed_by.get(ends[0].rank, launcher)} saw it fail first"


def _raised_besides(ends: list[Failure], logs: Logs) -> Iterable[str]:
    """The exceptions of ranks of whose end something else tells more."""
    for each in ends[: words.SHOWN]:
        raised = logs.raised.get(each.rank)
        if raised is not None and raised.text != each.text:
            yield f"rank {each.rank} raised {words.command(raised.text, 200)}{words.at(raised.where)}"
        elif raised is not None and raised.then:
            yield f"while that was handled, rank {each.rank} raised {words.command(raised.then, 200)}"


def reaped(logs: Logs) -> Reaped | None:
    """The one process that a launcher saw end by itself, where nothing tells its rank."""
    if failures(logs):
        return None
    own = [
        each for each in (*logs.reaped.values(), *slurm.unplaced(logs)) if each.exit_code not in (_ABORT, _TERMINATE)
    ]
    own = [each for each in own if not brought_down(each.text)]
    if len(own) != 1:
        return None
    raised = _only_nameless(logs) if own[0].exit_code == _EXCEPTION and not own[0].text else None
    return replace(own[0], text=raised.text, where=raised.where) if raised is not None else own[0]


def nameless_end(logs: Logs) -> Judgement | None:
    """The verdict where a launcher says that its processes failed, and one traceback without a rank tells why."""
    raised = _only_nameless(logs)
    if raised is None or not logs.group_failed or failures(logs) or brought_down(raised.text):
        return None
    end = Failure(-1, text=raised.text, where=raised.where)
    said = "the launcher says that its processes failed; no line tells which of them raised this"
    return _of_one(end, "A process of this job", Culprit(None, where=end.where), said, logs)


def local_end(end: Reaped, logs: Logs) -> Judgement:
    """The verdict on a process of which only the rank within its node is known."""
    as_rank = Failure(end.local_rank, exit_code=end.exit_code, text=end.text, where=end.where)
    rank = logs.rank_of_pid(end.pid) if end.pid is not None else None
    who = words.ranks([rank], capital=True) if rank is not None else end.name or f"Local rank {end.local_rank}"
    pid = f" (pid {end.pid})" if end.pid is not None else ""
    said = "its launcher saw it fail, and knows the rank within its node only"
    said = end.told or said
    return _of_one(as_rank, f"{who}{pid}", Culprit(rank, end.pid, where=end.where), said, logs)


def _of_one(end: Failure, who: str, culprit: Culprit, said: str, logs: Logs) -> Judgement:
    """The verdict on a process whose rank may not be known."""
    name = _cause([end])
    return Judgement(
        Status.FAILED,
        cause(name).stage or Stage.STEP,
        Verdict(
            cause=name,
            certainty=Certainty.LIKELY,
            summary=f"{who} {_how(end).rstrip('.')}.",
            fix=_fix(name, end),
            culprits=(culprit,),
            victims=tuple(sorted({each.rank for each in logs.timeouts} - {culprit.rank})),
            evidence=(said,),
        ),
    )


def outside(logs: Logs) -> tuple[str, ...]:
    """Who ended the job, and what the kernel says of processes that are no known rank."""
    return (*logs.ended_by, *slurm.said(logs), *kernel.unplaced(logs))


def ended(logs: Logs) -> Judgement:
    """The job was ended from outside, and nothing else is told."""
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"{words.listed(list(logs.ended_by))}: these logs blame no rank.",
        fix="if the job stood still before, give the flight recorder's dumps; else give it more time, or let it save"
        " a checkpoint when it is told to end",
        victims=tuple(sorted(failures(logs))),
        evidence=outside(logs),
    )


def _without_error(ended: list[int], logs: Logs) -> Judgement | None:
    """All ranks but few gave up a wait, and of those few there is output and no error."""
    silent = sorted(logs.last_words.keys() - {*ended})
    waited = all(_GAVE_UP.search(failures(logs)[rank].text) for rank in ended)
    if not silent or len(silent) >= len(ended) or not waited or {*ended, *silent} != {*range(len(ended) + len(silent))}:
        return None
    who, last = words.ranks(silent), logs.last_words[silent[0]]
    return unknown(
        Status.FAILED,
        Stage.STEP,
        f"{words.ranks(ended, capital=True)} gave up a wait for other ranks, and of {who} there is no error.",
        fix=f"find out what {who} did instead: look at the stacks or last output, or run again under hangwatch",
        culprits=tuple(map(Culprit, silent)),
        victims=tuple(ended),
        evidence=(f"the last output of rank {silent[0]}: {words.command(last, 160)}",),
    )


def only_victims(logs: Logs) -> Judgement:
    if logs.out_of_memory:
        return unknown(
            Status.FAILED,
            Stage.STEP,
            f"{words.listed(slurm.said(logs))}; no line tells of which rank.",
            fix=advice(None, out_of_memory=True),
            victims=tuple(sorted(failures(logs))),
            evidence=tuple(logs.ended_by),
        )
    if logs.ended_by:
        return ended(logs)
    ranks = sorted(failures(logs))
    if silent := _without_error(ranks, logs):
        return silent
    return unknown(
        Status.FAILED,
        Stage.STEP,
        summary=f"{words.ranks(ranks, capital=True)} ended as ranks do that another rank, the network or a launcher"
        " brings down, and no log tells which.",
        fix="give the logs of all ranks, and the flight recorder's dumps",
        victims=tuple(ranks),
    )
