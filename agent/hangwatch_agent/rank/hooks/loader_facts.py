"""One loader and its passes, in the shape of `records.LoaderFacts`."""

from __future__ import annotations

import opcode
import weakref
from collections.abc import Mapping
from types import CodeType
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.board.writer import BoardWriter
from hangwatch_agent.rank.hooks.lengths import asked_by_torch, batches, integer, length, own

MOST_EPOCHS = 64
MOST_WORKERS = 256
TORCHS = "torch.utils.data.sampler"
FOR_ITER = opcode.opmap["FOR_ITER"]


class Pass:
    """One pass over a loader: what `for batch in loader` does once. `training` is None while it is too early to say.

    Trainers and progress bars make iterators that they never draw from. A pass is an epoch of its loader from the
    moment a batch of it is asked for.
    """

    def __init__(self, slot: LoaderSlot, iterator: weakref.ref[Any]) -> None:
        self.slot = slot
        self.index, self.drawn_at = slot.index, slot.drawn_at
        self.iterator = iterator
        self.training: bool | None = None
        self.epoch = 0
        self.drawn = 0
        self.open = True
        self.asked = False  # for a batch
        self.where: Any = None  # the user's line that made it
        self.steps = 0  # that the rank had begun by then
        self.calls = 0  # that it had made by then
        self.kept = False  # its loader holds the iterator: for persistent workers, or to save its state
        self.ahead = 0  # batches that are drawn, but not worked on yet, while a step is made
        self.first_drawn_at: tuple[CodeType, int] | None = None  # the instruction that drew batch 0
        self.in_a_loop = True  # drawn by `for`, not by calls of next()
        self.digested = 0
        self.order = 0

    def digest(self, index: Any) -> None:
        """Take a batch of sample indices into the digest of the order; other indices than integers count as nothing."""
        self.digested += 1
        if type(index) is list and index and type(index[0]) is int:
            self.order = hash((self.order, *index[:64]))
        elif type(index) is int:
            self.order = hash((self.order, index))

    def note_draw(self, number: int, frame: Any, in_package: bool) -> None:
        """What the first two draws show of who draws.

        A package's generator that draws its first batch before its loop, and one in each turn, is a batch ahead: the
        batch that it has drawn last is not the one that the program works on.
        """
        place = (frame.f_code, frame.f_lasti)
        if number == 0:
            self.first_drawn_at = place
            self.in_a_loop = _in_a_loop(frame)
        elif (before := self.first_drawn_at) is not None and before[0] is place[0] and before[1] != place[1]:
            self.ahead = int(in_package)

    def catch_up(self, iterator: Any) -> None:
        """This iterator was in use before it was seen: torch has counted its batches."""
        self.drawn = int(own(iterator, "_num_yielded", 0))


