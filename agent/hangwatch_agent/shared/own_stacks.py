"""The file `stacks-PID.txt` beside a board, in which a rank writes its own stacks when it is asked to.

Its first line is the number of the signal at which faulthandler appends to it.
"""

from __future__ import annotations

from pathlib import Path

END = "End of the stacks.\n"  # after what the rank's ticker has written; faulthandler alone marks no end


def last_size(path: Path) -> int:
    """How many bytes a rank wrote there when it was last asked; 0 where it never was. Raises OSError."""
    _, _, written = path.read_bytes().partition(b"\n")
    dumps = written.split(END.encode())
    return len(dumps[-2]) + len(END) if len(dumps) > 1 else 0


def stacks_file(folder: Path, pid: int) -> Path:
    """Where a rank of this pid, as the rank knows it itself, writes them."""
    return folder / f"stacks-{pid}.txt"
