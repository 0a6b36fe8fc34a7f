"""A hook on a module of the user's, of which nothing is left in a saved, copied or scripted module."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hangwatch_agent.rank.hooks.untraced import replacing
from hangwatch_agent.rank.patch import Patches

HOOKS = ("_forward_pre_hooks", "_forward_hooks")  # of torch.nn.Module: dictionaries by the hook's id
SCRIPTING = "torch.jit._recursive"
_next_id = -1_000_000


class ModuleHook:
    """What is registered as a forward hook. torch.compile traces it as nothing."""

    def __init__(self, body: Callable[[Any], None], compiling: Callable[[], bool]) -> None:
        self._body = body
        self._compiling = compiling

    def __call__(self, module: Any, *_: Any) -> None:
        if not self._compiling():
            self._body(module)

    def __reduce__(self) -> tuple[Any, ...]:
        """For classes that pickle themselves past `AbsentFromCopies`: a callable that does nothing, without hangwatch.

        `contextlib.nullcontext().__exit__` takes whatever it is given, and gives None.
        """
        return getattr, (contextlib.nullcontext(), "__exit__")


class AbsentFromCopies:
    """Leaves our hooks out where a module is pickled or copied, and where torch.jit compiles it with its hooks."""

    def __init__(self) -> None:
        self._patches = Patches()
        self.installed = False

    def install(self, module_class: Any) -> None:
        self.installed = True
        self._patches.put(module_class, "__reduce_ex__", _reducing(module_class.__reduce_ex__))
        scripting: Any = sys.modules.get(SCRIPTING)
        if hasattr(scripting, "create_script_module"):
            self._patches.put(scripting, "create_script_module", _scripting(scripting.create_script_module))

    def remove(self) -> None:
        self._patches.remove()
        self.installed = False


def _reducing(original: Callable[..., Any]) -> Callable[..., Any]:
    @replacing(original, "__reduce_ex__")
    def __reduce_ex__(module: Any, protocol: Any) -> Any:  # noqa: N807 - the name that it has in a traceback
        reduced = original(module, protocol)
        if isinstance(reduced, tuple) and len(reduced) > 2 and isinstance(reduced[2], dict):
            return (*reduced[:2], without_ours(reduced[2]), *reduced[3:])
        return reduced

    return __reduce_ex__


def without_ours(state: dict[str, Any]) -> dict[str, Any]:
    """A module's state; a copy of it, and of its dictionaries of hooks, if there is one of ours in them."""
    for name in HOOKS:
        hooks = state.get(name)
        if hooks and any(type(each) is ModuleHook for each in hooks.values()):
            kept = type(hooks)((key, each) for key, each in hooks.items() if type(each) is not ModuleHook)
            state = state | {name: kept}
    return state


def _scripting(original: Callable[..., Any]) -> Callable[..., Any]:
    @replacing(original, "create_script_module")
    def create_script_module(module: Any, *args: Any, **kwargs: Any) -> Any:
        with taken_off(module):
            return original(module, *args, **kwargs)

    return create_script_module


@contextlib.contextmanager
def taken_off(module: Any) -> Iterator[None]:
    """Our hooks are off `module` and all modules in it for the time of the block."""
    taken = []
    for each in module.modules():
        for hooks in (getattr(each, name) for name in HOOKS):
            taken += [(hooks, key, hook) for key, hook in hooks.items() if type(hook) is ModuleHook]
    for hooks, key, _ in taken:
        hooks.pop(key, None)
    try:
        yield
    finally:
        for hooks, key, hook in taken:
            hooks[key] = hook


@contextlib.contextmanager
def private_ids(hooks_module: Any) -> Iterator[None]:
    """Hooks that are registered in the block take no id from those that torch counts up for the user's hooks."""
    global _next_id
    handle = hooks_module.RemovableHandle
    before, handle.next_id = handle.next_id, _next_id
    try:
        yield
    finally:
        _next_id, handle.next_id = handle.next_id, before
