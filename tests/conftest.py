"""For all tests: examples of hypothesis may take as long as they like, and jobs heed Ctrl-C in the background too.

The machine may have other things to do. A shell starts what runs in the background with SIGINT ignored, and that would
be inherited by every job that a test starts and interrupts.
"""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
