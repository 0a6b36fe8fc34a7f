"""What a record must satisfy beyond its types before the service works with it."""

from __future__ import annotations

from hangwatch.model import NodeBatch, NodeCapture, NodeIncident
from hangwatch.wire import members
from hangwatch_dashboard.bodies import BodyError
from hangwatch_dashboard.config import Limits

NAME = 255  # the longest host name there can be
BIGGEST = 2**53  # integers beyond lose digits in a browser
MOST_RANKS = 1 << 20


def check_sender(record: NodeBatch | NodeCapture | NodeIncident) -> None:
    """Names of a sensible length. Raises BodyError."""
    for part in ("job", "node", "boot"):
        name = getattr(record, part)
        if not 0 < len(name) <= NAME:
            raise BodyError(422, f"{part}: must have 1 to {NAME} characters")
        if not name.isprintable():
            raise BodyError(422, f"{part}: must be printable")


def check_batch(batch: NodeBatch, limits: Limits) -> None:
    """Numbers that a database and a browser can hold, and not too many ranks. Raises BodyError."""
    check_sender(batch)
    _within("sequence", batch.sequence, 0, BIGGEST)
    _within("dropped", batch.dropped, 0, BIGGEST)
    _within("exit_code", batch.exit_code or 0, -BIGGEST, BIGGEST)
    if len(batch.ranks) > limits.ranks_per_node:
        raise BodyError(422, f"ranks: more than {limits.ranks_per_node} on one node")
    for beat in batch.ranks:
        _within("rank", beat.rank, 0, MOST_RANKS)
        progress = beat.progress
        numbers = (beat.pid, progress.step, progress.batch or 0, progress.epoch or 0, progress.calls, beat.times.steps)
        if min(numbers) < -1 or max(numbers) > BIGGEST:
            raise BodyError(422, f"rank {beat.rank}: a number is out of range")
    if batch.hello is not None:
        _check_hello(batch)


def _check_hello(batch: NodeBatch) -> None:
    hello = batch.hello
    assert hello is not None
    if hello.job.id != batch.job:
        raise BodyError(422, "hello.job.id: differs from job")
    _within("hello.job.world_size", hello.job.world_size or 0, 0, MOST_RANKS)
    _within("hello.job.nodes_expected", hello.job.nodes_expected or 0, 0, MOST_RANKS)
    for group in hello.groups:
        try:
            members.runs(group.members)
        except ValueError as error:
            raise BodyError(422, f"hello.groups.members: {error}") from None


def _within(name: str, number: int, least: int, most: int) -> None:
    if not least <= number <= most:
        raise BodyError(422, f"{name}: out of range")
