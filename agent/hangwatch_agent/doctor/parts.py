"""The parts of a probe, each in a process of its own."""

from __future__ import annotations

import os
import signal
import sys

NAMES = ("machine", "gpus", "talks")


def main(name: str) -> int:
    """Run one part. The kernel ends it after its time, in whatever call it may be."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(os.environ.get("HANGWATCH_DOCTOR_PART_S", "50")) + 1.0)
    if name == "machine":
        from hangwatch_agent.doctor import machine

        machine.main()
    elif name == "gpus":
        from hangwatch_agent.doctor import gpus

        gpus.main()
    elif name == "talks":
        from hangwatch_agent.doctor import talks

        talks.main()
    sys.stdout.flush()
    os._exit(0)  # no destructor of torch's, which may wait for a peer
