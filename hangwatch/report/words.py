"""The words that every renderer shares, so that the terminal, the HTML file and the page say the same."""

from __future__ import annotations

import unicodedata

from hangwatch.model import (
    Certainty,
    ChainEnd,
    Culprit,
    ForeignMemory,
    Frame,
    Incident,
    Stage,
    Status,
    Straggler,
    Trend,
    Verdict,
    Wait,
    ranks_of,
)
from hangwatch.words import at, duration, ended, place, ranges, ranks, runs, size, verb

__all__ = [
    "ARGUMENT",
    "NO_VERDICT",
    "cause",
    "chain",
    "clean",
    "clipped",
    "culprit",
    "culprits",
    "duration",
    "edges",
    "end",
    "ended",
    "hang",
    "headline",
    "health",
    "milliseconds",
    "missing_evidence",
    "place",
    "ranges",
    "ranks",
    "runs",
    "size",
    "sure",
    "wait",
]

NO_VERDICT = "no cause can be named from this evidence"


def milliseconds(seconds: float) -> str:
    """81 ms, 0.4 ms"""
    return f"{seconds * 1000:,.0f} ms" if seconds >= 0.01 or not seconds else f"{seconds * 1000:.1f} ms"


def health(incident: Incident) -> list[str]:
    """Who was waited for before the job stopped, and whose memory is on whose GPU, in sentences."""
    known = incident.health
    return [] if known is None else [*map(_straggler, known.stragglers[:8]), *map(_foreign, known.memory[:8])]


def _straggler(each: Straggler) -> str:
    who = f"{each.host} ({ranks(each.ranks)})" if each.host else ranks(each.ranks)
    where = "waiting for its loader" if each.phase == "data" else "before the end of its forward"
    trend = "" if each.trend is Trend.STEADY else f"; the lag is {each.trend}"
    return (
        f"{who[0].upper()}{who[1:]} added {milliseconds(each.lag_s)} to each step, most of it {where};"
        f" a typical rank needed {milliseconds(each.typical_s)} until there{trend}"
    )


def _foreign(each: ForeignMemory) -> str:
    at = f": {each.line}" if each.line else ""
    held = size(each.bytes_held)
    return f"Rank {each.rank} holds {held} on GPU {each.gpu} of {each.host}, which is rank {each.owner}'s{at}"


