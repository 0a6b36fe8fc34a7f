"""What logs tell of a hang: torch's NCCL watchdog, NCCL itself (NCCL_DEBUG), and torchrun.

`read(path, logs)` takes the lines that are of use, one at a time; `completed` puts what the watchdog says of ranks
without a dump into the queues; `assess` judges both together. Each format has a module of its own.
"""

from __future__ import annotations

from .attempts import first_ranks
from .judgement import assess, nothing_of_use
from .model import Logs
from .queued import completed
from .reading import is_log, read

__all__ = ["Logs", "assess", "completed", "first_ranks", "is_log", "nothing_of_use", "read"]
