from __future__ import annotations

import subprocess
import threading
import time

from hangwatch_agent.deaths import DeathWatch


def test_the_order_of_deaths_is_kept() -> None:
    woken = threading.Event()
    deaths = DeathWatch(woken.set)
    processes = [subprocess.Popen(["sleep", "100"]) for _ in range(2)]
    for process in processes:
        deaths.watch(process.pid)
    for process in reversed(processes):
        process.kill()
        process.wait()
        time.sleep(0.05)
    assert woken.wait(5.0)
    first, second = (deaths.ended[process.pid] for process in reversed(processes))
    assert time.time() - 10 < first < second <= time.time()


def test_a_process_that_had_gone_before() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    deaths = DeathWatch(lambda: None, clock=lambda: 42.0)
    deaths.watch(process.pid)
    assert deaths.ended == {process.pid: 42.0}
