"""The probe of one rank: its board, its hooks and its ticker, put in and taken out as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank import identity
from hangwatch_agent.rank.fault_traces import FaultTraces
from hangwatch_agent.rank.hooks.backward import BackwardHook
from hangwatch_agent.rank.hooks.collectives import CollectivesHook
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.hooks.ddp import ForwardHook
from hangwatch_agent.rank.hooks.groups import GroupsHook
from hangwatch_agent.rank.hooks.lifecycle import LifecycleHook
from hangwatch_agent.rank.hooks.loader import LoaderHook
from hangwatch_agent.rank.hooks.optimizer import OptimizerHook
from hangwatch_agent.rank.hooks.untraced import hide_ours
from hangwatch_agent.rank.import_watch import ImportWatch
from hangwatch_agent.rank.polled import Polled
from hangwatch_agent.rank.polled_file import polled_file
from hangwatch_agent.rank.polled_lock import polled_path
from hangwatch_agent.rank.ptrace_permission import PtracePermission
from hangwatch_agent.rank.ticker import Ticker
from hangwatch_agent.rank.waking import Waking
from hangwatch_agent.shared import rank_rule
from hangwatch_agent.shared.dump_defaults import DumpDefaults
from hangwatch_agent.shared.saying import say

if TYPE_CHECKING:
    from hangwatch.settings import Settings

# The modules that are hooked. `import torch` brings all of them today; older ones bring some later.
HOOKED = (
    "torch",
    "torch.distributed.distributed_c10d",
    "torch.distributed.pipelining.schedules",
    "torch.nn.parallel.distributed",
    "torch.optim.optimizer",
    "torch.utils.data.dataloader",
)

# What a framework does, in its own words, and the phase that it is.
STAGES = {"train": b.STEP, "validation": b.EVAL, "test": b.EVAL, "predict": b.EVAL, "between": b.BETWEEN}

_lock = threading.RLock()
_probe: Probe | None = None
_follows_forks = False


class Probe:
    """What is installed in this process. Made by `install` and `arm`, never directly.

    It sleeps, with nothing hooked but `init_process_group`, in a process that is no rank; it wakes when the process
    turns out to be one. `problem` says in words why there is no board, and is empty where there is one.
    """

    def __init__(self, settings: Settings, run_dir: Path, attached_by: str) -> None:
        self.problem = ""
        self._settings = settings
        self._run_dir = Path(run_dir)
        self._attached_by = attached_by
        self._awake = self._removed = self._is_fork = self._hidden = False
        self._models: list[weakref.ref[Any]] = []  # a strong one would keep the memory of a model that is done with
        self._ticker: Ticker | None = None
        self._traces: FaultTraces | None = None
        self.context = context = Context()
        self.groups = GroupsHook(context, self.wake)
        self.dumps = DumpDefaults(settings.torch_dumps)
        self.groups.before_init = self._before_init
        self.loader = LoaderHook(context)
        self.forwards = ForwardHook(context)
        self.backward = BackwardHook(context)
        self.optimizer = OptimizerHook(context)
        self.collectives = CollectivesHook(context)
        self.lifecycle = LifecycleHook(context, self._failing)
        self._hooks = (
            self.lifecycle,
            self.groups,
            self.loader,
            self.forwards,
            self.backward,
            self.optimizer,
            self.collectives,
        )
        self._imports = ImportWatch(HOOKED, self._imported)
        self._waking = Waking(self._wake_guarded)

    @property
    def board(self) -> Path | None:
        """Where this rank's board lies; None while the probe sleeps, and where no board could be made."""
        return self.context.board.path

    # ------------------------------------------------------------ sleeping and waking

    def sleep(self) -> None:
        """Hook only what tells that this process is a rank."""
        self._imports.install()
        self.groups.install()
        if self._is_rank():
            self.lifecycle.install()  # it may fail before it has imported torch

    def wake(self) -> None:
        """This process is a rank: make its board and hook everything. Does nothing the second time."""
        with _lock:
            if self._awake or self._removed:
                return
            self._awake = True
            self._waking.end()
            self._open_board()
            self._imports.install()
            self._install_hooks()
            self._start_ticker()
            rank_rule.mark()

    def _open_board(self) -> None:
        """A board, or private memory without a reader where the disk is full: the hooks need not know."""
        context, ticks = self.context, identity.start_ticks()
        parts = (
            context.groups,
            context.steps,
            self.loader,
            self.forwards,
            self.backward,
            self.optimizer,
            self.collectives,
            self.groups,
            self.lifecycle,
        )
        for part in parts:
            part.reset()
        context.identity = identity.describe(os.environ, job=self._settings.job, attached_by=self._attached_by)
        name = b.board_name(os.getpid(), ticks)
        try:
            context.board.open(self._run_dir / name, context.identity, start_ticks=ticks)
            self.problem = ""
        except OSError as error:
            self.problem = f"this rank is not watched: no board at {self._run_dir / name} ({error.strerror or error})"
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._open_elsewhere(name, ticks)
            else:
                say(f"hangwatch: {self.problem}")
        context.steps.phase(b.START)

    def _open_elsewhere(self, name: str, ticks: int) -> None:
        """A board in the temporary folder, where the watchdog looks too: /dev/shm of a container is small."""
        from hangwatch_agent.board import directory  # a rank whose board has room need not pay for it

        try:
            folder = directory.twin(self._run_dir)
            directory.private(folder.parent)
            directory.private(folder)
            self.context.board.open(folder / name, self.context.identity, start_ticks=ticks)
            self.problem = ""
            say(f"hangwatch: {self._run_dir} has no room for a board; it lies in {folder}")
        except OSError as error:
            say(f"hangwatch: {self.problem}, nor in the temporary folder ({error.strerror or error})")

    def _install_hooks(self) -> None:
        self._hide_from_compiler()
        for hook in self._hooks:
            try:
                hook.install()
            except Exception as error:
                self.context.guard.swallow(error)
        for model in self._models:
            self.forwards.watch(model())
        try:
            self.groups.look()
        except Exception as error:
            self.context.guard.swallow(error)

    def _hide_from_compiler(self) -> None:
        try:
            self._hidden = self._hidden or hide_ours()
        except Exception as error:
            self.context.guard.swallow(error)

    def _before_init(self, backend: Any) -> None:
        self.dumps.install(self.board.parent if self.board is not None else None, backend)

    def _start_ticker(self) -> None:
        board = self.context.board.path
        if board is None:
            return
        traces = self._traces = FaultTraces(board.parent)
        try:
            traces.install()
        except (OSError, RuntimeError, ValueError) as error:
            self.context.board.problem(f"no traces by faulthandler: {error}")
        ptrace = PtracePermission(self._run_dir)
        ptrace.look()
        looks = (ptrace.look, traces.look, self.groups.look, self.loader.look_for_left, self.loader.count)
        lock = Polled(board.parent / f"lock-{os.getpid()}.txt", polled_path)
        file = Polled(board.parent / f"polled-{os.getpid()}.txt", polled_file)

        def asked() -> None:
            with contextlib.suppress(OSError, ValueError):  # a full disk
                traces.write()
            self.lifecycle.look_for_handled()
            self.lifecycle.look_for_lasting()
            lock.look()
            file.look()

        self._ticker = Ticker(self.context, self._settings.tick, looks, asked)
        self._ticker.start()

    def _imported(self, name: str) -> None:
        try:
            if self._removed:
                return
            if self._awake:
                self._install_hooks()
            elif not self._is_fork and name == "torch" and self._is_rank():
                self.groups.install()
                self._waking.begin()
            else:
                self.groups.install()
        except Exception as error:
            self.context.guard.swallow(error)

    def _wake_guarded(self) -> None:
        try:
            if not self._is_fork:
                self.wake()
        except Exception as error:
            self.context.guard.swallow(error)

    def ended(self) -> None:
        """The interpreter's exit callbacks are over: a process that was no rank after all needs no board."""
        self.lifecycle.finalizing()
        board = self.board
        if board is not None and self._attached_by == "run" and not self._was_rank():
            self.context.board.forget()
            if self._ticker is not None:
                self._ticker.stop()  # it may be writing an answer
            with contextlib.suppress(OSError):  # it may have become another user meanwhile
                board.unlink(missing_ok=True)
                board.with_name(f"collectives-{os.getpid()}.json").unlink(missing_ok=True)  # an answer, if it was asked
                if self._traces is not None:
                    self._traces.remove()

    def _was_rank(self) -> bool:
        """It had a process group, a loader, a step or an exception, or was in the midst of it."""
        words, context = self.context.board.words, self.context
        counted = (b.W_STEPS_WRITTEN, b.W_FORWARDS, b.W_TICKS, b.W_OPTIMIZER_STEPS, b.W_CALLS_WRITTEN)
        done = any(words[index] for index in counted) or bool(context.groups.slots or self.loader.slots)
        return done or self.groups.seen or self.lifecycle.recorded

    def _is_rank(self) -> bool:
        return rank_rule.looks_like_rank(os.environ, rank_rule.command(), os.getpid())

    def _failing(self) -> bool:
        """An exception is on its way out: whether it is a rank's, which gets a board for it if it has none yet."""
        if not self._awake and not self._is_fork and not self._removed and self._is_rank():
            self.wake()
        return self.context.board.real

    def forked(self) -> None:
        """This process is a forked child: it writes no board until it becomes a rank itself."""
        self.context.board.forget()
        self._awake, self._is_fork = False, True
        self._ticker = None
        if self._traces is not None:
            self._traces.forget()

    def look_too(self, look: Callable[[], None]) -> None:
        """Let the ticker do this at each tick as well."""
        if self._ticker is not None:
            self._ticker.look_too(look)

    # ------------------------------------------------------------ for the user

    def add(self, model: Any = None, loaders: Iterable[Any] = ()) -> None:
        """Watch a model (or several) and loaders too. What is neither is passed over."""
        models = model if isinstance(model, tuple | list) else (model,)
        try:
            self._models = [known for known in self._models if known() is not None]
            for each in models:
                if each is not None:
                    with contextlib.suppress(TypeError):  # what has no weak references is no module either
                        self._models.append(weakref.ref(each))
                    if self._awake:
                        self.forwards.watch(each)
            self.loader.declare(loaders)
        except Exception as error:
            self.context.guard.swallow(error)

    def tick(self) -> None:
        """A step of a loop of one's own begins."""
        try:
            self.context.steps.tick()
        except Exception as error:
            self.context.guard.swallow(error)

    def batch(self, number: int, epoch: int | None) -> None:
        """A batch of the training begins, as a framework counts."""
        try:
            self.context.steps.named(b.NONE if epoch is None else int(epoch), int(number))
        except Exception as error:
            self.context.guard.swallow(error)

    def stage(self, name: str) -> None:
        """What is done from now on: one of `STAGES`."""
        try:
            if name == "done":
                self.context.steps.released()
            else:
                self.context.steps.stage(STAGES[name])
        except Exception as error:
            self.context.guard.swallow(error)

    def remove(self) -> None:
        """Take out every hook and put back exactly what was there; the board says that it is detached. Idempotent."""
        global _probe
        with _lock:
            if self._removed:
                return
            self._removed = True
            if self._ticker is not None:
                self._ticker.stop()
            self._imports.remove()
            self._waking.end()
            for hook in reversed(self._hooks):
                hook.remove()
            self.dumps.remove()
            if self._traces is not None:
                self._traces.remove()
            self._models.clear()
            if self._awake:
                self.context.board.words[b.W_DETACHED] = 1
                rank_rule.unmark()
            self.context.board.forget()
            if _probe is self:
                _probe = None


