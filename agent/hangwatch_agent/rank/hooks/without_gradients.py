"""Which parameters of a DistributedDataParallel model have no gradient, where others have one.

Asked for when a job stands. After a backward they had no part in the loss, so that DDP never reduced their buckets.
"""

from __future__ import annotations

import weakref
from itertools import islice
from typing import Any

from hangwatch_agent.rank.hooks.plan import MOST_PARAMETERS, parameters_of

MOST_TOLD = 6


def without_gradients(model: weakref.ref[Any] | None) -> list[str]:
    """Their names, as the user's model has them; none where no parameter has a gradient, as behind `zero_grad`."""
    ddp = model() if model is not None else None
    if ddp is None:
        return []
    trained = [(name, each) for name, each in islice(parameters_of(ddp), MOST_PARAMETERS) if _is_trained(each)]
    lacking = [name.removeprefix("module.") for name, each in trained if each.grad is None]
    if len(lacking) in (0, len(trained)):
        return []
    return [*lacking[:MOST_TOLD], *([f"{len(lacking) - MOST_TOLD} more"] if len(lacking) > MOST_TOLD else [])]


def _is_trained(parameter: Any) -> bool:
    return bool(parameter.requires_grad and parameter.is_leaf)
