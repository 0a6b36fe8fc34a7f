"""When a process that may be a rank gets its board: at its first loader, or when it has lived for a while.

Every short `python -c "import torch"` of a launch script inherits RANK, and a board takes 600 kB of shared memory. What
surely makes a rank (init_process_group, `attach`, an exception that ends it) wakes the probe at once, from elsewhere.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from hangwatch_agent.rank.hooks.untraced import replacing
from hangwatch_agent.rank.patch import Patches

LOADER_MODULE = "torch.utils.data.dataloader"
SETTLED_S = 2.0  # a process that has had torch for so long is no errand of a launch script


class Waking:
    """Calls `wake` once, after `after` seconds or before the first pass over a DataLoader."""

    def __init__(self, wake: Callable[[], None], after: float = SETTLED_S) -> None:
        self._wake = wake
        self._after = after
        self._patches = Patches()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Idempotent. torch has been imported."""
        if self._thread is not None:
            return
        loader = getattr(sys.modules.get(LOADER_MODULE), "DataLoader", None)
        if loader is not None:
            self._patches.put(loader, "__iter__", self._first_pass(loader, loader.__iter__))
        self._thread = threading.Thread(target=self._later, name="hangwatch-waking", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The probe is awake, or removed."""
        self._over.set()
        self._patches.remove()

    def _later(self) -> None:
        if not self._over.wait(self._after):
            self._wake()

    def _first_pass(self, loader_class: Any, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @replacing(original, "__iter__")
        def first_pass(loader: Any) -> Any:
            if self._over.is_set():
                return original(loader)
            self._wake()  # which takes this out and puts the hook in its place
            return loader_class.__iter__(loader) if self._over.is_set() else original(loader)

        return first_pass
