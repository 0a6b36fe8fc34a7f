"""Forwards: of DistributedDataParallel by class, of other models that were handed to `attach` by torch's module hooks.

DDP's `_pre_forward` and `_post_forward` are wrapped and not its `forward`: so no frame of ours stands in the traceback
of an error in the user's model, and torch.compile still compiles what is inside.
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from hangwatch_agent import board as b
from hangwatch_agent.hooks.context import Context, is_compiling
from hangwatch_agent.patch import Patches
from hangwatch_agent.steps import BY_FORWARD

DDP_MODULE = "torch.nn.parallel.distributed"


class ForwardHook:
    """Phases forward, backward and eval; the count of forwards; steps where there is no loader."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._board, self._steps = context.board, context.steps
        self._grad = False
        self._patches = Patches()
        self._handles: dict[int, list[Any]] = {}
        self._installed = False
        self.reset()
        self._grad_enabled: Callable[[], bool] = bool

    def reset(self) -> None:
        """Count from nothing: this process has a new board."""
        self._forwards = self._timed_step = 0
        self._stepping = 0  # id of the model whose training forwards are the steps, where there is no loader

    def install(self) -> None:
        module = sys.modules.get(DDP_MODULE)
        if self._installed or module is None:
            return
        self._installed = True
        self._grad_enabled = sys.modules["torch"].is_grad_enabled
        ddp = module.DistributedDataParallel
        if not (hasattr(ddp, "_pre_forward") and hasattr(ddp, "_post_forward")):
            self._context.board.problem("this torch has another DistributedDataParallel: its forwards are not seen")
            return
        self._patches.put(ddp, "_pre_forward", self._before(ddp._pre_forward))
        self._patches.put(ddp, "_post_forward", self._after(ddp._post_forward))

    def remove(self) -> None:
        self._patches.remove()
        self._installed = False
        for handles in self._handles.values():
            for handle in handles:
                handle.remove()
        self._handles.clear()

    def watch(self, model: Any) -> None:
        """See the forwards of `model` too, unless its class is hooked anyway. What is no module is passed over."""
        modules = sys.modules.get("torch.nn.modules.module")
        if modules is None or not isinstance(model, modules.Module) or id(model) in self._handles:
            return
        ddp = getattr(sys.modules.get(DDP_MODULE), "DistributedDataParallel", ())
        if isinstance(getattr(model, "_orig_mod", model), ddp):  # _orig_mod: what torch.compile has wrapped
            return
        self._grad_enabled = sys.modules["torch"].is_grad_enabled
        compiling = is_compiling()
        self._handles[id(model)] = [
            model.register_forward_pre_hook(ModuleHook(self.enter, compiling)),
            model.register_forward_hook(ModuleHook(self.leave, compiling)),
        ]

    def _before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        enter = self.enter

        @functools.wraps(original)
        def _pre_forward(module: Any, *inputs: Any, **kwargs: Any) -> Any:
            enter(module)
            return original(module, *inputs, **kwargs)

        return _untraced(_pre_forward)

    def _after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        leave = self.leave

        @functools.wraps(original)
        def _post_forward(module: Any, output: Any) -> Any:
            output = original(module, output)
            leave(module)
            return output

        return _untraced(_post_forward)

    def enter(self, module: Any) -> None:
        """A forward begins."""
        try:
            words, steps = self._board.words, self._steps
            self._forwards = words[b.W_FORWARDS] = self._forwards + 1
            words[b.W_PHASE_AT] = now = time.time_ns()
            if grad := self._grad_enabled():
                words[b.W_PHASE] = b.FORWARD
                if steps.source <= BY_FORWARD:
                    self._stepping = self._stepping or id(module)
                    if self._stepping == id(module):
                        steps.offer(BY_FORWARD, now)
            else:
                words[b.W_PHASE] = b.EVAL
            if self._context.unconfirmed:
                self._settle(module, grad)
            self._grad = grad
        except Exception as error:
            self._context.guard.swallow(error)

    def leave(self, module: Any) -> None:
        """A forward has returned."""
        try:
            words, steps = self._board.words, self._steps
            words[b.W_PHASE_AT] = now = time.time_ns()
            if self._grad:
                words[b.W_PHASE] = b.BACKWARD
                if self._timed_step != steps.count and steps.began_at:
                    self._timed_step = steps.count
                    steps.before_sync_ns += now - steps.began_at
        except Exception as error:
            self._context.guard.swallow(error)

    def _settle(self, module: Any, grad: bool) -> None:
        # A model in eval mode with gradients on may be validation without no_grad, or training with frozen layers.
        if not grad:
            self._context.evaluation_seen()
        elif module.training:
            self._context.training_seen()


class ModuleHook:
    """A hook that stands on the user's own module, and must not be in the way of what is done with the module.

    torch.compile traces it as nothing. A pickled or copied module gets a hook that does nothing and does not need
    hangwatch: a logger's method, whose level is too high.
    """

    def __init__(self, body: Callable[[Any], None], compiling: Callable[[], bool]) -> None:
        self._body = body
        self._compiling = compiling

    def __call__(self, module: Any, *_: Any) -> None:
        if not self._compiling():
            self._body(module)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (logging.getLogger("hangwatch.detached"), "debug")


def _untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch.compile calls as it is, instead of looking into it."""
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function
