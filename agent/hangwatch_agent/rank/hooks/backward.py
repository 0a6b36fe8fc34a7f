"""Backwards that begin, by which call path, and errors that leave one, or a step of a pipeline.

On a device, threads of autograd's own issue what backward reduces, and no Python frame leads to them: the path to
backward stands in for theirs, where a rank has only one.
Of a backward whose gradients were not reduced the step tells that it was not left out. The ticker puts it on the board.
The program may catch the errors and go on with its gradients unreduced, or without what the next stage waits for.
torch.autograd calls its engine through one function of Python, which is wrapped. A step pays for one call more, and the
traceback of an error has no frame of ours. torch.compile does not inline it: it breaks its graph at `backward`, and has
an operation of its own for `torch.autograd.grad`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.call_site import CallPath, Place, path_of
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


FIRST = 32  # backwards whose whole path is looked at; later ones only where the line that calls is another
BACKWARD = "backward"  # torch.autograd's function; `grad`, which calls the engine too, reduces nothing


class OnePath:
    """The call path to backward, as long as all backwards of this rank come by one.

    With several, such as those of two optimizers, it is not known which of them issued a call. `code` and `at` tell
    where the last backward was called; -1 while the whole path of each is looked at.
    """

    def __init__(self, context: Context, engine: Place | None = None) -> None:
        self._context, self.engine = context, engine
        self.reset()

    def reset(self) -> None:
        """This process has a new board."""
        self.code: CodeType | None = None
        self.at = -1
        self._left = FIRST
        self._several = False
        self._path: CallPath | None = None

    def take(self, frame: FrameType, caller: FrameType) -> None:
        """`frame`, which `caller` has called, is about to call the engine."""
        try:
            if self._several or frame.f_code.co_name != BACKWARD or self.engine is None:
                return
            self._left -= 1
            if self._left <= 0:
                self.code, self.at = caller.f_code, caller.f_lasti
            path, words = path_of(frame), self._context.board.words
            if self._path is None:
                self._path = path
                words[b.W_BACKWARD_PATH] = self._context.call_paths.to_backward(frame, self.engine) + 1
            elif path != self._path:
                self._several, words[b.W_BACKWARD_PATH] = True, 0
                self._context.call_paths.several_to_backward()
        except Exception as error:
            self._context.guard.swallow(error)


class BackwardHook:
    """Tells the board in which step `loss.backward()` was called, and of errors.

    Those leave it, `torch.autograd.grad` or a pipeline's `step()`.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._path = OnePath(context)
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

    def reset(self) -> None:
        """This process has a new board."""
        self._path.reset()

    def _running(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        left_by, steps, path, frame_of = self._left_by, self._context.steps, self._path, sys._getframe
        code = getattr(original, "__code__", None)
        if name == ENGINE and code is not None:
            path.engine = (code.co_filename, code.co_firstlineno, name)
        method = getattr(getattr(sys.modules.get("torch"), "Tensor", None), BACKWARD, None)
        of_tensors = getattr(method, "__code__", None)

        @replacing(original, name)
        def running(*args: Any, **kwargs: Any) -> Any:
            steps.backward = steps.count
            try:  # a step pays for each of these lines, and for a call as much as for five
                caller: Any = frame_of(2)
                if caller.f_code is of_tensors:
                    caller = caller.f_back
                if caller.f_lasti != path.at or caller.f_code is not path.code:
                    path.take(frame_of(1), caller)
            except (ValueError, AttributeError):  # no Python code has called
                pass
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
