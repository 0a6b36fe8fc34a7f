"""What the name of a board's file says: `rank-PID-TICKS.board`, the rank's pid and start as the rank knows them."""

from __future__ import annotations

from pathlib import Path


def start_ticks(board: Path) -> int:
    """The start of a board's rank in clock ticks since boot, which no pid namespace changes; 0 for another name."""
    return _numbers(board)[1]


def own_pid(board: Path) -> int:
    """The pid of a board's rank in the rank's own pid namespace, by which its files are named; 0 for another name."""
    return _numbers(board)[0]


def _numbers(board: Path) -> tuple[int, int]:
    _, pid, ticks = (*board.stem.split("-"), "", "", "")[:3]
    return (_number(pid), _number(ticks)) if _number(ticks) else (0, 0)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
