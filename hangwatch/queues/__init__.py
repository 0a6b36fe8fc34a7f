"""The queues of communicators as evidence: one model, and the diagnosis of where and why they do not move.

`assess(queues)` judges them; `snapshot(queues)` is the evidence that a report shows; `unmoved_s(queues)` is how long
nothing had moved. Where the queues come from, from dumps, from lines of a log or from live ranks, is not known here.
"""

from __future__ import annotations

from .evidence import snapshot
from .finding import not_told
from .judgement import Assessment, assess
from .model import Queues
from .moment import unmoved_s

__all__ = ["Assessment", "Queues", "assess", "not_told", "snapshot", "unmoved_s"]
