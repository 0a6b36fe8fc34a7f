"""What the ranks of a simulated job had done at one moment: the job itself runs on when the truth is asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hangwatch.model import Frame, Phase, StepEntry

from .acts import Collective, DeviceWait, Peer
from .calls import Issued
from .camera import Camera
from .machine import Machine
from .ranks import LoaderState, Rank


@dataclass(frozen=True, slots=True)
class Life:
    """One rank: all that it has done, and where it stands, whatever its board has kept of it.

    `drawn` has (epoch, batches, how it ended: "", "exhausted" or "left") of each epoch of each loader. One whose every
    batch was drawn is exhausted as well where nothing asked it for another.
    """

    number: int
    state: str
    code: int | None  # of its exit
    on_record: bool  # there is a board of it
    calls: tuple[Issued, ...]
    on_board: tuple[Issued, ...]  # those of the calls that the ring of its board still holds
    waits: tuple[Issued, ...]  # the calls in which its threads wait, or waited at its end
    stands: tuple[Frame, ...]  # its main thread
    awaits_device: bool
    steps: tuple[StepEntry, ...]
    recorded: tuple[StepEntry, ...]  # those of its steps that the ring still holds
    forwards: int
    drawn: frozenset[tuple[int, int, str]]
    destroyed: bool
    is_over: bool
    failed_in: str | None  # the group in whose call it failed
    error: str
    error_at: tuple[str, ...]

    @property
    def step(self) -> int:
        return self.steps[-1].step if self.steps else -1

    @property
    def open(self) -> list[Issued]:
        """What it has issued and is not complete."""
        return [call for call in self.calls if not call.complete]


def lives_of(machine: Machine, camera: Camera) -> tuple[Life, ...]:
    """The lives of all ranks until now, in their order."""
    return tuple(_life(rank, camera) for rank in machine.ranks)


def _life(rank: Rank, camera: Camera) -> Life:
    threads = [thread for thread in rank.threads if thread.running or thread in rank.stood]
    main, error = rank.threads[0], rank.exception
    site = getattr(main.slow or main.act, "site", None)
    calls = tuple(replace(call) for call in rank.calls)
    return Life(
        rank.number,
        rank.state,
        rank.code,
        rank.number not in (*camera.silent, *camera.no_board),
        calls,
        calls[-camera.calls_kept :],
        (*(call for thread in threads for call in thread.waits), *_failed_in(rank)),
        site.frames if site is not None else (),
        isinstance(main.act, DeviceWait),
        tuple(rank.steps),
        tuple(rank.steps[-camera.steps_kept :]),
        rank.forwards,
        frozenset(one for loader in rank.loaders.values() for one in _drawn(loader)),
        rank.destroyed,
        rank.phase is Phase.MAIN_DONE,
        getattr(rank.failed_in, "group", None),
        error.type if error is not None else "",
        tuple(f"{frame.file.rpartition('/')[2]}:{frame.line}" for frame in error.frames) if error is not None else (),
    )


def _failed_in(rank: Rank) -> tuple[Issued, ...]:
    """The call in which it lost a peer, which may never have been issued."""
    act = rank.failed_in
    if isinstance(act, Collective | Peer):
        return (Issued(rank.number, 0, act, rank.threads[0], 0.0, 0, ""),)
    return tuple(call for call in rank.calls[-1:] if act is not None and not call.complete)


def _drawn(loader: LoaderState) -> list[tuple[int, int, str]]:
    found = []
    for epoch, (count, end, length) in enumerate(zip(loader.counts, loader.ends, loader.lengths, strict=True)):
        found += [(epoch, count, how) for how in _ends(exhausted=end, drained=count >= (length or count + 1))]
    if len(loader.counts) <= loader.epoch:
        ended = loader.exhausted or loader.drawn >= (loader.length or loader.drawn + 1)
        found += [(loader.epoch, loader.drawn, end) for end in ("exhausted" if ended else "", "")]
    return found


def _ends(*, exhausted: bool, drained: bool) -> tuple[str, ...]:
    """A loop that is left behind its last batch, without asking for another, is told as either."""
    return ("exhausted",) if exhausted else ("exhausted", "left") if drained else ("left",)