def install(
    settings: Settings, run_dir: Path, model: Any = None, loaders: Iterable[Any] = (), *, attached_by: str = "attach"
) -> Probe:
    """Put a probe into this process, which is a rank; its board appears in `run_dir`. Safe to call twice, from threads.

    Where a probe is there already (`hangwatch run` has armed it), that one is woken, and given model and loaders.
    """
    global _probe
    with _lock:
        if _probe is None:
            _probe = _made(settings, run_dir, attached_by)
        probe = _probe
        probe.add(model, loaders)
        probe.wake()
        return probe


def arm(settings: Settings, run_dir: Path) -> Probe:
    """Put a sleeping probe into this process, which may or may not be a rank: what `hangwatch run` does everywhere."""
    global _probe
    with _lock:
        if _probe is None:
            _probe = _made(settings, run_dir, "run")
            _probe.sleep()
        return _probe


def current() -> Probe | None:
    """The probe of this process."""
    return _probe


def _made(settings: Settings, run_dir: Path, attached_by: str) -> Probe:
    global _follows_forks
    if not _follows_forks:
        _follows_forks = True
        os.register_at_fork(after_in_child=_forked)
    return Probe(settings, run_dir, attached_by)


def _forked() -> None:
    global _lock
    _lock = threading.RLock()  # a thread that is not here may have held it
    if _probe is not None:
        with contextlib.suppress(Exception):
            _probe.forked()
