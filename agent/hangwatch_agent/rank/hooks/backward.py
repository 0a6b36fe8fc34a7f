"""Errors that leave a backward: the program may catch them and go on with its gradients unreduced.

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


class BackwardHook:
    """Tells the board of errors that leave `loss.backward()` or `torch.autograd.grad`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._patches = Patches()
        self._installed = False

    def install(self) -> None:
        module = sys.modules.get(AUTOGRAD)
        if self._installed or not hasattr(module, ENGINE):
            return
        self._installed = True
        self._patches.put(module, ENGINE, self._running(getattr(module, ENGINE)))

    def remove(self) -> None:
        self._patches.remove()
        self._installed = False

    def _running(self, original: Callable[..., Any]) -> Callable[..., Any]:
        left_by = self._left_by

        @replacing(original, ENGINE)
        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            except Exception as error:
                left_by(error)
                raise

        return _engine_run_backward

    def _left_by(self, error: Exception) -> None:
        """Record the error with the user's lines, and take our frame, its first one, out of its traceback."""
        try:
            self._context.met(error)
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
        except Exception as failure:
            self._context.guard.swallow(failure)
