"""A rank at rest without torch: a real board and its ticker, and nothing else.

`python -m hangwatch.commands.benchmark.resting FOLDER RANK WORLD_SIZE` prints `ready` and rests until its input ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path


def main(folder: Path, rank: int, world_size: int) -> None:
    from hangwatch_agent.board import layout
    from hangwatch_agent.board.writer import BoardWriter
    from hangwatch_agent.rank import identity

    environment = {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": str(rank)}
    ticks = identity.start_ticks()
    writer = BoardWriter.create(
        folder / layout.board_name(os.getpid(), ticks),
        identity.describe(environment, job="bench"),
        start_ticks=ticks,
    )
    threading.Thread(target=_tick, args=(writer.words, layout.W_TICKER_AT), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


def _tick(words: memoryview, place: int) -> None:
    while True:
        words[place] = time.monotonic_ns()
        time.sleep(0.2)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
