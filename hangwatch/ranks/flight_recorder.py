"""What torch's flight recorder says of its calls. Dumps of it are read by `hangwatch.recorder`.

A rank that answers imports this module, and holds its interpreter lock meanwhile: it needs the model and no more.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangwatch.model import Collective

AUTOGRAD = "pt_autograd"  # threads of autograd's own: on a device they issue what backward reduces


def completed_through(calls: Iterable[tuple[int, bool]]) -> int:
    """Up to which number all `calls` (numbers, and whether each is completed) are completed; -1 for none.

    The recorder's status has the one that was completed last. Where gloo's threads complete two at a time that may be
    the first of them, and it stays so until a third is completed.
    """
    known = dict(calls)
    pending = [number for number, done in known.items() if not done]
    return (min(pending) - 1 if pending else max(known, default=-1)) or -1


def by_autograd(call: Collective) -> bool:
    """A thread of autograd's own issued it."""
    return call.thread_name.startswith(AUTOGRAD)
