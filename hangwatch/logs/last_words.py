"""The last line of a rank's own in a log: what it said before the job stood, and that it ended well."""

from __future__ import annotations

import re
from dataclasses import replace

from hangwatch import words
from hangwatch.catalogue import cause
from hangwatch.model import Certainty, Judgement, Verdict

from ..queues.model import Queues
from .model import Logs

_PREFIX = re.compile(r"^(?:\[rank(\d+)\]: ?|[Rr]ank ?(\d+): )(.*)$")  # torch's own, and what programs write
# What torch and NCCL write at the end of a rank: those readers keep what is of use.
NOT_ITS_OWN = re.compile(
    r"^\[[EWIF]\d{4}|ProcessGroup|NCCL|^frame #|^\s*#\d+ |^Exception raised from|^terminate called"
    r"|^Python v\d|^Process \d+: /|^Timeout \(\d"  # the heads of written stacks
)
_ENDED_WELL = re.compile(r"\bexit(?:ed|ing|s)?\b.*\b(?:code|status)\b\D{0,3}0\b", re.IGNORECASE)
_BEGINS = ("[rank", "rank", "Rank")
_SHOWN = 3
_LONGEST = 160


def rank_of(line: str, of_file: int | None) -> int | None:
    """The rank that a line begins with, else that of its file."""
    prefix = _PREFIX.match(line) if line.startswith(_BEGINS) else None
    return int(prefix[1] or prefix[2]) if prefix else of_file


class LastWords:
    """Takes the lines of one log; those without a rank's prefix are of the rank of the file, if its name tells one."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._said: dict[int, str] = {}

    def take(self, line: str, *, of_use: bool) -> None:
        prefix = _PREFIX.match(line) if line.startswith(_BEGINS) else None
        rank, said = (int(prefix[1] or prefix[2]), prefix[3]) if prefix else (self._rank, line)
        if rank is not None and not of_use and said.strip() and not NOT_ITS_OWN.search(said):
            self._said[rank] = said.strip()

    def end(self, logs: Logs) -> None:
        logs.last_words.update(self._said)


def told(judged: Judgement, queues: Queues, logs: Logs) -> Judgement:
    """The verdict with the last output of the ranks that are awaited; one that ended well left the loop early."""
    verdict = judged.verdict
    ranks = [each.rank for each in verdict.culprits if each.rank is not None]
    if verdict.cause != "undetermined" or not ranks:
        return judged
    said = {rank: logs.last_words[rank] for rank in ranks if rank in logs.last_words}
    evidence = tuple(
        f"the last output of {words.ranks([rank])}: {words.command(said[rank], _LONGEST)}" for rank in [*said][:_SHOWN]
    )
    verdict = replace(verdict, evidence=(*verdict.evidence, *evidence))
    ended = all(rank in said and rank not in queues.ranks and _ENDED_WELL.search(said[rank]) for rank in ranks)
    return replace(judged, verdict=_ended(verdict, ranks) if ended else verdict)


def _ended(verdict: Verdict, ranks: list[int]) -> Verdict:
    who = words.ranks(ranks, capital=True)
    return replace(
        verdict,
        cause="early-exit",
        certainty=Certainty.LIKELY,
        summary=f"{verdict.summary} {who} {words.verb(len(ranks), 'says', 'say')} in the last output that"
        f" {words.verb(len(ranks), 'it exits', 'they exit')} with code 0.",
        fix=cause("early-exit").fix,
        alternatives=tuple(each for each in verdict.alternatives if each.cause != "rank-died"),
    )
