"""Forwards: of DistributedDataParallel by class, of other models that were handed to `attach` by torch's module hooks.

DDP's `_pre_forward` and `_post_forward` are wrapped and not its `forward`: so no frame of ours stands in the traceback
of an error in the user's model, and torch.compile still compiles what is inside.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from hangwatch_agent import board as b
from hangwatch_agent.hooks.context import Context
from hangwatch_agent.hooks.module_hook import AbsentFromCopies, ModuleHook, private_ids
from hangwatch_agent.hooks.untraced import is_compiling, replacing
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
        self._absent = AbsentFromCopies()
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
        self._absent.remove()

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
        with private_ids(sys.modules["torch.utils.hooks"]):
            self._handles[id(model)] = [
                model.register_forward_pre_hook(ModuleHook(self.enter, compiling)),
                model.register_forward_hook(ModuleHook(self.leave, compiling)),
            ]
        if not self._absent.installed:
            self._absent.install(modules.Module)

    def _before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        enter, compiling = self.enter, is_compiling()

        @replacing(original, "_pre_forward")
        def _pre_forward(module: Any, *inputs: Any, **kwargs: Any) -> Any:
            if not compiling():
                enter(module)
            return original(module, *inputs, **kwargs)

        return _pre_forward

    def _after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        leave, compiling = self.leave, is_compiling()

        @replacing(original, "_post_forward")
        def _post_forward(module: Any, output: Any) -> Any:
            output = original(module, output)
            if not compiling():
                leave(module)
            return output

        return _post_forward

    def enter(self, module: Any) -> None:
        """A forward begins."""
        try:
            words, steps = self._board.words, self._steps
            self._forwards = words[b.W_FORWARDS] = self._forwards + 1
            words[b.W_PHASE_AT] = now = time.monotonic_ns()
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
            words[b.W_PHASE_AT] = now = time.monotonic_ns()
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
