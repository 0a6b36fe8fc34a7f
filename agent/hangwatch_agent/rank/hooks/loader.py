"""DataLoader: every pass over a loader, the batches drawn in it, and how it ended.

Hooked by class, so iterators that existed before are seen too, at their next batch. Types, exceptions and what the
iterator holds stay as they are.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.call_site import PACKAGE
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.hooks.lengths import own
from hangwatch_agent.rank.hooks.loader_facts import LoaderSlot, Pass, dataset_of
from hangwatch_agent.rank.hooks.untraced import followed, is_traced, replacing
from hangwatch_agent.rank.patch import Patch, Patches
from hangwatch_agent.rank.steps import BY_LOADER

LOADER_MODULE = "torch.utils.data.dataloader"
SIGNALS_MODULE = "torch.utils.data._utils.signal_handling"
WORKER_FAILED = "_error_if_any_worker_fails"
DIGESTED_BATCHES = 16  # of each pass: enough to tell one order from another, and free afterwards


class LoaderHook:
    """Keeps a `LoaderSlot` for each loader and a `Pass` for each living iterator."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._board = context.board
        self._patches = Patches()
        self._digesting: Patch | None = None
        self._installed = False
        self._declared: list[weakref.ref[Any]] = []
        self._grad_enabled: Callable[[], bool] = bool
        self._passes: dict[int, Pass] = {}  # by the id of the iterator; one object for ever, which hooks hold
        self._made_by: dict[int, weakref.ref[Any]] = {}  # the loader of an iterator that no pass is known of, by its id
        self._asked: dict[int, int] = {}  # what len(loader) gave when the program asked, by the loader's id
        self.reset()

    def reset(self) -> None:
        """Forget every loader: this process has a new board."""
        self.slots: list[LoaderSlot] = []
        self._passes.clear()
        self._made_by.clear()
        self._inside: Pass | None = None
        self._replaced = 0  # batches of loaders that have lost their slot
        self._settle(None)

    def install(self) -> None:
        module = sys.modules.get(LOADER_MODULE)
        if self._installed or module is None:
            return
        self._installed = True
        self._grad_enabled = sys.modules["torch"].is_grad_enabled
        self._context.training_seen, self._context.evaluation_seen = self.training_seen, self.evaluation_seen
        base = getattr(module, "_BaseDataLoaderIter", None)
        if base is None:
            self._context.board.problem("this torch's DataLoader is another one: batches are not seen")
            return
        self._follow(module.DataLoader, "__iter__", self._begin)
        self._follow(module.DataLoader, "__len__", self._noted)
        self._follow(base, "__init__", self._made)
        self._follow(base, "_reset", self._again)
        self._patches.put(base, "__next__", self._next(base.__next__))
        if hasattr(base, "_next_index"):
            self._digesting = Patch(base, "_next_index", self._next_index(base._next_index))
        signals = sys.modules.get(SIGNALS_MODULE)
        if signals is not None and hasattr(signals, WORKER_FAILED):
            self._patches.put(signals, WORKER_FAILED, self._worker_failed(getattr(signals, WORKER_FAILED)))

    def _follow(self, owner: Any, name: str, note: Callable[..., None]) -> None:
        if hasattr(owner, name):
            self._patches.put(owner, name, followed(getattr(owner, name), name, note, self._context.guard))

    def remove(self) -> None:
        self._patches.remove()
        if self._digesting is not None:
            self._digesting.remove()
            self._digesting = None
        self._installed = False

    def _worker_failed(self, original: Callable[[], None]) -> Callable[[], None]:
        """torch's handler of SIGCHLD raises from wherever the rank is at that moment: in no `__next__` of ours."""

        @replacing(original, WORKER_FAILED)
        def check() -> None:
            try:
                original()
            except RuntimeError as error:
                try:
                    self._context.met(error)
                except Exception as failure:
                    self._context.guard.swallow(failure)
                raise

        return check

    def declare(self, loaders: Iterable[Any]) -> None:
        """`attach` was given these: if there is only one, it is the training loader."""
        for loader in loaders:
            try:
                self._declared.append(weakref.ref(loader))
            except TypeError:
                continue  # a list, say: nothing to hook in it

    # ------------------------------------------------------------ replacements

    def _noted(self, found: int, loader: Any) -> None:
        """The program, or its progress bar, asks len(loader): we never do."""
        if own(loader, "_IterableDataset_len_called") is not None:
            return  # a promise that a stream need not keep; torch remembers it, and `describe` reads that
        if id(loader) not in self._asked:
            weakref.finalize(loader, self._asked.pop, id(loader), None).atexit = False
        self._asked[id(loader)] = int(found)
        for slot in self.slots:
            if slot.is_of(loader) and slot.facts["length"] is None:
                slot.facts["length"] = int(found) + slot.skipped
                self._publish()

    def _next(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        # Runs once a batch: what is not needed at once is left to the ticker, and calls are spared.
        board, steps, guard, failed = self._board, self._context.steps, self._context.guard, self._failed
        time_ns, compiling, known, begin = time.monotonic_ns, is_traced(), self._passes.get, steps.begin
        sites, phase, phase_at, in_data = self._context.sites, b.W_PHASE, b.W_PHASE_AT, b.DATA

        @replacing(original, "__next__")
        def drawing(iterator: Any) -> Any:
            if compiling():
                return original(iterator)
            current, entered = None, 0
            try:
                current, words = known(id(iterator)) or self._late(iterator), board.words
                if self._inside is not current:
                    self._enter(current)
                words[phase] = in_data
                entered = time_ns()
            except Exception as error:
                guard.swallow(error)
            try:
                batch = original(iterator)
            except BaseException as error:
                failed(current, error)
                raise
            try:
                if current is not None:
                    now, words, number = time_ns(), board.words, current.drawn
                    current.drawn = words[current.drawn_at] = number + 1
                    words[phase] = steps.at
                    words[phase_at] = now
                    if number < 2:
                        frame = sys._getframe(1)
                        in_package = sites.kind(frame.f_code.co_filename) == PACKAGE
                        current.note_draw(number, frame, in_package)
                    if current.training:
                        steps.data_ns += now - entered
                        if current.slot.steps_before < 0:
                            self._first_step(current.slot)
                        if steps.source <= BY_LOADER and (not (ahead := current.ahead) or number > 1):
                            begin(current.epoch, number - ahead, current.index, now)
                        else:
                            steps.loader = current.index
            except Exception as error:
                guard.swallow(error)
            return batch

        return drawing

    def _next_index(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        guard = self._context.guard

        @replacing(original, "_next_index")
        def _next_index(iterator: Any) -> Any:
            index = original(iterator)
            current = self._passes.get(id(iterator))
            if current is not None and current.digested < DIGESTED_BATCHES:
                try:
                    self._digest(current, index)
                except Exception as error:
                    guard.swallow(error)
            return index

        return _next_index

    # ------------------------------------------------------------ a pass begins

    def _begin(self, iterator: Any, loader: Any) -> None:
        self._register(loader, iterator, sys._getframe(2))

    def _made(self, _: None, iterator: Any, loader: Any) -> None:
        """A subclass of DataLoader may give out its iterators by an `__iter__` of its own, which `_begin` misses."""
        self._made_by[id(iterator)] = weakref.ref(loader)

    def _again(self, _: None, iterator: Any, loader: Any, *_args: Any, **_named: Any) -> None:
        """Persistent workers: the same iterator, for another pass."""
        before = self._passes.get(id(iterator))
        if before is not None and before.iterator() is iterator:
            del self._passes[id(iterator)]
            self._left(before)
            self._made(None, iterator, loader)

    def _register(self, loader: Any, iterator: Any, frame: Any) -> Pass:
        self._made_by.pop(id(iterator), None)
        grad = self._grad_enabled()
        where = self._context.sites.consumer(frame)
        slot = self._slot(loader, iterator, grad, where)
        current = Pass(slot, weakref.ref(iterator, functools.partial(self._dropped, id(iterator))))
        current.training, sure = self._part(slot, loader, grad)
        if sure and current.training:
            slot.confirmed = True
            self._settle(None)
        elif not sure:
            self._settle(current)
        slot.begin(current, loader, iterator, where)
        self._passes[id(iterator)] = current
        if self._digesting is not None:
            self._digesting.install()
        self._publish()
        return current

    def _slot(self, loader: Any, iterator: Any, grad: bool, where: Any) -> LoaderSlot:
        dataset = dataset_of(loader, iterator)
        found = next((slot for slot in self.slots if slot.is_for(loader, dataset, grad, where)), None)
        if found is None:
            index = len(self.slots)
            if index >= b.LOADER_SLOTS:
                index = next((slot.index for slot in self.slots if slot.idle), b.LOADER_SLOTS - 1)
            found = LoaderSlot(self._context.board, index, grad, self._asked)
            self._replaced += sum(slot.draws for slot in self.slots[index : index + 1])
            self.slots[index : index + 1] = [found]
        return found

    def _part(self, slot: LoaderSlot, loader: Any, grad: bool) -> tuple[bool | None, bool]:
        """Whether a new pass is the training's (None: too early to say), and whether that is sure."""
        if not grad:
            return False, True
        declared = [found for ref in self._declared if (found := ref()) is not None]
        if len(declared) == 1 and declared[0] is loader:
            return True, True
        if any(each.open and each.slot.training for each in self._passes.values() if each.slot is not slot):
            return False, True  # inside another loader's epoch: validation, or a second loader of the same step
        if slot.training and slot.confirmed:
            return True, True
        if not any(each.training for each in self.slots if each is not slot):
            return True, False
        return None, False

    # ------------------------------------------------------------ a batch

    def _enter(self, current: Pass) -> None:
        """A batch of another pass than the last is asked for; if it is its first, the pass before it is over."""
        self._inside = current
        self._board.words[b.W_LOADER] = current.slot.index
        if not current.asked:
            looked, steps = current.slot.ask(current), self._context.steps
            if looked is not None and looked.training and (steps.source, steps.count) == (BY_LOADER, looked.steps + 1):
                steps.take_back(looked.steps)
            current.steps = steps.count
            self._publish()

    def _digest(self, current: Pass, index: Any) -> None:
        current.digest(index)
        if current.digested == 1 and current.slot.learn(current.iterator()):
            self._publish()
        wanted = (each.open and each.digested < DIGESTED_BATCHES for each in self._passes.values())
        if self._digesting is not None and not any(wanted):
            self._digesting.remove()  # the rest of the epoch does without

    def _late(self, iterator: Any) -> Pass:
        """The first batch of an iterator that `DataLoader.__iter__` has not given out, or not before our eyes."""
        made_by = self._made_by.get(id(iterator))
        current = self._register(made_by() if made_by is not None else None, iterator, sys._getframe(2))
        if made_by is None:
            current.catch_up(iterator)
        return current

    def _first_step(self, slot: LoaderSlot) -> None:
        self._context.steps.loader_found()
        slot.steps_before = self._context.steps.count

    # ------------------------------------------------------------ a pass ends

    def _failed(self, current: Pass | None, error: BaseException) -> None:
        if current is None:
            return
        try:
            now = time.monotonic_ns()
            if isinstance(error, StopIteration):
                if current.ahead and current.open and current.training and self._context.steps.source <= BY_LOADER:
                    self._context.steps.begin(current.epoch, current.drawn - 1, current.index, now)
                current.slot.end(current, exhausted=True)
                self._ended(current, now)
            else:
                self._context.steps.phase(b.STEP, now)
                if isinstance(error, Exception):  # a worker that has died is forgotten once this is handled
                    self._context.met(error)
        except Exception as failure:
            self._context.guard.swallow(failure)

    def _dropped(self, identity: int, reference: Any) -> None:
        """An iterator is gone; runs wherever its last reference was dropped."""
        try:
            current = self._passes.get(identity)
            if current is not None and current.iterator is reference:
                del self._passes[identity]
                self._left(current)
        except Exception as error:
            self._context.guard.swallow(error)

    def _left(self, current: Pass) -> None:
        if current.open:
            current.slot.end(current, exhausted=False)
            self._ended(current, time.monotonic_ns())

    def _ended(self, current: Pass, now: int) -> None:
        if current is self._guess:
            self._settle(None)
        self._publish()
        if not current.asked:
            return
        outer = any(each.open and each.training for each in self._passes.values())
        if current.training:
            self._context.steps.paused()
        if current.slot.is_empty:  # a loop over empty epochs stays in the phase that waits for data
            return
        if self._board.words[b.W_PHASE] <= b.BETWEEN:  # at the end of a rank its iterators go after it
            steps = self._context.steps
            inside = steps.source > BY_LOADER or (outer and not current.training)
            steps.phase(steps.at if inside else b.BETWEEN, now)

    def count(self) -> None:
        """Put the batches of all loaders on the board. For the ticker."""
        self._board.words[b.W_DRAWS] = sum(slot.draws for slot in self.slots) + self._replaced

    def look_for_left(self) -> None:
        """Some loaders keep their iterator: a loop has left it when no reference remains. For the ticker."""
        for current in list(self._passes.values()):
            iterator = current.iterator()
            watched = current.open and current.kept and iterator is not None and current.drawn
            # Held by the loader, by `iterator` here and by the call; a loop that runs holds it too.
            if watched and sys.getrefcount(iterator) <= 3:
                self._left(current)
            del iterator

    # ------------------------------------------------------------ training or not

    def training_seen(self) -> None:
        """A forward with gradients or an optimizer step: the pass that was a guess is the training's.

        Not where it was only looked into: `images = next(iterator)` before the loop leaves its pass open.
        """
        current, last = self._guess, self._inside
        if current is None or not current.drawn:
            return
        if last is not None and last.open and last.in_a_loop and not current.in_a_loop:
            current = last
        self._settle(None)
        for other in self.slots:
            if other is not current.slot and other.training and not other.confirmed:
                self._take_back(other)
        current.slot.confirmed = True
        if not current.training:
            current.training = True
            current.slot.take_part(True)
            self._first_step(current.slot)
            if self._context.steps.source <= BY_LOADER:
                batch = current.drawn - 1 - current.ahead
                self._context.steps.begin(current.epoch, batch, current.slot.index, time.monotonic_ns())

    def evaluation_seen(self) -> None:
        """A forward without gradients: the pass that was a guess is validation, unless training is seen in it yet.

        (A teacher's forward comes before the student's.)
        """
        current = self._guess
        if current is not None and current.drawn and current.training is not False:
            self._take_back(current.slot)
            current.training = False

    def _settle(self, guess: Pass | None) -> None:
        """`guess` is the pass whose part (training or not) is not settled, None where all are."""
        self._guess, self._context.unconfirmed = guess, guess is not None

    def _take_back(self, slot: LoaderSlot) -> None:
        slot.take_part(False)
        for each in self._passes.values():
            if each.slot is slot:
                each.training = False
        if slot.steps_before >= 0:
            self._context.steps.take_back(slot.steps_before)
            slot.steps_before = -1

    def _publish(self) -> None:
        self._context.board.write("loaders", [slot.facts for slot in self.slots])
