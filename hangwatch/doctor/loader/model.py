"""What walks over a loader have seen.

Annotations are types and not text: `hangwatch.wire.codec` reads these records.
"""

from dataclasses import dataclass

from hangwatch.doctor.model import Check, State, worst

IMPORT_S = 60  # for a process to import torch and the user's module, before the time of its walk begins
SPARE_S = 8  # beyond the time of a walk, for the batch that it is at
BEGINS = "hangwatch-walk-begins"  # the line that a process prints after its imports
TOLD = "hangwatch-walk:"  # the start of a line with all that it has seen so far, as JSON


@dataclass(frozen=True)
class Epoch:
    """One pass, of at most the batches that were asked for. `ended`: the loader was exhausted."""

    drawn: int = 0
    ended: bool = False
    took_s: float = 0.0
    first_s: float = 0.0  # from iter() to the first batch: workers start
    slowest_s: float = 0.0  # of the other batches
    usual_s: float = 0.0  # their median
    digests: tuple[str, ...] = ()  # of each batch's content
    shapes: tuple[str, ...] = ()  # the different shapes, without those of the last batch
    sizes: tuple[int, ...] = ()  # the different batch sizes, without that of the last batch
    nones: int = 0  # batches that are None or hold a None
    memory: int = 0  # bytes of the process and its workers at the end
    descriptors: int = 0
    problem: str = ""  # the error that ended it, with the user's line


@dataclass(frozen=True)
class Walk:
    """All passes of one process: one rank with one number of workers."""

    rank: int
    workers: int
    purpose: str  # "rank", "again", "pace"
    made_s: float = 0.0
    problem: str = ""  # why there was no loader to walk
    length: int | None = None
    iterable: bool = False
    batch_size: int | None = None
    drop_last: bool = False
    sampler: str = ""
    shuffles: bool = False
    dataset: str = ""
    dataset_length: int | None = None
    order: tuple[int, ...] = ()  # the samples that the sampler gives this rank in one epoch
    order_cut: bool = False  # there are more of them
    set_epoch: bool | None = None  # whether it changes the order; None where there is none
    fingerprint: str = ""  # of some samples: ranks with the same have the same dataset
    spawn_problem: str = ""  # why the workers could not be started with spawn
    epochs: tuple[Epoch, ...] = ()

    @property
    def rate(self) -> float:
        """Batches a second after the first."""
        last = self.epochs[-1] if self.epochs else Epoch()
        spent = last.took_s - last.first_s
        return (last.drawn - 1) / spent if last.drawn > 1 and spent > 0 else 0.0


@dataclass(frozen=True)
class LoaderReport:
    """The result of `hangwatch.doctor.loader.run`."""

    target: str
    checks: tuple[Check, ...]
    walks: tuple[Walk, ...]
    took_s: float

    @property
    def worst(self) -> State:
        return worst(self.checks)
