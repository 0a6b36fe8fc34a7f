"""A kind of sentence that evidence is told in, and how it is held against the lives of the ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hangwatch import words
from hangwatch.model import Frame, StepEntry

from .acts import Collective
from .calls import Issued
from .lives import Life
from .stacks import inside

# What sentences are made of, each as one group of a pattern.
RANKS = r"(ranks? \d(?:[\d, and-]*\d)?(?: more)?)"
PLACE = r"([\w./-]+\.py:\d+)"
OP = r"([a-z_]+)"
STEP = r"(epoch \d+, batch \d+(?: \(step \d+\))?|step \d+)"
CALL = rf"{OP}(?: of \w+)? \({PLACE}(?:, below [^)]*)?\)"
COUNTS = rf"in {STEP}, (.*) collectives in group (\S+)"


@dataclass(frozen=True)
class Job:
    """The lives of all ranks, and what other sentences of the same evidence say: sentences refer to each other.

    `blamed` are the culprits: who is called another rank is none of them. `step` and `group` are those of which the
    evidence gives the numbers of calls, else the step of the verdict. `there` is the call of which "from there" speaks.
    """

    lives: tuple[Life, ...]
    blamed: frozenset[int]
    step: str = ""
    group: str = ""
    there: tuple[str, str] | None = None

    def named(self, text: str) -> list[Life]:
        """The lives of `ranks 0-2 and 5`; of a list that is cut short, of those that it names."""
        spans = re.findall(r"(\d+)(?:-(\d+))?", re.sub(r" and \d+ more", "", text))
        return [self.lives[rank] for first, last in spans for rank in range(int(first), int(last or first) + 1)]

    @property
    def others(self) -> list[Life]:
        """Those that are not blamed."""
        return [life for life in self.lives if life.number not in self.blamed]


Holds = Callable[..., bool]


@dataclass(frozen=True)
class Claim:
    """`holds` is called with the job and the groups of the pattern, and says whether the sentence is true."""

    pattern: re.Pattern[str]
    holds: Holds


CLAIMS: list[Claim] = []


def claim(*patterns: str) -> Callable[[Holds], Holds]:
    """The function below says whether sentences of these forms are true."""

    def put(holds: Holds) -> Holds:
        CLAIMS.extend(Claim(re.compile(pattern), holds) for pattern in patterns)
        return holds

    return put


# -------------------------------------------------------------- calls and steps as sentences name them


def counted(call: Issued) -> bool:
    """A collective that its group counts: a message is none, and of two backends a group counts the calls of one."""
    return isinstance(call.act, Collective) and not call.act.backend and call.act.op != "monitored_barrier"


def is_by_gradients(call: Issued) -> bool:
    """DDP's backward issued it."""
    return isinstance(call.act, Collective) and call.act.via == "gradients"


def is_named(call: Issued, op: str) -> bool:
    """Whether this may be called `op`: what backward issues is told as backward, too."""
    return op in ("a collective", call.act.op) or (op == "backward" and is_by_gradients(call))


def places(call: Issued) -> set[str]:
    """`train.py:60`, and all lines on the way there."""
    return lines((*inside(call.act), *call.act.site.frames))


def lines(frames: tuple[Frame, ...]) -> set[str]:
    return {words.place(frame) for frame in frames}


def made(life: Life, op: str, place: str) -> Iterator[Issued]:
    """The collectives of a rank that a sentence may call `op (place)`, the oldest first."""
    return (call for call in life.calls if counted(call) and is_named(call, op) and place in places(call))


def under(life: Life, group: str, number: int) -> Issued | None:
    """Its collective of that number, counted from 1."""
    found = (call for call in life.calls if counted(call) and (call.act.group, call.seq) == (group, number))
    return next(found, None)


def is_step(step: StepEntry, said: str) -> bool:
    place = f"epoch {step.epoch}, batch {step.batch}"
    return said in (f"{place} (step {step.step})", place, f"step {step.step}")


def until(life: Life, said: str, *, through: bool = False) -> tuple[StepEntry, ...]:
    """Its steps before that one, and that one too with `through`; all but the last where it never came there."""
    at = next((index for index, step in enumerate(life.steps) if is_step(step, said)), len(life.steps) - 1)
    return life.steps[: at + through]


def in_group(life: Life, group: str, steps: set[int]) -> list[Issued]:
    return [call for call in life.calls if counted(call) and call.act.group == group and call.step in steps]
