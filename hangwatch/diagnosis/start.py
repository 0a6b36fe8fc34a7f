"""The start of a job: ranks that never come, stores that do not answer, groups that are not made alike."""

from __future__ import annotations

from .finding import Rule

GONE: tuple[Rule, ...] = ()  # judged with the processes that are gone: before anything else
RULES: tuple[Rule, ...] = ()
