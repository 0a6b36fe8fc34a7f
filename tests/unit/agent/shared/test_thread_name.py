"""Names of threads, also of those that Python has not started."""

from __future__ import annotations

import re
import threading

from hangwatch_agent.shared.thread_name import thread_name
from tests.unit.agent.foreign_thread import in_a_foreign_thread


def test_a_thread_has_the_name_that_python_gave_it() -> None:
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.append(thread_name()), name="uploader")
    thread.start()
    thread.join()
    assert names == ["uploader"]
    assert thread_name() == threading.current_thread().name


def test_one_that_python_has_not_started_keeps_the_systems_name_and_gets_no_object() -> None:
    """A program that joins all threads would find a thread that cannot be joined."""
    before = threading.enumerate()
    found: list[object] = []
    in_a_foreign_thread(lambda: found.extend([thread_name(), threading.enumerate()]), "pt_autograd_0")
    assert found == ["pt_autograd_0", before]


def test_what_the_program_made_of_it_is_no_name() -> None:
    found: list[str] = []
    in_a_foreign_thread(lambda: found.extend([threading.current_thread().name, thread_name()]), "pt_autograd_0")
    assert found[0].startswith("Dummy-")
    assert found[1] == "pt_autograd_0"


def test_another_one_has_a_name_of_its_own() -> None:
    """It is neither the main thread nor autograd's."""
    found: list[str] = []

    def ask() -> None:
        threading._active.pop(threading.get_ident(), None)  # type: ignore[attr-defined]  # of a thread that has ended
        found.append(thread_name())

    in_a_foreign_thread(ask, "receiver")
    assert re.fullmatch(r"receiver-\d+", found[0])
