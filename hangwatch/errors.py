"""The root of hangwatch's own errors. Only `hangwatch.commands.main` prints them."""

from __future__ import annotations


class HangwatchError(Exception):
    """Something a user can mend. The message is one line: what is wrong, and what to do about it."""
