"""Holds the evidence of a verdict, sentence by sentence, against the simulated job that it was taken of.

A verdict may be right and a sentence of its evidence false: a reader who checks that sentence trusts no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hangwatch import words
from hangwatch.model import Verdict

from . import said_of_calls, said_of_places
from .claim import CALL, CLAIMS, COUNTS, Job
from .lives import Life

MODULES = (said_of_places, said_of_calls)  # whose functions are the CLAIMS


@dataclass(frozen=True)
class Checked:
    """How many sentences were held against the job (those of a known form), and those that are false."""

    count: int = 0
    false: tuple[str, ...] = ()


def check(verdict: Verdict, lives: tuple[Life, ...]) -> Checked:
    """Holds the evidence of a verdict against what the ranks have done until then."""
    job = _context(verdict, lives)
    answers = [(sentence, true) for sentence in verdict.evidence for true in _answers(job, sentence)]
    return Checked(len(answers), tuple(sentence for sentence, true in answers if not true))


def _context(verdict: Verdict, lives: tuple[Life, ...]) -> Job:
    blamed = frozenset(verdict.blamed)
    job = Job(lives, blamed, words.step(verdict.step))
    for sentence in verdict.evidence:
        if counts := re.fullmatch(COUNTS, sentence):
            job = replace(job, step=counts[1], group=counts[3])
    alone = re.search(rf"(?:is|are) alone in {CALL}", verdict.summary)
    return replace(job, there=(alone[1], alone[2])) if alone else job


def _answers(job: Job, sentence: str) -> Iterator[bool]:
    """Whether the sentence is true; nothing where it has none of the known forms."""
    for each in CLAIMS:
        if found := each.pattern.fullmatch(sentence.removeprefix("against it: ")):
            yield each.holds(job, *found.groups())
            return
