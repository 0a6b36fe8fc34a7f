"""Optimizer steps, through torch's own public hook for all optimizers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.hooks.module_hook import private_ids
from hangwatch_agent.rank.hooks.pacer import Pacer
from hangwatch_agent.rank.hooks.untraced import is_traced
from hangwatch_agent.rank.steps import BY_OPTIMIZER


class OptimizerHook:
    """Counts the steps of all optimizers; without loader, ticks and forwards the first one's end the rank's steps."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handle: Any = None
        self.reset()

    def reset(self) -> None:
        """Count from nothing: this process has a new board."""
        self._steps = 0
        self._pacer = Pacer()  # which optimizer's steps are the rank's, where nothing better is

    def install(self) -> None:
        module = sys.modules.get("torch.optim.optimizer")
        if self._handle is None and module is not None:
            register = getattr(module, "register_optimizer_step_post_hook", None)
            if register is None:
                self._context.board.problem("this torch has no global optimizer hook: optimizer steps are not seen")
            else:
                with private_ids(sys.modules["torch.utils.hooks"]):
                    self._handle = register(self._stepping_hook())

    def remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _stepping_hook(self) -> Callable[[Any, Any, Any], None]:
        context, board, steps, compiling = self._context, self._context.board, self._context.steps, is_traced()
        time_ns, counter, phase, phase_at = time.monotonic_ns, b.W_OPTIMIZER_STEPS, b.W_PHASE, b.W_PHASE_AT
        optimized = b.OPTIMIZER

        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            if compiling():
                return  # traced as nothing: torch.compile(optimizer.step, fullgraph=True) must go on working
            try:
                words = board.words
                self._steps = words[counter] = self._steps + 1
                words[phase_at] = now = time_ns()
                words[phase] = optimized
                if steps.source <= BY_OPTIMIZER:
                    self._ended(optimizer, now)
                if context.unconfirmed:
                    context.training_seen()
            except Exception as error:
                context.guard.swallow(error)

        return stepped

    def _ended(self, optimizer: Any, now: int) -> None:
        if self._pacer.paces(optimizer):
            self._context.steps.ended(now)
