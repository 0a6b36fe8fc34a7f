"""A stand-in for NCCL, for tests and demonstrations on machines without a GPU. It is not NCCL.

What is real: calls that queue and return at once, hosts that run ahead of their streams, a wait in a function called
`cudaStreamSynchronize` that spins without the interpreter lock, a record of all calls behind the request handler that
torch has for NCCL's, and a watchdog that writes torch's lines and ends the process by SIGABRT. What is not: a device.
Kernels are timers, numbers that the host reads too early are wrong, and every reduction is a sum.

    from hangwatch.gallery import standin

    standin.register()
    dist.init_process_group("nccl_standin")

The first use compiles a few lines of C; it raises OSError where there is no compiler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .backend import NAME, Graph, kernel, read_back, register, stuck_kernel, synchronize

__all__ = ["NAME", "Graph", "kernel", "read_back", "register", "stuck_kernel", "synchronize"]


def __getattr__(name: str) -> Any:
    """From `backend`, which imports torch and compiles: importing this package does neither."""
    if name not in __all__:
        raise AttributeError(name)
    from . import backend

    return getattr(backend, name)
