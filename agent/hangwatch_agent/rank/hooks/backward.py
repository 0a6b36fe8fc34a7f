"""Backwards that begin, and errors that leave one, or a step of a pipeline.

Of a backward whose gradients were not reduced the step tells that it was not left out. The ticker puts it on the board.
The program may catch the errors and go on with its gradients unreduced, or without what the next stage waits for.
torch.autograd calls its engine through one function of Python, which is wrapped. A step pays for one call more, and the
traceback of an error has no frame of ours. torch.compile does not inline it: it breaks its graph at `backward`, and has
an operation of its own for `torch.autograd.grad`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.hooks.untraced import replacing
from hangwatch_agent.rank.patch import Patches

AUTOGRAD = "torch.autograd"
ENGINE = "_engine_run_backward"  # of torch 2.1 and later; before, nothing of Python stands between
SCHEDULES = "torch.distributed.pipelining.schedules"
CALLS = (  # module, class or "", function
    (AUTOGRAD, "", ENGINE),
    (SCHEDULES, "PipelineScheduleSingle", "step"),
    (SCHEDULES, "PipelineScheduleMulti", "step"),
)


class BackwardHook:
    """Tells the board in which step `loss.backward()` was called, and of errors.

    Those leave it, `torch.autograd.grad` or a pipeline's `step()`.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._patches = Patches()
        self._installed: set[tuple[str, str, str]] = set()

    def install(self) -> None:
        for module, owner, name in CALLS:
            found: Any = sys.modules.get(module)
            found = getattr(found, owner, None) if owner else found
            if (module, owner, name) not in self._installed and hasattr(found, name):
                self._installed.add((module, owner, name))
                self._patches.put(found, name, self._running(getattr(found, name), name))

    def remove(self) -> None:
        self._patches.remove()
        self._installed.clear()

    def _running(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        left_by, steps = self._left_by, self._context.steps

        @replacing(original, name)
        def running(*args: Any, **kwargs: Any) -> Any:
            steps.backward = steps.count
            try:
                return original(*args, **kwargs)
            except Exception as error:
                left_by(error)
                raise

        return running

    def _left_by(self, error: Exception) -> None:
        """Record the error with the user's lines, and take our frame, its first one, out of its traceback."""
        try:
            self._context.met(error)
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
        except Exception as failure:
            self._context.guard.swallow(failure)
