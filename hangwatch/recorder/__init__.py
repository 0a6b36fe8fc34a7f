"""Dumps of torch's flight recorder, read: pickles and JSON of all versions, one rank at a time.

`documents(content)` gives the document of each rank in a file, and never executes anything in it. `QueueReader` turns
each document into that rank's queues (`hangwatch.queues`) and forgets it, so that memory follows what is kept.
"""

from __future__ import annotations

from .document import DumpError, documents, is_pickle, rank_of
from .reading import QueueReader

__all__ = ["DumpError", "QueueReader", "documents", "is_pickle", "rank_of"]
