"""Whether each step of a rank waits for the other ranks: by its ledger; before its first steps, by model and source."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from hangwatch.model import Frame, LoaderFacts, Reading
from hangwatch.source.loops import loop_around
from hangwatch.stacks.frames import origin

from .training_loaders import training

PLAIN = frozenset({"enumerate", "tqdm", "track"})  # around a loader, these leave its length as it is
ON_EACH_STEP = "DistributedDataParallel"
UNEVEN_IS_HARMLESS = ("Join(", "no_sync(", ".accumulate(")
JOIN = "/torch/distributed/algorithms/join.py"


def waits_each_step(reading: Reading, loader: LoaderFacts) -> bool:
    """Every step waits for other ranks: as they all have done, or before the first, as model and source say.

    Where gradients are accumulated, most steps wait for none, and unequal lengths may end in equally many that do.
    """
    if len(reading.steps) < 2:
        return backward_waits(reading) and draws_all(loader.where) and not _joins(reading)
    pairs = zip(reading.steps, reading.steps[1:], strict=False)
    return not _joins(reading) and all(
        any(count > before.issued.get(group, count) for group, count in after.issued.items()) for before, after in pairs
    )


def waits_always(reading: Reading) -> bool:
    """The same of its training loader, for what travels to a dashboard."""
    loader = training(reading)
    return loader is not None and waits_each_step(reading, loader)


def _joins(reading: Reading) -> bool:
    """torch's Join evens the steps out: it has issued its notice, by which each forward says that it is still there."""
    return any(frame.file.endswith(JOIN) for call in reading.calls for frame in call.frames)


def backward_waits(reading: Reading) -> bool:
    """Its model is one whose backward waits for all ranks."""
    return reading.identity.plan.get("model") == ON_EACH_STEP


def draws_all(where: Frame | None, source_of: Callable[[str], str | None] | None = None) -> bool:
    """The loop at `where` shows no way out but the end of its loader, and every turn of it seems to wait for all ranks.

    `Join` stands in for ranks that have ended; `no_sync` and accelerate's `accumulate` let turns go by without a wait.

    Asked before the first step, when nothing else is known: where the source is not to be had, it is not said.
    """
    if where is None or origin(where.file) != "user":
        return False
    return _draws_all((source_of or _source)(where.file), where.line)


@lru_cache(maxsize=64)
def _draws_all(source: str | None, line: int) -> bool:
    if source is None or any(name in source for name in UNEVEN_IS_HARMLESS):
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    loop = loop_around([(Frame("", line, ""), tree)])
    if loop is None or loop.leaves or loop.counted:
        return False
    return any(isinstance(each, ast.For) and each.lineno == loop.where.line and _plain(each) for each in ast.walk(tree))


def _plain(loop: ast.For) -> bool:
    calls = (node.func for node in ast.walk(loop.iter) if isinstance(node, ast.Call))
    return all((f.attr if isinstance(f, ast.Attribute) else getattr(f, "id", "")) in PLAIN for f in calls)


@lru_cache(maxsize=64)
def _source(file: str) -> str | None:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
