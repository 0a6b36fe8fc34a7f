"""Says when a module has been imported, without importing it. At interpreter start this must cost next to nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class ImportWatch:
    """Calls `imported(name)` after each of `names` has been imported, from the import's own thread. Removable.

    A finder that finds nothing itself: it lets the others find the module, and puts a call behind its execution.
    """

    def __init__(self, names: Iterable[str], imported: Callable[[str], None]) -> None:
        self._waiting = set(names)
        self._imported = imported

    def install(self) -> None:
        """Wait for those names that are not imported yet. Idempotent."""
        self._waiting = {name for name in self._waiting if name not in sys.modules}
        if self._waiting and self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Part of the import system's protocol."""
        if name not in self._waiting:
            return None
        self._waiting.discard(name)
        spec = next((found for finder in sys.meta_path if (found := _ask(finder, self, name, path, target))), None)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            self._follow(spec.loader, name)
        if not self._waiting:
            self.remove()
        return spec

    def _follow(self, loader: object, name: str) -> None:
        execute = loader.exec_module  # type: ignore[attr-defined]

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):
                del loader.exec_module  # type: ignore[attr-defined]
            execute(module)
            self._imported(name)

        with contextlib.suppress(AttributeError):  # a loader that takes no attributes: its module is not heard of
            loader.exec_module = exec_module  # type: ignore[attr-defined]


def _ask(
    finder: object, ourselves: ImportWatch, name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    return None if finder is ourselves or find is None else find(name, path, target)
