"""Forwards: of DistributedDataParallel by class, of other models that were handed to `attach` by torch's module hooks.

DDP's `_pre_forward` is wrapped and not its `forward`, and the end of the context in which DDP calls the user's model:
so no frame of ours stands in the traceback of an error in that model, which is seen as it leaves, and torch.compile
still compiles what is inside.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.hooks.module_hook import AbsentFromCopies, ModuleHook, private_ids
from hangwatch_agent.rank.hooks.pacer import Pacer
from hangwatch_agent.rank.hooks.plan import of_model
from hangwatch_agent.rank.hooks.untraced import is_traced, replacing
from hangwatch_agent.rank.patch import Patches
from hangwatch_agent.rank.steps import BY_FORWARD

DDP_MODULE = "torch.nn.parallel.distributed"
UNREDUCED = "Expected to have finished reduction"  # of the last iteration; a program may catch it and go on


def _nothing(*_: Any) -> None:
    return None


def _is_context(function: Any) -> bool:
    """Whether `contextlib.contextmanager` has made it, and nobody has wrapped that."""
    return getattr(function, "__code__", None) is contextlib.contextmanager(lambda: iter(())).__code__


class ForwardHook:
    """Phases forward, backward and eval; the count of forwards; steps where there is no loader."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._board, self._steps = context.board, context.steps
        self._grad = False
        self._patches = Patches()
        self._watched: list[tuple[weakref.ref[Any], list[Any]]] = []  # models that live, and our handles on them
        self._installed = False
        self._absent = AbsentFromCopies()
        self.reset()
        self._grad_enabled: Callable[[], bool] = bool

    def reset(self) -> None:
        """Count from nothing: this process has a new board."""
        self._forwards = self._timed_step = 0
        self._planned = False
        self._pacer = Pacer()  # which model's training forwards are the steps, where there is no loader

    def install(self) -> None:
        module = sys.modules.get(DDP_MODULE)
        if self._installed or module is None:
            return
        self._installed = True
        self._grad_enabled = sys.modules["torch"].is_grad_enabled
        ddp = module.DistributedDataParallel
        if not hasattr(ddp, "_pre_forward") or not _is_context(getattr(ddp, "_inside_ddp_forward", None)):
            self._context.board.problem("this torch has another DistributedDataParallel: its forwards are not seen")
            return
        if (making := getattr(ddp, "_ddp_init_helper", None)) is not None:
            self._patches.put(ddp, "_ddp_init_helper", replacing(making, "_ddp_init_helper")(self._making(making)))
        entering = self._entering(ddp._pre_forward)
        self._patches.put(ddp, "_pre_forward", replacing(ddp._pre_forward, "_pre_forward")(entering))
        self._patches.put(ddp, "_inside_ddp_forward", self._around(ddp._inside_ddp_forward))

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What is done as a model is wrapped: that a program has several is known from nothing else."""
        models = self._context.models

        def make(module: Any, *args: Any, **kwargs: Any) -> Any:
            models.append(weakref.ref(module))
            return original(module, *args, **kwargs)

        return make

    def remove(self) -> None:
        self._patches.remove()
        self._installed = False
        for _, handles in self._watched:
            for handle in handles:
                handle.remove()
        self._watched.clear()
        self._absent.remove()

    def watch(self, model: Any) -> None:
        """See the forwards of `model` too, unless its class is hooked anyway. What is no module is passed over."""
        modules = sys.modules.get("torch.nn.modules.module")
        self._watched = [each for each in self._watched if each[0]() is not None]
        if modules is None or not isinstance(model, modules.Module) or any(ref() is model for ref, _ in self._watched):
            return
        ddp = getattr(sys.modules.get(DDP_MODULE), "DistributedDataParallel", ())
        if isinstance(getattr(model, "_orig_mod", model), ddp):  # _orig_mod: what torch.compile has wrapped
            return
        self._grad_enabled = sys.modules["torch"].is_grad_enabled
        compiling = is_traced()
        with private_ids(sys.modules["torch.utils.hooks"]):
            handles = [
                model.register_forward_pre_hook(ModuleHook(self._entering(_nothing), compiling)),
                model.register_forward_hook(ModuleHook(self._leaving(), compiling)),
            ]
        self._watched.append((weakref.ref(model), handles))
        if not self._absent.installed:
            self._absent.install(modules.Module)

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The function that contextlib has made of torch's, but with a context whose end is ours as well.

        One call of Python more, where a wrapper takes four, and nothing that torch.compile would see.
        """
        manager = contextlib._GeneratorContextManager
        inside = type("_Inside", (manager,), {"__exit__": self._leaving(manager.__exit__)})
        names = vars(contextlib) | {manager.__name__: inside}
        around = FunctionType(original.__code__, names, original.__name__, None, original.__closure__)
        return functools.update_wrapper(around, original)

    def _after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The end of the forwards that DDP makes outside of its context, as it reduces nothing in C++ itself.

        Put there only for a job that has such a model: every other step would pay for it.
        """
        leave, compiling = self._leaving(), is_traced()

        @replacing(original, "_post_forward")
        def _post_forward(module: Any, output: Any) -> Any:
            output = original(module, output)
            if not compiling() and (module._delay_all_reduce_all_params or module._use_python_reducer):
                leave(module)
            return output

        return _post_forward

    def _met(self, error: RuntimeError) -> None:
        try:
            if UNREDUCED in str(error):
                self._context.met(error)
        except Exception as failure:
            self._context.guard.swallow(failure)

    def _left_by(self, error: BaseException) -> None:
        """An error of the user's model leaves its forward: the program may catch it, and leave out its backward."""
        if isinstance(error, Exception):
            self._context.met(error)

    def _entering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What is done as a forward begins, then `original`: DDP's own beginning, or nothing, for a hook.

        One body for both, for each call costs as much as five lines of it. Its constants are at hand: a step finds
        caches that are cold.
        """
        board, steps, context, grad_enabled = self._board, self._steps, self._context, self._grad_enabled
        time_ns, forwards, phase, phase_at = time.monotonic_ns, b.W_FORWARDS, b.W_PHASE, b.W_PHASE_AT
        training, evaluation, compiling = b.FORWARD, b.EVAL, is_traced()
        of_ddp = original is not _nothing

        def enter(module: Any, *inputs: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(module, *inputs, **kwargs)
            try:
                words = board.words
                self._forwards = words[forwards] = self._forwards + 1
                words[phase_at] = time_ns()
                self._grad = grad = grad_enabled()
                if grad:
                    words[phase] = training
                    if steps.source <= BY_FORWARD:
                        self._offer(module, words[phase_at])
                    if of_ddp and not module.require_backward_grad_sync:  # below its no_sync()
                        steps.accumulates()
                else:
                    words[phase] = evaluation
                if context.unconfirmed:
                    self._settle(module, grad)
                if not self._planned and of_ddp:
                    self._plan(module)
            except Exception as error:
                context.guard.swallow(error)
            try:
                if not kwargs and len(inputs) == 1:  # to pass `*` and `**` on costs as much as all above
                    return original(module, inputs[0])
                return original(module, *inputs, **kwargs)
            except RuntimeError as error:
                self._met(error)
                raise

        return enter

    def _leaving(self, ended: Callable[..., Any] = _nothing) -> Callable[..., Any]:
        """What is done when a forward has returned or raised: the `__exit__` of a context that `ended` ends, or a hook.

        Its body is one for both: each call costs as much as five lines of it.
        """
        board, steps, guard = self._board, self._steps, self._context.guard
        time_ns, phase, phase_at, backward = time.monotonic_ns, b.W_PHASE, b.W_PHASE_AT, b.BACKWARD

        def leave(inside: Any, kind: Any = None, error: BaseException | None = None, traceback: Any = None) -> Any:
            try:
                words = board.words
                words[phase_at] = now = time_ns()
                if error is not None:
                    self._left_by(error)
                elif self._grad:
                    words[phase] = backward
                    if self._timed_step != steps.count and steps.began_at:
                        self._timed_step = steps.count
                        steps.before_sync_ns += now - steps.began_at
            except Exception as failure:
                guard.swallow(failure)
            return ended(inside, kind, error, traceback)

        return leave

    def _offer(self, module: Any, now: int) -> None:
        if self._pacer.paces(module):
            self._steps.offer(BY_FORWARD, now)

    def _plan(self, module: Any) -> None:
        """Once, at the first forward: before the first step can wait for another rank."""
        self._planned = True
        if getattr(module, "_delay_all_reduce_all_params", False) or getattr(module, "_use_python_reducer", False):
            ddp = sys.modules[DDP_MODULE].DistributedDataParallel
            self._patches.put(ddp, "_post_forward", self._after(ddp._post_forward))
        self._context.identity["plan"] = of_model(module)
        self._board.write("identity", self._context.identity)

    def _settle(self, module: Any, grad: bool) -> None:
        # A model in eval mode with gradients on may be validation without no_grad, or training with frozen layers.
        if not grad:
            self._context.evaluation_seen()
        elif module.training:
            self._context.training_seen()
