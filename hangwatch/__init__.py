"""hangwatch says which rank, which line and why, when distributed PyTorch training hangs.

    import hangwatch

    hangwatch.attach(model, loader)

or, with no change to the script, `hangwatch run -- torchrun ... train.py`. Importing this package costs nothing:
everything else is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hangwatch.session import Session

__version__ = "0.1.0"
__all__ = ["__version__", "attach", "detach", "tick"]


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
    """Say that a step of a loop of your own has been made. Does nothing when not attached."""
    from hangwatch import session

    session.tick()
