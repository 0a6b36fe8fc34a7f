"""The cause of a hang whose cause is not known."""

from __future__ import annotations

from .cause import Cause

UNDETERMINED = (
    Cause(
        "undetermined",
        None,
        "The cause is not known",
        "Nothing moves, and the evidence fits no known cause, or more than one.",
        "read the stacks in the report; if you find the cause, please report it, so that hangwatch names the next one",
        (),
    ),
)
