"""Errors that came out of a DataLoader: its worker, or the data set itself, raised them, and the rank went on."""

from __future__ import annotations

import re
from dataclasses import replace

from hangwatch.model import ExceptionFacts, Frame
from hangwatch.ranks.view import RankView
from hangwatch.stacks.frames import origin

_LOADER = re.compile(r"/torch/utils/data/dataloader\.py$")
_PLACE = re.compile(r'^\s*File "(.+)", line (\d+), in (\S+)$', re.MULTILINE)
_WORKERS = re.compile(r"^Caught \w+ in DataLoader worker process (\d+)\.")


def loader_error(view: RankView) -> ExceptionFacts | None:
    """The error that a DataLoader raised in the last step of `view`: since then it has begun no other step.

    A rank that draws on after an error has handled it, and goes on with its steps. One that draws no more has left
    its loop. However much it does behind it, the error is why.
    """
    error, reading = view.exception, view.reading
    if error is None or error.fatal or reading is None or not any(_LOADER.search(each.file) for each in error.frames):
        return None
    if view.loader is None or view.loader.exhausted or view.loader.inside_next:
        return None
    return None if any(step.at > error.at for step in reading.steps) else as_raised(error)


def as_raised(error: ExceptionFacts) -> ExceptionFacts:
    """An error of a DataLoader's worker with its own words and place, which stand in the message of the rank's."""
    worker = _WORKERS.match(error.message)
    if worker is None:
        return error
    last = error.message.strip().rpartition("\n")[2].partition(": ")[2].rstrip(".")
    where = place_in(error.message)
    frames = error.frames if where is None else (where, *error.frames)
    said = f"{last} (in DataLoader worker {worker[1]})" if last else f"in DataLoader worker {worker[1]}"
    return replace(error, message=said, frames=frames)


def place_in(traceback: str) -> Frame | None:
    """The innermost of the user's lines in the text of a traceback."""
    places = [Frame(file, int(line), function) for file, line, function in _PLACE.findall(traceback)]
    return next((place for place in reversed(places) if origin(place.file) == "user"), None)
