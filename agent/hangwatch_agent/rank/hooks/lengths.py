"""How long loaders, samplers and datasets are, without running a line of the user's.

A user's `__len__` may draw random numbers, count, or take seconds: only torch's own classes and Python's containers are
asked, by exact type. Of others the source may say it (`user_lengths`); else there is the answer that the program got
when it asked len(loader) itself, and the number that torch's samplers have asked of the dataset for their own
iteration, which lies in their frames.
"""

from __future__ import annotations

import sys
from types import GeneratorType
from typing import Any

from hangwatch_agent.rank.hooks.user_lengths import promised

_BUILT_IN = (list, tuple, range, dict, set, frozenset, str, bytes)
_SAMPLERS = "torch.utils.data.sampler"
_DATASETS = "torch.utils.data.dataset"
_DISTRIBUTED = "torch.utils.data.distributed"


def own(thing: Any, name: str, default: Any = None) -> Any:
    """An attribute that was set on the object itself: properties and `__getattr__` of the user's are not run."""
    try:
        return object.__getattribute__(thing, "__dict__").get(name, default)
    except (AttributeError, TypeError):
        return default


def is_torchs(thing: Any, module: str, name: str) -> bool:
    """Whether `thing` is exactly of torch's class `name`; a subclass may do what it likes."""
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and type(thing) is known


def length(thing: Any) -> int | None:
    """How many items a dataset or a sampler gives; None where only running code of the user's could tell."""
    known = _without_source(thing)
    return promised(thing, _without_source) if known is None and _is_users(thing) else known


def _without_source(thing: Any) -> int | None:
    if type(thing) in _BUILT_IN:
        return len(thing)
    return _of_tensor(thing) if is_torchs(thing, "torch", "Tensor") else _of_sampler(thing, _of_dataset(thing))


def _is_users(thing: Any) -> bool:
    return not type(thing).__module__.startswith("torch.")


def _of_tensor(tensor: Any) -> int | None:
    return int(tensor.size(0)) if tensor.dim() else None


def _of_dataset(thing: Any) -> int | None:
    if is_torchs(thing, _DATASETS, "TensorDataset"):
        tensors = own(thing, "tensors")
        return length(tensors[0]) if tensors else None
    if is_torchs(thing, _DATASETS, "Subset"):
        return length(own(thing, "indices"))
    if is_torchs(thing, _DATASETS, "ConcatDataset"):
        sizes = own(thing, "cumulative_sizes")
        return integer(sizes[-1]) if type(sizes) is list and sizes else None
    return None


def _of_sampler(thing: Any, otherwise: int | None) -> int | None:
    if is_torchs(thing, _DISTRIBUTED, "DistributedSampler"):
        return integer(own(thing, "num_samples"))
    if is_torchs(thing, _SAMPLERS, "SequentialSampler"):
        return length(own(thing, "data_source"))
    if is_torchs(thing, _SAMPLERS, "RandomSampler"):
        asked = integer(own(thing, "_num_samples"))
        return asked if asked is not None else length(own(thing, "data_source"))
    if is_torchs(thing, _SAMPLERS, "SubsetRandomSampler"):
        return length(own(thing, "indices"))
    if is_torchs(thing, _SAMPLERS, "WeightedRandomSampler"):
        return integer(own(thing, "num_samples"))
    if is_torchs(thing, _SAMPLERS, "BatchSampler"):
        return batches(thing, length(own(thing, "sampler")))
    return otherwise


def batches(batch_sampler: Any, samples: int | None) -> int | None:
    """The batches that torch's own BatchSampler makes of so many samples."""
    size = integer(own(batch_sampler, "batch_size"))
    if samples is None or not size or not is_torchs(batch_sampler, _SAMPLERS, "BatchSampler"):
        return None
    return samples // size if own(batch_sampler, "drop_last") else -(-samples // size)


def asked_by_torch(sampler: Any, sampler_iterator: Any) -> int | None:
    """The dataset's length as torch's sampler has asked for it when it began to iterate; None before that.

    Args:
        sampler: the sampler of samples.
        sampler_iterator: what a DataLoader's iterator draws from, a batch sampler's generator or the sampler's own.
    """
    inner = _local(sampler_iterator, "sampler_iter", default=sampler_iterator)  # of BatchSampler.__iter__
    if is_torchs(sampler, _SAMPLERS, "RandomSampler"):
        return integer(_local(inner, "n"))
    if is_torchs(sampler, _SAMPLERS, "SequentialSampler") and type(inner) is type(iter(range(0))):
        rest = inner.__reduce__()[1][0]
        return int(rest.stop) if type(rest) is range else None
    return None


def _local(generator: Any, name: str, default: Any = None) -> Any:
    """A local variable of a generator of torch's samplers that has not ended."""
    if type(generator) is not GeneratorType or generator.gi_frame is None:
        return default
    if generator.gi_code.co_filename != getattr(sys.modules.get(_SAMPLERS), "__file__", ""):
        return default
    return generator.gi_frame.f_locals.get(name, default)


def integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
