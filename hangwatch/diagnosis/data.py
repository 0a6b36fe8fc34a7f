"""The loaders: a rank that waits for a batch, and what its workers do."""

from __future__ import annotations

from .finding import Rule

GONE: tuple[Rule, ...] = ()  # judged with the processes that are gone: before anything else
RULES: tuple[Rule, ...] = ()