def clean(text: str) -> str:
    """`text` on one line with everything unprintable made visible.

    A rank can put any string into a report; escape sequences must not reach a terminal.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character in "\n\t\r":
        return " "
    # Control, format (bidirectional, zero width), surrogate, private, unassigned; separators of lines.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return character.encode("unicode_escape", "surrogatepass").decode("ascii")
    return character


def clipped(text: str, most: int) -> str:
    """`text` cleaned, of at most `most` characters."""
    text = clean(text[: most + 1])
    return text if len(text) <= most else text[: most - 4].rstrip() + " ..."


def culprit(who: Culprit) -> str:
    """rank 3, pid 4711 on node-b"""
    kind = {"rank": "", "other": "process" if who.rank is None else "child process"}.get(
        who.process, who.process.replace("-", " ")
    )
    name = "" if who.rank is None else f"rank {who.rank}"
    if kind:
        name = f"{kind} of {name}" if name else kind
    pid = "" if who.pid is None else f", pid {who.pid}"
    return f"{name or 'a process'}{pid}{f' on {who.host}' if who.host else ''}"


def culprits(blamed: tuple[Culprit, ...], most: int = 3) -> str:
    """All culprits: each by name where they are few, by ranges of ranks where they are many."""
    if len(blamed) <= most:
        return "; ".join(culprit(who) for who in blamed)
    known = ranks_of(blamed)
    name = ranks(known) if known else f"{len(blamed)} processes"
    hosts = sorted({who.host for who in blamed if who.host})
    if not hosts:
        return name
    return f"{name} on {', '.join(hosts) if len(hosts) <= most else f'{len(hosts)} hosts'}"


def wait(edge: Wait) -> str:
    """rank 3, in all_reduce 12 of group 0 (train.py:71)"""
    whom = f"{ranks(edge.awaited)}, " if edge.awaited else ""
    at = f" ({place(edge.where)})" if edge.where else ""
    return f"{whom}in {edge.what}{at}" if whom else f"{edge.what}{at}"


def chain(verdict: Verdict) -> list[str]:
    """The chain of waits as sentences, from the victims to its end: the page says the same of its drawing.

    `ranks 0, 2-3 wait for rank 1 in all_reduce 12 of group 0 (train.py:71)`, `rank 1 sleeps in push (train.py:83)`
    """
    return [*map(_edge, edges(verdict)), *map(end, verdict.ends)]


def edges(verdict: Verdict) -> list[Wait]:
    """The waits of a verdict, those of ranks that wait alike as one; culprits stand apart from their victims."""
    blamed = {culprit.rank for culprit in verdict.culprits}
    alike: dict[tuple[tuple[int, ...], str, Frame | None, bool], list[int]] = {}
    for edge in verdict.waits:
        for rank in edge.waiting:
            alike.setdefault((edge.awaited, edge.what, edge.where, rank in blamed), []).append(rank)
    return [
        Wait(found[0], awaited, what, where, tuple(found[1:])) for (awaited, what, where, _), found in alike.items()
    ]


def _edge(edge: Wait) -> str:
    waits = f"{ranks(edge.waiting)} {verb(len(edge.waiting), 'waits', 'wait')}"
    return f"{waits}{f' for {ranks(edge.awaited)}' if edge.awaited else ''} in {edge.what}{at(edge.where)}"


def end(each: ChainEnd) -> str:
    """`rank 1 sleeps in push (train.py:83)`; of several alike `ranks 1-2: each sleeps ...`"""
    return f"{ranks(each.ranks)} {each.does}" if not each.also else f"{ranks(each.ranks)}: each {each.does}"


def headline(incident: Incident) -> str:
    """HUNG, proven, 3.1 s after the last step; cause likely"""
    if incident.status is Status.RECOVERED:
        stood = (incident.closed_at or incident.updated_at) - incident.opened_at + incident.detected_after_s
        return f"RECOVERED after {duration(stood)} without progress"
    known = incident.detected_after_s > 0  # records that are left of a job may not tell
    after = f"{duration(incident.detected_after_s)} {_since(incident)}" if known else ""
    state = ", ".join(filter(None, (incident.status.upper(), hang(incident.verdict), after)))
    return f"{state}; {cause(incident.verdict)}"


def hang(verdict: Verdict) -> str:
    """How sure it is that the job is dead: proven, likely; "" where the job is not called hung."""
    return "" if verdict.hang is None else str(verdict.hang)


def cause(verdict: Verdict) -> str:
    """cause proven, cause likely, cause uncertain where the evidence points to one and fits others, cause not known"""
    return f"cause {sure(verdict.cause, verdict.certainty)}"


def sure(cause: str, certainty: str) -> str:
    """proven, likely, uncertain, not known"""
    if certainty != Certainty.UNDETERMINED:
        return str(certainty)
    return "not known" if cause == "undetermined" else "uncertain"


ARGUMENT = {
    Certainty.PROVEN: ("proof", "Proof that the job is dead"),
    Certainty.LIKELY: ("hung", "Why the job is called hung"),
}
"""By the certainty of the hang: the label and the title of `verdict.argument`."""


def _since(incident: Incident) -> str:
    over = incident.stage is Stage.EXIT and incident.status is Status.WAITING  # hung or failed, ranks still train
    if incident.status is Status.LINGERING or over:
        return "after the end of training"
    if any(rank.progress is not None and rank.progress.step >= 0 for rank in incident.ranks):
        return "after the last step"
    return "after the start" if incident.stage is Stage.START else "after the last progress"


def missing_evidence(incident: Incident) -> str:
    """Which evidence could not be had and why: "stacks of rank 1 (not allowed), gpu (no driver)"."""
    uses_gpus = any(rank.gpu is not None for rank in incident.ranks)  # where none does, none is missed
    lost: dict[tuple[str, str], list[int]] = {}
    for note in incident.capture:
        if not note.ok and (note.source != "gpu" or uses_gpus):
            lost.setdefault((note.source, note.detail), []).extend([] if note.rank is None else [note.rank])
    return ", ".join(
        source + (f" of {ranks(whose)}" if whose else "") + (f" ({detail})" if detail else "")
        for (source, detail), whose in lost.items()
    )
