"""Answers of NCCL's RAS service (2.24 and later), read: bytes in, what NCCL says of the job's communicators out.

`parsed(answer, processes, groups)` reads JSON (2.28.9 and later) and the text of older versions; `sentences(view)` puts
what is of note in words, `of_nodes(nodes)` does so for a report. The format was read in NCCL's sources
(src/ras/client_support.cc, 2.24.3 to 2.30.7). Counts are of what hosts have launched, and not of what devices have
completed: that they differ is no fault by itself.
"""

from __future__ import annotations

from .kept import Answer, Told, answer
from .reading import RasError, parsed
from .words import of_communicator, of_nodes, sentences

__all__ = ["Answer", "RasError", "Told", "answer", "of_communicator", "of_nodes", "parsed", "sentences"]
