"""Ray Train's way in: `TorchTrainer(hangwatch.ray.watched(train_loop), ...)`.

Ray starts its workers from a service that may be older than the job, so that `hangwatch run` above the driver does not
always reach them: `watched` attaches in each worker. Loops over `torch.utils.data.DataLoader` need no more. Ray Data
brings its batches by another way: `for batch in hangwatch.ray.batches(shard.iter_torch_batches(), epoch=epoch)`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

from hangwatch import session

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Batch = TypeVar("_Batch")


def watched(train_loop: Callable[_Arguments, _Result], **settings: Any) -> Callable[_Arguments, _Result]:
    """`train_loop`, with hangwatch attached to the worker until it returns; a worker in which it raises stays watched.

    Args:
        train_loop: the function that each worker runs, with or without a configuration.
        settings: as for `hangwatch.attach`.
    """

    @functools.wraps(train_loop)
    def loop(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        attached = session.attach(**settings)
        result = train_loop(*arguments, **named)
        if not session.in_run():
            attached.detach()
        return result

    return loop


def batches(loader: Iterable[_Batch], *, epoch: int | None = None, stage: str = "train") -> Iterator[_Batch]:
    """The batches of `loader`, each of which is told to hangwatch, counted from 0, as it is handed out.

    Args:
        loader: anything that gives batches.
        epoch: the epoch, where there is one.
        stage: "train", "validation", "test" or "predict".
    """
    for number, batch in enumerate(loader):
        session.batch(number, epoch=epoch, stage=stage)
        yield batch
    session.stage("between")
