"""The line that probably put a rank's memory on another rank's GPU, as the source shows it: a hint, never proof."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from hangwatch.model import Frame, RankEvidence
from hangwatch.stacks.frames import origin

BINDING = ("set_device", "set_current_device")  # torch.cuda.set_device, torch.accelerator.set_device_index and others
MOST_FILES = 8  # of the user that are read for a line: a training program has few in its call stacks


def suspect_line(rank: RankEvidence) -> str | None:
    """`torch.load without map_location at train.py:12`, from the files in which the rank stands and has called."""
    for file in list(dict.fromkeys(_files(rank)))[:MOST_FILES]:
        if (found := _suspect(file)) is not None:
            line, what = found
            return f"{what} at {Path(file).name}:{line}" if line else f"{what} in {Path(file).name}"
    return None


def _files(rank: RankEvidence) -> Iterator[str]:
    frames: list[Frame] = [frame for stack in rank.stacks if stack.main for frame in stack.frames]
    if rank.reading is not None:
        frames += [frame for call in rank.reading.calls for frame in call.frames]
        frames += [loader.where for loader in rank.reading.loaders if loader.where is not None]
    return (frame.file for frame in frames if origin(frame.file) == "user")


@lru_cache(maxsize=64)
def _suspect(file: str) -> tuple[int, str] | None:
    try:
        return suspect(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def suspect(source: str) -> tuple[int, str] | None:
    """The first `torch.load` without map_location; else (0, ...) where work goes to "cuda" and no device is chosen."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for call in calls:
        if _name(call.func) == "torch.load" and not _maps(call):
            return call.lineno, "torch.load without map_location"
    chosen = any(_name(call.func).rpartition(".")[2].startswith(BINDING) for call in calls) or "cuda:{" in source
    bare = next((call.lineno for call in calls if _goes_to_cuda(call)), None)
    return None if bare is None or chosen or "CUDA_VISIBLE_DEVICES" in source else (bare, "no set_device before cuda()")


def _maps(call: ast.Call) -> bool:
    """Whether it says where to; `**options` may."""
    return len(call.args) > 1 or any(each.arg in ("map_location", None) for each in call.keywords)


def _goes_to_cuda(call: ast.Call) -> bool:
    name = _name(call.func)
    if name.endswith(".cuda") and not call.args and not call.keywords:
        return True
    values = (*call.args, *(each.value for each in call.keywords if each.arg == "device"))
    named = any(isinstance(each, ast.Constant) and each.value == "cuda" for each in values)
    return named and (name.endswith(".to") or name == "torch.device" or name.startswith("torch."))


def _name(function: ast.expr) -> str:
    """`torch.load`, `model.cuda`; what is no plain name before the last dot is left out: `.cuda`."""
    if isinstance(function, ast.Attribute):
        return f"{_name(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""