class LoaderSlot:
    """One loader slot of the board: a loader as it is used with, or without, gradients.

    A loader made anew for each epoch keeps its slot if it is iterated at the same line over the same kind of data.
    Below a trainer all loaders are iterated at one line of the user's: what a loader that still exists draws with tells
    a validation loader over the same dataset from the training loader.
    """

    def __init__(self, board: BoardWriter, index: int, grad: bool, asked: Mapping[int, int]) -> None:
        self.asked = asked  # what len(loader) gave when the program asked, by the loader's id
        at = b.LOADERS_AT + index * b.SLOT_WORDS
        self.board, self.index, self.grad = board, index, grad
        self.epoch_at, self.drawn_at, self.flags_at = at + b.L_EPOCH, at + b.L_DRAWN, at + b.L_FLAGS
        self.confirmed = False
        self.training = False
        self.steps_before = -1  # how many steps there were before this loader's first, -1 while it has none
        self.facts: dict[str, Any] = {"index": index, "length": None, "drawn_per_epoch": [], "exhausted_per_epoch": []}
        self.skipped = 0  # batches that its newest iterator passes over, and its length leaves out
        self._epoch = -1
        self._finished = 0
        self._loader: weakref.ref[Any] | None = None
        self._dataset = 0
        self._newest: Pass | None = None
        self._pass: Pass | None = None  # the newest that was asked for a batch
        board.words[self.epoch_at], board.words[self.drawn_at], board.words[self.flags_at] = -1, 0, 0

    @property
    def draws(self) -> int:
        """Batches drawn in all passes."""
        return self._finished + (self._pass.drawn if self._pass is not None and self._pass.open else 0)

    @property
    def idle(self) -> bool:
        return not self.training and not any(each is not None and each.open for each in (self._newest, self._pass))

    @property
    def is_empty(self) -> bool:
        """Its last two passes have given nothing."""
        return bool(self.facts["drawn_per_epoch"][-2:] == [0, 0])

    def is_of(self, loader: Any) -> bool:
        """Whether the newest iterator is this very loader's."""
        return self._loader is not None and self._loader() is loader

    def is_for(self, loader: Any, dataset: Any, grad: bool, where: Any) -> bool:
        """Whether a pass over `loader` belongs here."""
        if grad != self.grad:
            return False
        known = self._loader() if self._loader is not None else None
        if loader is not None and known is loader:
            return True
        if known is not None and (own(known, "dataset") is not dataset or _draws_otherwise(known, loader)):
            return False
        return self.facts.get("where") == _frame(where) and self.facts.get("dataset") == type(dataset).__name__

    def begin(self, current: Pass, loader: Any, iterator: Any, where: Any) -> None:
        """There is a new iterator of this loader."""
        self._newest = current
        current.where = where
        current.kept = bool(own(iterator, "_persistent_workers")) or own(loader, "_iterator") is iterator
        self._loader = weakref.ref(loader) if loader is not None else None
        self.skipped = _skipped(own(iterator, "_index_sampler"))
        self.take_part(bool(current.training))
        # Facts of a loader never change, except for its workers and the sampler that a framework may put in its place.
        self.facts |= describe(loader, iterator, self.asked.get(id(loader))) | {"where": _frame(where)}
        if self._epoch < 0:
            self.facts["first_epoch"] = integer(own(_sampler(loader, iterator), "epoch"))

    def ask(self, current: Pass) -> Pass | None:
        """The first batch of a pass is asked for; the pass before it, if it is still open, has been left.

        Returns that one if it was a look into the data before the training, and no epoch: it is not counted.
        """
        current.asked = True
        words, before = self.board.words, self._pass
        current.calls = words[b.W_CALLS_WRITTEN]
        if before is not None and before.open:
            self.end(before, exhausted=False)
        looked = before if before is not None and self._only_looked(before) else None
        if looked is not None:
            for name in ("drawn_per_epoch", "exhausted_per_epoch"):
                self.facts[name] = self.facts[name][:-1]
            self.facts["looked"] = _frame(looked.where)
            self._epoch -= 1
        self._pass = current
        self._epoch += 1
        current.epoch = self._epoch
        words[self.epoch_at], words[self.drawn_at] = self._epoch, current.drawn
        words[self.flags_at] &= ~(b.F_EXHAUSTED | b.F_LEFT)
        return looked

    def _only_looked(self, before: Pass) -> bool:
        """`next(iter(loader))`, say, to print a shape: one batch, for which nothing was computed and nothing called."""
        words = self.board.words
        began = words[b.W_FORWARDS] or words[b.W_OPTIMIZER_STEPS] or words[b.W_CALLS_WRITTEN] != before.calls
        return before.drawn == 1 and not began and self.facts["exhausted_per_epoch"][-1:] == [False]

    def learn(self, iterator: Any) -> bool:
        """Take up what torch's samplers have asked the dataset meanwhile. Whether that is news."""
        if self.facts["dataset_length"] is not None or self._loader is None or (loader := self._loader()) is None:
            return False
        if _is_endless(own(iterator, "_index_sampler")):
            return False
        found = describe(loader, iterator, self.asked.get(id(loader)))
        self.facts |= {name: value for name, value in found.items() if name.endswith("length")}
        return self.facts["dataset_length"] is not None

    def end(self, current: Pass, *, exhausted: bool) -> None:
        """The pass is over: its loader is exhausted, or the loop has left it."""
        if not current.open:
            return
        current.open = False
        if current is not self._pass:
            return
        self.board.words[self.flags_at] |= b.F_EXHAUSTED if exhausted else b.F_LEFT
        self._finished += current.drawn
        facts = self.facts
        facts["drawn_per_epoch"] = [*facts["drawn_per_epoch"], current.drawn][-MOST_EPOCHS:]
        facts["exhausted_per_epoch"] = [*facts["exhausted_per_epoch"], exhausted][-MOST_EPOCHS:]
        if current.order:
            facts["previous_indices_hash"] = facts.get("sampler_indices_hash", "")
            facts["sampler_indices_hash"] = f"{current.order & (1 << 64) - 1:016x}"

    def take_part(self, training: bool) -> None:
        """Whether its draws are the training's steps."""
        self.training = training
        words = self.board.words
        words[self.flags_at] = words[self.flags_at] & ~b.F_TRAINING | (b.F_TRAINING if training else 0)


def _in_a_loop(frame: Any) -> bool:
    """What draws is `for`, of the program or of a package; iterators around torch's own are looked through."""
    while frame.f_code.co_name == "__next__" and frame.f_back is not None:
        frame = frame.f_back
    return bool(frame.f_code.co_code[frame.f_lasti] == FOR_ITER)


