"""How hooks stay out of the way of torch.compile: the same graphs and the same graph breaks as without them.

Its tracer, Dynamo, meets our functions in two ways. It *inlines* them where compiled code calls what we have replaced:
there each replacement asks `is_compiling`, which Dynamo folds to True, and calls the original only. And it is asked to
compile their *frames*, where uncompiled code below a compiled function runs into them: `unseen` tells it to leave those
frames alone, and to go on with what they call. Marking a function `_torchdynamo_disable` would break the graph instead.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar

from hangwatch_agent.rank.guard import Guard

F = TypeVar("F", bound=Callable[..., Any])
OURS = "hangwatch_agent"
# Rooms whose functions run in the training's threads; classes and functions of these are never compiled.
IN_RANK = ("board", "rank", "shared")


def is_compiling() -> Callable[[], bool]:
    """torch's own test for "torch.compile is tracing this", or one that says no where torch is too old to have it."""
    return getattr(sys.modules.get("torch.compiler"), "is_compiling", bool)


def is_traced() -> Callable[[], bool]:
    """The same for hooks that touch no tensor: they need not know of `torch.export`, which runs them as they are.

    torch's test for that costs a third, and a step asks four times.
    """
    return getattr(sys.modules.get("torch.compiler"), "is_dynamo_compiling", None) or is_compiling()


def replacing(original: Callable[..., Any], name: str) -> Callable[[F], F]:
    """Decorates what stands in the place of `original`, under `name`: torch.compile and pybind11 see through it.

    pybind11 knows a Python override that calls its C++ base by the name of the *code* which calls, and by its first
    argument; a replacement with another name would be called again, for ever. py-spy shows the qualified name.
    """

    def decorate(replacement: F) -> F:
        assert isinstance(replacement, FunctionType)
        replacement.__code__ = replacement.__code__.replace(co_name=name, co_qualname=name)
        functools.update_wrapper(replacement, original)
        unseen(replacement.__code__, with_callees=False)
        return replacement

    return decorate


def followed(original: Callable[..., Any], name: str, note: Callable[..., None], guard: Guard) -> Callable[..., Any]:
    """What stands in the place of `original`: it calls it, then `note` with what it gave and was given."""
    compiling = is_compiling()

    @replacing(original, name)
    def calling(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        if compiling():
            return found
        try:
            note(found, *args, **kwargs)
        except Exception as error:
            guard.swallow(error)
        return found

    return calling


def _frame_evaluator() -> Any:
    return getattr(getattr(sys.modules.get("torch._C"), "_dynamo", None), "eval_frame", None)


def unseen(code: CodeType, *, with_callees: bool) -> None:
    """Have Dynamo leave frames of `code` uncompiled, and those of the functions that it calls too if asked."""
    dynamo = _frame_evaluator()
    if hasattr(dynamo, "set_code_exec_strategy"):
        action = dynamo._FrameAction
        callees = action.SKIP if with_callees else action.DEFAULT
        dynamo.set_code_exec_strategy(code, dynamo._FrameExecStrategy(action.SKIP, callees))
    elif hasattr(dynamo, "skip_code"):  # torch 2.6 and before
        dynamo.skip_code(code)


def hide_ours() -> bool:
    """Have Dynamo leave alone whatever of ours runs in the training's threads. Before anything is replaced.

    Returns whether that is done: there must be a torch.
    """
    if _frame_evaluator() is None:
        return False
    prefixes = tuple(f"{OURS}.{name}" for name in IN_RANK)
    for name, module in list(sys.modules.items()):
        if name.startswith(prefixes):
            for code in codes_of(module):
                unseen(code, with_callees=True)
    return True


def codes_of(module: ModuleType) -> Iterator[CodeType]:
    """The code of all functions and methods of a module, nested ones included."""
    owners = [each for each in vars(module).values() if isinstance(each, type) and each.__module__ == module.__name__]
    for function in [*vars(module).values(), *(each for owner in owners for each in vars(owner).values())]:
        function = getattr(function, "fget", None) or getattr(function, "__func__", function)
        # By its file: a decorator such as contextlib's gives its own code, common to all that it decorates, our names.
        if isinstance(function, FunctionType) and function.__code__.co_filename == module.__file__:
            yield from _nested(function.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
