"""hangwatch says which rank, which line and why, when distributed PyTorch training hangs.

    import hangwatch

    hangwatch.attach(model, loader)

or, with no change to the script, `hangwatch run -- torchrun ... train.py`. Frameworks have a way in of their own:
`hangwatch.lightning.Watch()`, `hangwatch.transformers.Watch()` and `hangwatch.ray.watched(train_loop)`. Importing this
package costs nothing: everything else is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hangwatch.version import __version__

if TYPE_CHECKING:
    from types import ModuleType

    from hangwatch.session import Session

__all__ = ["__version__", "attach", "batch", "detach", "stage", "tick"]

_FRAMEWORKS = ("lightning", "ray", "transformers")


def __getattr__(name: str) -> ModuleType:
    """`hangwatch.lightning` and the like: imported, with the framework, by those only that name them."""
    if name not in _FRAMEWORKS:
        raise AttributeError(f"module 'hangwatch' has no attribute {name!r}")
    import importlib

    return importlib.import_module(f"hangwatch.{name}")


def attach(model: Any = None, *loaders: Any, **settings: Any) -> Session:
    """Watch this rank, and return the session, which is a context manager that detaches at its end.

    Args:
        model: the (wrapped) model, or None. What DistributedDataParallel wraps is seen without being named.
        loaders: iterables that give batches. `torch.utils.data.DataLoader`s are seen without being named.
        settings: any field of `hangwatch.settings.Settings`, e.g. `stall_after=60`.

    Safe to call twice: the second call adds its model and loaders to the same session. An object that is neither
    model nor loader is named in a RuntimeWarning and left alone; the training goes on.

    Raises:
        SettingsError: a setting that does not exist, or a value that cannot be used.
    """
    from hangwatch import session

    return session.attach(model, *loaders, **settings)


def detach() -> None:
    """Take out every hook of `attach` and put back exactly what was there. Does nothing when not attached."""
    from hangwatch import session

    session.detach()


def tick() -> None:
    """Say that a step of a loop of your own begins: call it first in the loop. Does nothing when not attached.

    What the rank does up to the next call is of this step; steps count from 0. At the end of a loop whose steps an
    optimizer ends it does as well.
    """
    from hangwatch import session

    session.tick()


def batch(number: int, *, epoch: int | None = None, stage: str = "train") -> None:
    """Say that a batch begins, counted from 0 as your framework counts. Does nothing when not attached.

    The steps of the training are these batches from then on, whatever a loader draws ahead. Of another stage than
    "train" the stage alone is taken: its batches are seen at the loader.

    Args:
        number: the batch within the epoch.
        epoch: the epoch, where there is one.
        stage: "train", "validation", "test" or "predict".

    Warns:
        RuntimeWarning: a stage that does not exist; nothing else happens.
    """
    from hangwatch import session

    session.batch(number, epoch=epoch, stage=stage)


def stage(name: str) -> None:
    """Say what is done from now on, which decides how long a silence may last. Does nothing when not attached.

    Args:
        name: "train", "validation", "test", "predict", "between" (epochs), or "done": the batches are counted by
            whatever else shows them again.

    Warns:
        RuntimeWarning: a stage that does not exist; nothing else happens.
    """
    from hangwatch import session

    session.stage(name)
