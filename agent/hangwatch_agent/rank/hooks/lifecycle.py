"""How a rank ends: uncaught exceptions of its threads, the end of the main program, the interpreter's exit."""

from __future__ import annotations

import atexit
import functools
import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from hangwatch_agent.board import layout as b
from hangwatch_agent.rank.call_site import Place, frames_of
from hangwatch_agent.rank.hooks.context import Context
from hangwatch_agent.rank.patch import Patches
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.thread_name import thread_name

LONGEST_MESSAGE = 2000
MOST_CAUGHT, MOST_FRAMES = 4, 32  # errors that the program may have handled, and the frames of each
MOST_THREADS = 256
PUT_IN_WORDS = ("print_exc", "format_exc", "print_exception", "format_exception")  # logging calls the last but one
# Where multiprocessing and torch's spawn catch the error that ends a child: function, folder and file.
_CHILDS_LAST = {("_bootstrap", "multiprocessing", "process.py"), ("_wrap", "multiprocessing", "spawn.py")}
# Exceptions that are handled as a matter of course, and say nothing about a wait.
ORDINARY = (StopIteration, StopAsyncIteration, GeneratorExit)


def _wraps(registered: Any, callback: Any) -> bool:
    """Whether `threading` has made it of `callback`: a functools.partial, from Python 3.13 on a lambda."""
    cells = getattr(registered, "__closure__", None) or ()
    return getattr(registered, "func", None) is callback or any(cell.cell_contents is callback for cell in cells)


