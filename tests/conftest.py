"""For all tests: examples of hypothesis may take as long as they like, and jobs heed Ctrl-C in the background too.

The machine may have other things to do. A shell starts what runs in the background with SIGINT ignored, and that would
be inherited by every job that a test starts and interrupts.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Generator

import psutil
import pytest
from coverage import Coverage
from hypothesis import HealthCheck, settings

from tests.tracing import untraced

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Tests that are marked `untraced` run without coverage's tracer in their own thread.

    They run over the same lines thousands of times, at twice to four times the price under a tracer, and other tests
    count those lines.
    """
    with untraced() if item.get_closest_marker("untraced") else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Saves what was measured, and kills what tests have left behind.

    Only in the processes that run tests, the children of the process that distributes them. That one waits without a
    limit until this is done, but kills a worker that has not ended 10 s later; and the reader of its output would wait
    until the last process ends. The resource tracker of multiprocessing ends with its parent.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        if (measured := Coverage.current()) is not None:
            measured.save()
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                command = " ".join(process.cmdline())
                if "multiprocessing.resource_tracker" not in command:
                    print(f"left behind: {process.pid} {command}", file=sys.stderr)
                    process.kill()