def describe(loader: Any, iterator: Any, asked: int | None = None) -> dict[str, Any]:
    """What a loader is made of. Less can be said of an iterator that was there before us: its loader is not known.

    Nothing of the user's runs: see `hooks.lengths`. `asked` is what len(loader) gave when the program asked.
    """
    dataset, sampler = dataset_of(loader, iterator), _sampler(loader, iterator)
    index_sampler = own(iterator, "_index_sampler")
    indexed = not _is_endless(index_sampler)
    samples, dataset_length = length(sampler), length(dataset) if indexed else None
    if indexed and (samples is None or dataset_length is None):
        told = asked_by_torch(sampler, own(iterator, "_sampler_iter"))
        samples = told if samples is None else samples
        if dataset_length is None and own(sampler, "data_source") is dataset:
            dataset_length = told
    in_batches = batches(index_sampler, samples) if index_sampler is not sampler else samples
    skipped = _skipped(index_sampler)
    known = in_batches if asked is None or in_batches is not None else asked + skipped
    workers = own(iterator, "_workers", ())
    return {
        "length": known if indexed else _asked_length(loader),
        "resumed_at": (skipped or integer(own(iterator, "_num_yielded")) or 0) if loader is not None else 0,
        "num_workers": int(own(loader, "num_workers", own(iterator, "_num_workers", 0)) or 0),
        "worker_pids": [worker.pid for worker in workers[:MOST_WORKERS]],
        "dataset": type(dataset).__name__,
        "dataset_length": dataset_length,
        "batch_size": integer(own(loader, "batch_size")),
        "sampler": type(sampler).__name__ if sampler is not None else "",
        "sampler_replicas": integer(own(sampler, "num_replicas")),
        "sampler_rank": integer(own(sampler, "rank")),
        "sampler_length": samples,
        "shuffle": _shuffle(sampler),
        "drop_last": _drop_last(loader),
        "sampler_seed": integer(own(sampler, "seed")),
        "start_method": _start_method(loader),
        "timeout_s": float(own(loader, "timeout", own(iterator, "_timeout", 0)) or 0),
    }


def _skipped(index_sampler: Any) -> int:
    """Batches that Accelerate's sampler passes over in a training that was resumed: its length is without them."""
    return integer(own(index_sampler, "skip_batches")) or 0


def dataset_of(loader: Any, iterator: Any) -> Any:
    """The dataset. Never tested for truth: that would call the user's __len__."""
    return own(iterator, "_dataset") if loader is None else own(loader, "dataset")


def _is_endless(sampler: Any) -> bool:
    """Whether it is what torch puts in place of a sampler for an IterableDataset, or a batch sampler around that."""
    inner = own(sampler, "sampler", sampler)
    return "_InfiniteConstantSampler" in (type(sampler).__name__, type(inner).__name__)


def _asked_length(loader: Any) -> int | None:
    """The batches of an IterableDataset's loader, if the user has asked for len(loader) before.

    Not asked by us: the loader would warn, from then on, when it gives more than that.
    """
    samples = integer(own(loader, "_IterableDataset_len_called"))
    size = integer(own(loader, "batch_size"))
    if samples is None or not size:
        return samples
    return int(samples // size if own(loader, "drop_last") else -(-samples // size))


def _sampler(loader: Any, iterator: Any) -> Any:
    """The sampler of samples: the one inside the batch sampler, where the loader batches.

    A batch sampler of the program's may choose the samples itself: then the loader's own sampler chooses none.
    """
    index_sampler = own(iterator, "_index_sampler")
    inner = own(index_sampler, "sampler")
    if inner is None and type(index_sampler).__module__ != TORCHS:
        inner = index_sampler
    sampler = inner if inner is not None else own(loader, "sampler", index_sampler)
    return None if _is_endless(sampler) else sampler


def _draws_otherwise(known: Any, loader: Any) -> bool:
    """Both loaders batch what samplers of different kinds give. A wrapper of another batch sampler says nothing."""
    samplers = [own(own(each, "batch_sampler"), "sampler") for each in (known, loader)]
    return None not in samplers and len({type(sampler) for sampler in samplers}) > 1


def _shuffle(sampler: Any) -> bool | None:
    shuffle = own(sampler, "shuffle")
    if isinstance(shuffle, bool):
        return shuffle
    return {"RandomSampler": True, "SequentialSampler": False}.get(type(sampler).__name__)


def _drop_last(loader: Any) -> bool | None:
    found = own(loader, "drop_last")
    return found if isinstance(found, bool) else None


def _start_method(loader: Any) -> str:
    context = own(loader, "_DataLoader__multiprocessing_context")
    try:
        return str(context.get_start_method()) if context is not None else ""
    except Exception:
        return ""


def _frame(where: Any) -> dict[str, Any] | None:
    return None if where is None else {"file": where[0], "line": where[1], "function": where[2]}