class LifecycleHook:
    """Chains sys.excepthook and threading.excepthook, and follows the interpreter's exit.

    Exit goes: main returns; `threading._shutdown` runs its callbacks, then joins threads (phase main-done); atexit
    callbacks run, the last registered first (atexit, from a callback that is registered at the end of main); the one
    that was registered first runs last (finalizing: only where ours was registered before all others).
    """

    def __init__(self, context: Context, becoming_rank: Callable[[], bool]) -> None:
        self._context = context
        context.met = self._met
        self._becoming_rank = becoming_rank
        self._patches = Patches()
        self._installed = self._listening = False
        self._at_end: Any = None
        self.recorded = False  # whether an exception stands on the board
        self._caught: list[dict[str, Any]] = []

    def install(self) -> None:
        self._listen()
        if self._installed:
            return
        self._installed = True
        self._patches.put(sys, "excepthook", self._uncaught(sys.excepthook))
        self._patches.put(threading, "excepthook", self._uncaught_in_thread(threading.excepthook))
        register = getattr(threading, "_register_atexit", None)
        if register is not None:
            self._at_end = self._main_done
            register(self._at_end)

    def _listen(self) -> None:
        """Hear what is put in words of errors, by a program, by logging, as a warning and by multiprocessing.

        A rank has the module as soon as it has torch.
        """
        module = sys.modules.get("traceback")
        if module is not None and not self._listening:
            self._listening = True
            for name in PUT_IN_WORDS:
                self._hear(module, name, self._put_in_words)
            self._hear(getattr(sys.modules.get("logging"), "Logger", None), "handle", self._logged)
            self._hear(sys.modules.get("warnings"), "_showwarnmsg", self._warned)

    def remove(self) -> None:
        if not self._installed:
            return
        self._installed = self._listening = False
        self._patches.remove()
        atexit.unregister(self._atexit)
        callbacks = getattr(threading, "_threading_atexits", None)
        if isinstance(callbacks, list):
            callbacks[:] = [each for each in callbacks if not _wraps(each, self._at_end)]

    def reset(self) -> None:
        """Forget what was recorded: the board is new, and a forked rank's errors are not its parent's."""
        self.recorded, self._caught = False, []

    # ------------------------------------------------------------ exceptions

    def _uncaught(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(kind: type[BaseException], error: BaseException, traceback: Any) -> None:
            try:
                if self._becoming_rank() and not issubclass(kind, SystemExit):
                    self.record(error, "MainThread", fatal=True)
                    self._context.steps.phase(b.FAILED)
                without_us(error)
                traceback = error.__traceback__ if error.__traceback__ is not None else traceback
            except Exception as failure:
                self._context.guard.swallow(failure)
            original(kind, error, traceback)

        return excepthook

    def _uncaught_in_thread(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def excepthook(args: Any) -> None:
            try:
                if (
                    args.exc_value is not None
                    and not issubclass(args.exc_type, SystemExit)
                    and self._context.board.real
                ):
                    name = args.thread.name if args.thread is not None else ""
                    self.record(args.exc_value, name, fatal=False)
            except Exception as failure:
                self._context.guard.swallow(failure)
            original(args)

        return excepthook

    def _hear(self, owner: Any, name: str, note: Callable[..., None]) -> None:
        """Before `owner` does what has that name while an error is handled, `note` the error and what it is given."""
        original = getattr(owner, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def say(*args: Any, **kwargs: Any) -> Any:
            try:
                error = sys.exc_info()[1]
                if error is not None and self._context.board.real:
                    note(error, *args)
            except Exception as failure:
                self._context.guard.swallow(failure)
            return original(*args, **kwargs)

        self._patches.put(owner, name, say)

    def _put_in_words(self, error: BaseException, *_: Any) -> None:
        """A child of multiprocessing asks no excepthook: it puts what ends it in words, and then it ends.

        Any other error that is put in words while it is handled is one that the program has caught.
        """
        if _ends_child(sys._getframe(2)):
            self.record(error, "MainThread", fatal=True)
            self._context.steps.phase(b.FAILED)
        elif isinstance(error, Exception):
            self._handled(error)

    def _logged(self, error: BaseException, _: Any, record: Any) -> None:
        self._said(error, (record.msg, *(record.args or ())))

    def _warned(self, error: BaseException, shown: Any) -> None:
        self._said(error, getattr(shown.message, "args", ()))

    def _said(self, error: BaseException, parts: Iterable[object]) -> None:
        if isinstance(error, Exception) and not isinstance(error, ORDINARY) and _is_said(error, parts):
            self._handled(error)

    def record(self, error: BaseException, thread: str, *, fatal: bool) -> None:
        """Put an exception on the board. Of one that was raised from another, the frames are those of the last."""
        self.recorded = True
        frames = frames_of(error.__traceback__)[:40]
        self._context.board.write("exception", _facts(error, frames, thread, self._context.steps.step, fatal=fatal))

    def _met(self, error: BaseException) -> None:
        if self._installed and self._context.board.real:
            self.record(error, thread_name(), fatal=False)
            self._handled(error)

    def _handled(self, error: BaseException) -> None:
        """Note an error that the program has caught, or may; once, however often it is put in words."""
        facts = _facts(error, [], thread_name(), self._context.steps.step, fatal=False)
        facts["message"] = facts["message"][:400]
        if self._caught and _is_same(facts, self._caught[-1]):
            return
        frames = frames_of(error.__traceback__, callers=True)[:MOST_FRAMES]
        self._caught = [*self._caught, facts | {"frames": _told(frames)}][-MOST_CAUGHT:]
        self._context.board.write("caught", self._caught)

    def look_for_handled(self) -> None:
        """An exception that the main thread handles while it waits (under except, finally, __exit__). For captures."""
        handled: dict[int | None, Any] = getattr(sys, "_current_exceptions", dict)()
        current = handled.get(threading.main_thread().ident)
        error = current[1] if isinstance(current, tuple) else current
        if isinstance(error, BaseException) and not isinstance(error, ORDINARY):
            self.record(error, "MainThread", fatal=False)

    # ------------------------------------------------------------ the end

    def _main_done(self) -> None:
        self._stage(b.MAIN_DONE)
        if self._installed and self._context.board.real:
            atexit.register(self._atexit)  # the last one registered runs first
            self.look_for_lasting()

    def look_for_lasting(self) -> None:
        """The threads that the interpreter waits for at its end: only the rank itself knows which are no daemons."""
        main = threading.main_thread()
        lasting = [each.native_id for each in threading.enumerate() if each is not main and not each.daemon]
        self._context.board.write("lasting_threads", lasting[:MOST_THREADS])

    def _atexit(self) -> None:
        self._stage(b.ATEXIT)

    def finalizing(self) -> None:
        """The last atexit callback is over. Called from the first registered one: `bootstrap/sitecustomize.py`."""
        self._stage(b.FINALIZING)

    def _stage(self, phase: int) -> None:
        try:
            if self._installed:
                self._context.steps.phase(phase)
        except Exception as error:
            self._context.guard.swallow(error)


def _ends_child(caller: FrameType) -> bool:
    code = caller.f_code
    return (code.co_name, *code.co_filename.replace("\\", "/").split("/")[-2:]) in _CHILDS_LAST


def without_us(error: BaseException) -> None:
    """Take hangwatch's frames out of a traceback that was not caught, so that it is printed as without us."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = _spliced(current.__traceback__)
        current = current.__cause__ or current.__context__


def _spliced(traceback: Any) -> Any:
    while traceback is not None and _ours(traceback):
        traceback = traceback.tb_next
    entry = traceback
    while entry is not None:
        while entry.tb_next is not None and _ours(entry.tb_next):
            entry.tb_next = entry.tb_next.tb_next
        entry = entry.tb_next
    return traceback


def _ours(traceback: Any) -> bool:
    return str(traceback.tb_frame.f_globals.get("__name__", "")).startswith("hangwatch_agent.")


def _is_said(error: BaseException, parts: Iterable[object]) -> bool:
    """One part is the error, or a text with its message: others are not put in words, which may be a tensor's."""
    message = _message(error) or type(error).__name__
    return any(part is error or (isinstance(part, str) and message in part) for part in parts)


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] == other[name] for name in ("type", "message", "thread", "step"))


def _facts(error: BaseException, frames: list[Place], thread: str, step: int, *, fatal: bool) -> dict[str, Any]:
    return {
        "type": type(error).__name__,
        "message": _message(error),
        "frames": _told(frames),
        "thread": thread,
        "at": steady_clock.time(),
        "fatal": fatal,
        "step": None if step == b.NONE else step,
    }


def _told(frames: list[Place]) -> list[dict[str, Any]]:
    return [{"file": file, "line": line, "function": name} for file, line, name in frames]


def _message(error: BaseException) -> str:
    try:
        return str(error)[:LONGEST_MESSAGE]
    except Exception:  # a user's __str__
        return "(its message could not be had)"
