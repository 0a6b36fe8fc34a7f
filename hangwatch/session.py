"""What `hangwatch.attach` does: hooks in this rank, a watchdog beside the ranks of this node, and a way back."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hangwatch.settings import Settings

if TYPE_CHECKING:
    from hangwatch_agent.rank.probe import Probe

STAGES = ("train", "validation", "test", "predict", "between", "done")

_lock = threading.RLock()
_session: Session | None = None


class Session:
    """One rank under watch. `with hangwatch.attach(model, loader):` detaches at the end of the block.

    `folder` is where the board lies, or None where none could be made; `degraded` says what could not be done, in
    words, and is empty where all is well.
    """

    def __init__(self, probe: Probe | None, folder: Path | None, degraded: Iterable[str] = ()) -> None:
        self.folder = folder
        self.degraded = tuple(degraded)
        self._probe = probe

    def add(self, model: Any, loaders: Iterable[Any]) -> None:
        """Watch another model and more loaders too."""
        if self._probe is not None:
            self._probe.add(model, tuple(loaders))

    def tick(self) -> None:
        """A step of a loop of one's own has been made."""
        if self._probe is not None:
            self._probe.tick()

    def batch(self, number: int, *, epoch: int | None = None, stage: str = "train") -> None:
        """See `hangwatch.batch`."""
        if self._probe is None or not _is_stage(stage):
            return
        if stage == "train":
            self._probe.batch(number, epoch)
        else:
            self._probe.stage(stage)

    def stage(self, name: str) -> None:
        """See `hangwatch.stage`."""
        if self._probe is not None and _is_stage(name):
            self._probe.stage(name)

    def detach(self) -> None:
        """Put back exactly what was there. Does nothing the second time."""
        global _session
        with _lock:
            if self._probe is not None:
                self._probe.remove()
                self._probe = None
            if _session is self:
                _session = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.detach()


def attach(model: Any = None, *loaders: Any, **arguments: Any) -> Session:
    """See `hangwatch.attach`."""
    global _session
    settings = Settings.load(**arguments)
    model, loaders = _sorted_out(model, loaders)
    with _lock:
        if _session is None:
            _session = _started(settings) if settings.enabled else Session(None, None, ("HANGWATCH_ENABLED is 0",))
        _session.add(model, loaders)
        return _session


def detach() -> None:
    """See `hangwatch.detach`."""
    if _session is not None:
        _session.detach()


def tick() -> None:
    """See `hangwatch.tick`."""
    if _session is not None:
        _session.tick()


def batch(number: int, *, epoch: int | None = None, stage: str = "train") -> None:
    """See `hangwatch.batch`."""
    if _session is not None:
        _session.batch(number, epoch=epoch, stage=stage)


def stage(name: str) -> None:
    """See `hangwatch.stage`."""
    if _session is not None:
        _session.stage(name)


def _is_stage(name: str) -> bool:
    """Whether it is one. What is none costs a warning, not the training: it may stand in a line that runs late."""
    if name in STAGES:
        return True
    warnings.warn(f"hangwatch: {name!r} is no stage; one of {', '.join(STAGES)} is", RuntimeWarning, stacklevel=4)
    return False


def _started(settings: Settings) -> Session:
    """A session with everything that can be had here. The training goes on, whatever is missing."""
    from hangwatch_agent.board import directory
    from hangwatch_agent.rank import probe
    from hangwatch_agent.watchdog.start import watch_this_rank

    try:
        folder = directory.job_folder(settings)
        installed = probe.install(settings, folder)
    except Exception as error:  # never harm the job: whatever it is, it is named, and the training goes on
        return Session(None, None, (_degraded(f"not watching this rank: {error}"),))
    trouble = watch_this_rank(folder, settings)
    if not in_run() and not trouble and settings.watchdog == "process":
        from hangwatch_agent.watchdog.keeper import Keeper

        installed.look_too(Keeper(folder, settings).look)
    return Session(installed, folder, (_degraded(trouble),) if trouble else ())


def _degraded(trouble: str) -> str:
    from hangwatch_agent.shared.saying import say

    say(f"hangwatch: {trouble}")
    return trouble


def _sorted_out(model: Any, loaders: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Model and loaders, whichever way round they were given; what is neither is named and left out."""
    models, iterables = [], []
    for thing in (model, *loaders):
        if thing is None:
            continue
        if callable(getattr(thing, "parameters", None)):
            models.append(thing)
        elif hasattr(thing, "__iter__"):
            iterables.append(thing)
        else:
            warnings.warn(
                f"hangwatch.attach: {type(thing).__name__!r} is neither a model (no parameters()) nor a loader "
                "(not iterable); it is left out, and the training goes on",
                RuntimeWarning,
                stacklevel=4,
            )
    return (models[0] if len(models) == 1 else tuple(models) or None), tuple(iterables)


def in_run() -> bool:
    """Whether `hangwatch run` is above this process, and watches already."""
    return bool(os.environ.get("HANGWATCH_WATCHDOG_PID"))
