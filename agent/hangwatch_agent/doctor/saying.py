"""How a part tells its rank what it does and finds: one JSON object a line on standard output."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from hangwatch.wire import codec


def say(**what: Any) -> None:
    """Facts, or news of a stage. One write, so that threads do not mix their lines."""
    line = json.dumps({name: codec.encode(value) for name, value in what.items()}) + "\n"
    os.write(sys.__stdout__.fileno() if sys.__stdout__ else 1, line.encode())


def facts(**found: Any) -> None:
    """Fields of `hangwatch.doctor.model.RankFacts`."""
    say(facts=found)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """A stage of the work. Its error is told and goes no further; what hangs in it is seen by its rank."""
    began = time.monotonic()
    say(stage=name)
    problem = ""
    try:
        yield
    except Exception as error:
        first = next(iter(str(error).strip().splitlines()), "")
        problem = f"{type(error).__name__}: {first}"[:400]
    finally:
        say(stage=name, done=True, took_s=time.monotonic() - began, problem=problem)
