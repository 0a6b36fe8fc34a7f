from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hangwatch.model import Phase
from hangwatch_agent.rank.hooks.lifecycle import LifecycleHook, without_us
from tests.unit.agent.rank.hooks.conftest import Watched


@pytest.fixture
def hook(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> Iterator[LifecycleHook]:
    monkeypatch.setattr(sys, "excepthook", lambda *args: seen.append(args))
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args))
    hook = LifecycleHook(watched.context, lambda: True)
    hook.install()
    yield hook
    hook.remove()
    seen.clear()


seen: list[object] = []


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def test_an_uncaught_exception_is_recorded_and_passed_on(watched: Watched, hook: LifecycleHook) -> None:
    error = raised(ValueError("bad batch"))
    sys.excepthook(type(error), error, error.__traceback__)
    reading = watched.reading
    assert reading.exception is not None
    assert (reading.exception.type, reading.exception.message, reading.exception.fatal) == (
        "ValueError",
        "bad batch",
        True,
    )
    assert reading.exception.frames[0].function == "raised"
    assert reading.phase is Phase.FAILED
    assert len(seen) == 1


def test_an_exception_of_a_thread_is_not_fatal(watched: Watched, hook: LifecycleHook) -> None:
    def work() -> None:
        raise RuntimeError("in the background")

    thread = threading.Thread(target=work, name="writer")
    thread.start()
    thread.join()
    exception = watched.reading.exception
    assert exception is not None
    assert (exception.thread, exception.fatal) == ("writer", False)
    assert len(seen) == 1


def child(code: str, file: str, function: str) -> None:
    """Runs `code` as the function of that name in that file."""
    source = f"def {function}():\n    import traceback\n    {code}\n"
    scope: dict[str, object] = {}
    exec(compile(source, file, "exec"), scope)  # noqa: S102
    scope[function]()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("file", "function"),
    [("/usr/lib/python3.11/multiprocessing/process.py", "_bootstrap"), ("/x/torch/multiprocessing/spawn.py", "_wrap")],
)
@pytest.mark.parametrize("words", ["format_exc", "print_exc"])
def test_the_error_that_ends_a_child_of_multiprocessing(
    watched: Watched, hook: LifecycleHook, capsys: pytest.CaptureFixture[str], file: str, function: str, words: str
) -> None:
    try:
        raised_within = raised(KeyError("image"))
        raise raised_within
    except KeyError:
        child(f"traceback.{words}()", file, function)
    exception = watched.reading.exception
    assert exception is not None
    assert (exception.type, exception.fatal, exception.frames[0].function) == ("KeyError", True, "raised")
    assert watched.reading.phase is Phase.FAILED
    assert ("KeyError" in capsys.readouterr().err) == (words == "print_exc")


def test_an_error_that_the_program_prints_itself_is_not_its_end(watched: Watched, hook: LifecycleHook) -> None:
    try:
        raise KeyError("image")
    except KeyError:
        child("traceback.format_exc()", "/home/ann/train.py", "_wrap")
    assert watched.reading.exception is None


def shown(text: str) -> None:
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        warnings.warn(text, stacklevel=2)


@pytest.mark.parametrize(
    "say",
    [
        lambda error: child("traceback.print_exc()", "/home/ann/train.py", "log"),
        lambda error: logging.getLogger("train").warning("step failed", exc_info=error),
        lambda error: logging.getLogger("train").warning("bad row %s", error),
        lambda error: logging.getLogger("train").warning(f"bad row: {error!r}"),
        lambda error: shown(f"bad row: {error!r}"),
    ],
)
def test_an_error_that_the_program_puts_in_words_is_one_that_it_caught(
    watched: Watched, hook: LifecycleHook, say: Callable[[BaseException], object]
) -> None:
    watched.context.steps.tick()
    watched.context.steps.tick()
    try:
        raise KeyError("image")
    except KeyError as error:
        say(error)
        say(error)
    (caught,) = watched.reading.caught
    assert (caught.type, caught.step, caught.fatal, caught.thread) == ("KeyError", 1, False, "MainThread")
    assert caught.frames[0].function == "test_an_error_that_the_program_puts_in_words_is_one_that_it_caught"
    child("traceback.print_exc()", "/home/ann/train.py", "log")
    assert len(watched.reading.caught) == 1, "nothing is handled any more"


