"""Launchers, and the children that outlive the ranks."""

from __future__ import annotations

from hangwatch.model import Frame, ProcessEvidence
from hangwatch.stacks.frames import main_thread_of, user_frame

END_SEEN_S = 5.0  # seconds; a launcher or reader needs a moment to see that a process has ended


def place_of(process: ProcessEvidence) -> Frame | None:
    stack = main_thread_of(process.stacks)
    return user_frame(stack.frames) if stack is not None else None
