"""Stacks as py-spy gives them on several versions of Python and torch."""

from __future__ import annotations

from hangwatch.model import Frame, ThreadStack

SITE = "/opt/venv/lib/python3.12/site-packages"
TORCH = f"{SITE}/torch"
LIB = "/root/.pyenv/versions/3.11.7/lib/python3.11"
USER = Frame("/home/ann/train.py", 71, "main")
MODULE = Frame("/home/ann/train.py", 99, "<module>")


def stack(*frames: str | Frame, main: bool = True) -> ThreadStack:
    """Frames as `file:function`, innermost first; "user" is the user's line."""
    made = [_frame(frame) if isinstance(frame, str) else frame for frame in frames]
    return ThreadStack(1, "MainThread", tuple(made), main=main)


def _frame(text: str) -> Frame:
    if text == "user":
        return USER
    file, _, function = text.rpartition(":")
    return Frame(file.replace("TORCH", TORCH).replace("LIB", LIB).replace("SITE", SITE), 10, function)