def test_what_is_said_of_other_things_while_an_error_is_handled_is_none_of_it(
    watched: Watched, hook: LifecycleHook
) -> None:
    handle = logging.Logger.handle
    for error in (KeyError("image"), StopIteration("end")):
        try:
            raise error
        except (KeyError, StopIteration):
            logging.getLogger("train").warning("epoch %d ends, %s", 3, "all read")
    assert watched.reading.caught == ()
    hook.remove()
    assert logging.Logger.handle is not handle


def test_an_exception_without_a_message_of_its_own(watched: Watched, hook: LifecycleHook) -> None:
    class Mute(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError

    hook.record(raised(Mute()), "MainThread", fatal=True)
    exception = watched.reading.exception
    assert exception is not None
    assert exception.message == "(its message could not be had)"


def test_a_huge_exception_fits(watched: Watched, hook: LifecycleHook) -> None:
    hook.record(raised(ValueError("x" * 100_000)), "MainThread", fatal=True)
    assert watched.reading.exception is not None


def test_an_exception_that_main_is_handling(watched: Watched, hook: LifecycleHook) -> None:
    hook.look_for_handled()
    before = watched.reading.exception
    try:
        raise ValueError("handled")
    except ValueError:
        looker = threading.Thread(target=hook.look_for_handled)
        looker.start()
        looker.join()
    after = watched.reading.exception
    assert before is None
    assert after is not None
    assert (after.message, after.fatal) == ("handled", False)


def test_threads_that_are_no_daemons(watched: Watched, hook: LifecycleHook) -> None:
    end = threading.Event()
    lasting = threading.Thread(target=end.wait, daemon=False)
    daemon = threading.Thread(target=end.wait, daemon=True)
    lasting.start()
    daemon.start()
    try:
        before = watched.reading.lasting_threads
        hook.look_for_lasting()
        after = watched.reading.lasting_threads
    finally:
        end.set()
        lasting.join()
        daemon.join()
    assert before is None
    assert after is not None
    assert lasting.native_id in after
    assert daemon.native_id not in after
    assert threading.main_thread().native_id not in after


def register_as_python_3_13(function: Any, *args: Any) -> None:
    threading._threading_atexits.append(lambda: function(*args))  # type: ignore[attr-defined]


@pytest.mark.parametrize("register", [threading._register_atexit, register_as_python_3_13])  # type: ignore[attr-defined]
def test_the_hooks_go_as_they_came(watched: Watched, monkeypatch: pytest.MonkeyPatch, register: Any) -> None:
    monkeypatch.setattr(threading, "_register_atexit", register)
    before = sys.excepthook, threading.excepthook
    callbacks = list(threading._threading_atexits)  # type: ignore[attr-defined]
    hook = LifecycleHook(watched.context, lambda: True)
    hook.install()
    hook.install()
    assert len(threading._threading_atexits) == len(callbacks) + 1  # type: ignore[attr-defined]
    hook.remove()
    hook.remove()
    assert (sys.excepthook, threading.excepthook) == before
    assert threading._threading_atexits == callbacks  # type: ignore[attr-defined]


def test_our_frames_are_taken_out_of_a_traceback() -> None:
    scope = {"__name__": "hangwatch_agent.rank.hooks.made_up"}
    exec("def ours(call):\n    return call()\n", scope)  # noqa: S102

    def inner() -> None:
        raise ValueError("x")

    try:
        scope["ours"](lambda: scope["ours"](inner))  # type: ignore[operator]
    except ValueError as error:
        without_us(error)
        names, entry = [], error.__traceback__
        while entry is not None:
            names.append(entry.tb_frame.f_code.co_name)
            entry = entry.tb_next
    assert names == ["test_our_frames_are_taken_out_of_a_traceback", "<lambda>", "inner"]
