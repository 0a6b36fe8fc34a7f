"""The loader that a user names: `train.py:make_loader`, `package.module:loader`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TargetError(Exception):
    """No loader is to be had from this name; the message says why."""


def find(name: str) -> Any:
    """The object of this name. Raises TargetError, and whatever the module raises."""
    place, colon, attribute = name.rpartition(":")
    if not colon or not place or not attribute:
        raise TargetError(f"{name} is not FILE.py:NAME or MODULE:NAME")
    found: Any = _module(place)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise TargetError(f"{place} has no {attribute}")
        found = getattr(found, part)
    return found


def _module(place: str) -> Any:
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        return importlib.import_module(place)
    path = Path(place).absolute()
    if not path.is_file():
        raise TargetError(f"there is no file {place}")
    sys.path.insert(0, str(path.parent))  # as `python train.py` does; spawned workers import it by name, too
    return importlib.import_module(path.stem)


def make(found: Any, given: Mapping[str, object], alone: bool) -> Any:
    """The DataLoader: `found` itself, or what it returns, called with those arguments that it has parameters for.

    `alone`: the other ranks are not there, so a process group must not wait for them.
    """
    from torch.utils.data import DataLoader

    if isinstance(found, DataLoader):
        return found
    if not callable(found):
        raise TargetError(f"it is a {type(found).__name__}, neither a DataLoader nor a function")
    made = _called(found, given, alone)
    if isinstance(made, tuple | list):
        made = next((each for each in made if isinstance(each, DataLoader)), made)
    if not isinstance(made, DataLoader):
        raise TargetError(f"it returned a {type(made).__name__}, not a DataLoader")
    return made


def _called(function: Any, given: Mapping[str, object], alone: bool) -> Any:
    parameters = inspect.signature(function).parameters
    arguments = {name: value for name, value in given.items() if name in parameters and value is not None}
    needed = inspect.Parameter.empty
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [n for n, p in parameters.items() if p.default is needed and p.kind not in kinds and n not in arguments]
    if missing:
        raise TargetError(f"it needs {', '.join(missing)}: give a function that needs no more than rank and world_size")
    try:
        return function(**arguments)
    except (RuntimeError, ValueError) as error:
        if "process group" not in str(error).lower():
            raise
    _join(alone)
    return function(**arguments)


def _join(alone: bool) -> None:
    """A process group of the walkers, for samplers that ask torch for their rank."""
    dist: Any = importlib.import_module("torch.distributed")
    if not alone:
        dist.init_process_group("gloo")
        return
    fake: Any = importlib.import_module("torch.testing._internal.distributed.fake_pg")  # torch's own, for tests
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("fake", store=fake.FakeStore(), rank=rank, world_size=world)


def with_workers(loader: Any, workers: int | None) -> Any:
    """The same loader with another number of workers."""
    if workers is not None and workers != loader.num_workers:
        loader.num_workers = workers
        if workers and loader.prefetch_factor is None:
            loader.prefetch_factor = 2
        if not workers:
            loader.timeout = 0
            loader._DataLoader__multiprocessing_context = None
    return loader
