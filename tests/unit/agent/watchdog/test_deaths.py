from __future__ import annotations

import subprocess
import threading

from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.procfs import stat_of
from hangwatch_agent.watchdog.deaths import DeathWatch


def test_the_order_of_deaths_is_kept() -> None:
    woken = threading.Event()
    deaths = DeathWatch(woken.set)
    processes = [subprocess.Popen(["sleep", "100"]) for _ in range(2)]
    for process in processes:
        deaths.watch(process.pid)
    for process in reversed(processes):
        process.kill()
        assert woken.wait(60)
        woken.clear()
        process.wait()
    first, second = (deaths.ended[process.pid, 0] for process in reversed(processes))
    assert steady_clock.time() - 10 < first < second <= steady_clock.time()


def test_a_process_that_had_gone_before() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    deaths = DeathWatch(lambda: None, clock=lambda: 42.0)
    deaths.watch(process.pid)
    assert deaths.ended == {(process.pid, 0): 42.0}


def test_the_codes_of_processes_that_are_not_our_children() -> None:
    woken = threading.Event()
    deaths = DeathWatch(woken.set)
    code = "exec 3<&0; (read go <&3; exit 7) & echo $!; wait; sleep 100"
    with subprocess.Popen(["sh", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        grandchild = int(process.stdout.readline())
        deaths.watch(grandchild)
        process.stdin.close()  # now it goes on, and ends
        assert woken.wait(60)
        process.kill()
    # An old kernel only tells as long as nobody has waited for the process.
    assert deaths.codes.get((grandchild, 0), 7) == 7


def test_how_a_zombie_ended() -> None:
    woken = threading.Event()
    deaths = DeathWatch(woken.set)
    process = subprocess.Popen(["sleep", "100"])
    deaths.watch(process.pid)
    process.kill()
    assert woken.wait(60)
    assert deaths.codes == {(process.pid, 0): -9}
    process.wait()


def test_a_pid_that_was_given_to_another_process_does_not_live_on() -> None:
    with subprocess.Popen(["sleep", "100"]) as process:
        deaths = DeathWatch(lambda: None, clock=lambda: 42.0)
        ticks = stat_of(process.pid).ticks  # type: ignore[union-attr]
        deaths.watch(process.pid, ticks - 1)
        deaths.watch(process.pid, ticks)
        assert deaths.ended == {(process.pid, ticks - 1): 42.0}
        process.kill()
