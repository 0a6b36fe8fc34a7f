"""Which parameters of a DistributedDataParallel model have no gradient, where others have one.

Asked for when a job stands. After a backward they had no part in the loss, so that DDP never reduced their buckets.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from itertools import islice
from types import FrameType
from typing import Any

from hangwatch_agent.rank.hooks.lengths import own
from hangwatch_agent.rank.hooks.plan import MOST_PARAMETERS, parameters_of

MOST_TOLD = 6
_ENGINE = "_engine_run_backward"


def without_gradients(models: Sequence[weakref.ref[Any]]) -> list[str]:
    """Their names, as the user's model has them; none where no parameter has a gradient, as behind `zero_grad`.

    None either of several models: the backward in question may have been that of another one. A backward that is under
    way in any thread sets gradients meanwhile: then none is read.
    """
    living = [model for each in models if (model := each()) is not None]
    if len(living) != 1 or _runs_backward():
        return []
    ddp = living[0]
    with sys.modules["torch._C"].DisableTorchFunction():  # past the user's subclasses of parameters
        left_out = own(ddp, "parameters_to_ignore", ())
        parameters = ((name.removeprefix("module."), each) for name, each in parameters_of(ddp))
        trained = [
            (name, each.grad is None)
            for name, each in islice(parameters, MOST_PARAMETERS)
            if each.requires_grad and each.is_leaf and name not in left_out
        ]
    lacking = [name for name, lacks in trained if lacks]
    if len(lacking) in (0, len(trained)):
        return []
    return [*lacking[:MOST_TOLD], *([f"{len(lacking) - MOST_TOLD} more"] if len(lacking) > MOST_TOLD else [])]


def _runs_backward() -> bool:
    return any(map(_is_in_backward, sys._current_frames().values()))


def _is_in_backward(innermost: FrameType) -> bool:
    frame: FrameType | None = innermost
    while frame is not None:
        if frame.f_code.co_name == _ENGINE:
            return True
        frame = frame.f_back
    return False
