"""Optimizer steps, through torch's own public hook for all optimizers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from hangwatch_agent import board as b
from hangwatch_agent.hooks.context import Context
from hangwatch_agent.hooks.module_hook import private_ids
from hangwatch_agent.hooks.untraced import is_compiling
from hangwatch_agent.steps import BY_OPTIMIZER


class OptimizerHook:
    """Counts the steps of all optimizers; without loader, ticks and forwards the first one's are the rank's steps."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handle: Any = None
        self._compiling: Callable[[], bool] = bool
        self.reset()

    def reset(self) -> None:
        """Count from nothing: this process has a new board."""
        self._steps = 0
        self._stepping = 0  # id of the optimizer whose steps are the rank's, where nothing better is

    def install(self) -> None:
        module = sys.modules.get("torch.optim.optimizer")
        if self._handle is None and module is not None:
            register = getattr(module, "register_optimizer_step_post_hook", None)
            if register is None:
                self._context.board.problem("this torch has no global optimizer hook: optimizer steps are not seen")
            else:
                self._compiling = is_compiling()
                with private_ids(sys.modules["torch.utils.hooks"]):
                    self._handle = register(self._stepped)

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._compiling():
            return  # traced as nothing: torch.compile(optimizer.step, fullgraph=True) must go on working
        try:
            context = self._context
            words = context.board.words
            self._steps = words[b.W_OPTIMIZER_STEPS] = self._steps + 1
            words[b.W_PHASE_AT] = now = time.monotonic_ns()
            words[b.W_PHASE] = b.OPTIMIZER
            if context.steps.source <= BY_OPTIMIZER:
                self._stepping = self._stepping or id(optimizer)
                if self._stepping == id(optimizer):
                    context.steps.offer(BY_OPTIMIZER, now)
            if context.unconfirmed:
                context.training_seen()
        except Exception as error:
            self._context.guard.swallow(error)
