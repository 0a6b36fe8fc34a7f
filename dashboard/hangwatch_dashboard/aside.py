"""Looks at large jobs, in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from hangwatch_dashboard.live import LiveJob

T = TypeVar("T")

MANY_RANKS = 512


async def aside(job: LiveJob, work: Callable[..., T], *arguments: Any) -> T:
    """Does pure work here for small jobs, and in a thread for large ones, so that batches need not wait for it.

    The work looks at the job `as_now`: the job itself changes while it is looked at.
    """
    return work(*arguments) if job.beats < MANY_RANKS else await asyncio.to_thread(work, *arguments)
