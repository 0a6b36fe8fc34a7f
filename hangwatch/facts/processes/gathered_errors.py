"""Errors of single ranks that torch has gathered, to raise one error with all of them on every rank.

torch.distributed.checkpoint does so where a rank fails in its part of a save or load.
"""

from __future__ import annotations

import re

from hangwatch.model import ExceptionFacts

_OF_RANK = re.compile(r"^Traceback \(most recent call last\): \(RANK (\d+)\)\n(?:[ \t].*\n|\n)*(\S.*)", re.MULTILINE)


def gathered(error: ExceptionFacts) -> dict[int, str]:
    """What each of the ranks that failed raised, as the last line of its traceback; {} for an error of one rank."""
    return {int(match[1]): match[2] for match in _OF_RANK.finditer(error.message)}
