"""The boards of this host as a watchdog must read them: times on its own clock, pids of its own pid namespace."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from hangwatch.model import Reading
from hangwatch_agent.board import reader
from hangwatch_agent.board.file_name import start_ticks
from hangwatch_agent.board.layout import BoardError
from hangwatch_agent.board.pid_namespaces import Pids
from hangwatch_agent.shared import steady_clock

one_reader = threading.Lock()  # the watchdog's beat goes on reading boards while a capture reads them
pids = Pids()


@dataclass(frozen=True)
class LocalReading:
    """A board read here. `state` says what the pid alone cannot: "?" where the process cannot be seen from here,
    "X" where it would be seen and is gone; else it is "".
    """

    reading: Reading
    state: str = ""


def read(path: Path) -> LocalReading:
    """What the board at `path` says. Raises BoardError, whatever is wrong with it, or OSError."""
    with one_reader:
        try:
            reading = reader.read_board(path, anchor_ns=steady_clock.ANCHOR_NS)
            namespace = reader.namespace(path)
        except (BoardError, OSError):
            raise
        except Exception as error:  # one bad board must not cost the watch over all the others
            reader.forget_board(path)
            raise BoardError(f"not understood ({type(error).__name__}: {error})"[:300]) from error
        if not pids.is_foreign(namespace):
            return LocalReading(reading)
        reading, found = pids.translated(reading, namespace, start_ticks(path))
    return LocalReading(reading, "" if found.pid is not None else "X" if found.visible else "?")


def forget(path: Path) -> None:
    """Close a board that is no longer written."""
    with one_reader:
        reader.forget_board(path)
