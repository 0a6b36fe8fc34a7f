"""What a DistributedDataParallel model will make of each step, in words that ranks can compare."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice
from types import FunctionType
from typing import Any

from hangwatch_agent.rank.hooks.lengths import own

KIND = "DistributedDataParallel"
FLAGS = ("find_unused_parameters", "static_graph", "gradient_as_bucket_view")
MOST_PARAMETERS = 20_000
MOST_HOOKS = 3


def of_model(ddp: Any) -> dict[str, str]:
    """Read once, at the model's first forward. No code of the user's is run for it."""
    found = {"model": KIND, "wraps": type(own(ddp, "_modules", {}).get("module")).__name__}
    found |= {name: str(value) for name in FLAGS if isinstance(value := own(ddp, name), bool)}
    found["comm_hook"] = ", ".join(_names_of(own(ddp, "_comm_hooks", ())))
    count, digest = 0, 0
    for name, parameter in islice(parameters_of(ddp), MOST_PARAMETERS):
        said = f"{name} {tuple(parameter.shape)} {parameter.dtype} {parameter.requires_grad}"
        digest = zlib.crc32(said.encode(), digest)
        count += 1
    return found | {"parameters": f"{count}, {digest:08x}"}


def _names_of(hooks: Any) -> Iterator[str]:
    """The names of communication hooks, each given with its state; of what is no plain function, that of its class."""
    for hook, _state in islice(hooks, MOST_HOOKS):
        yield hook.__name__ if type(hook) is FunctionType else type(hook).__name__


def parameters_of(module: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """As torch's named_parameters gives them, which a model may have replaced."""
    for name, parameter in own(module, "_parameters", {}).items():
        if parameter is not None:
            yield f"{prefix}{name}", parameter
    for name, child in own(module, "_modules", {}).items():
        if child is not None:
            yield from parameters_of(child, f"{prefix}{name}.")
