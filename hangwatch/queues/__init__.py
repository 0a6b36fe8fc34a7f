"""The queues of communicators as evidence: one model, and the diagnosis of where and why they do not move.

`assess(queues)` judges them; `snapshot(queues)` is the evidence that a report shows. Where the queues come from, from
dumps, from lines of a log or from live ranks, is not known here.
"""

from __future__ import annotations

from .evidence import snapshot
from .judgement import Assessment, assess
from .model import Queues

__all__ = ["Assessment", "Queues", "assess", "snapshot"]
