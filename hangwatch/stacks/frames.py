"""What a frame says by itself: whose code it is, what its function is called. And frames from a written trace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import takewhile
from zlib import crc32

from hangwatch.model import Collective, ExceptionFacts, Frame, ThreadStack

_STDLIB = re.compile(r"/lib(64)?/python\d[.\d]*t?/(?!(site|dist)-packages/)|/python\d+t?\.zip/")
_PACKAGES = re.compile(r"/(site|dist)-packages/")
_IN_PACKAGES = re.compile(r"^.*/(site|dist)-packages/")
_TORCH = re.compile(
    r"/(site|dist)-packages/(torch|functorch|torchgen)/"
    r"|/torch/(distributed|nn|utils|autograd|optim|cuda|multiprocessing|amp|fx|jit|library|_[a-z]\w*)/"
    r"|/torch/(serialization|_tensor|_ops|_compile|storage|functional|__init__|random)\.py$"
)
# Code that inductor has written: in its cache, whose folder the user may have moved, files have such names.
_COMPILED = re.compile(r"/torchinductor_[^/]*/|/[a-z0-9]{2}/c[a-z2-7]{40,}\.py$")
_DISTRIBUTED = re.compile(r"/torch/distributed/(?!elastic/)")
ENGINE = "_engine_run_backward"  # torch's function that runs autograd's engine
_MODULE = "torch/nn/modules/module.py"
_CALLING = re.compile(  # what lies between a program's own line and a collective that it calls
    r"/torch/(distributed/(distributed_c10d|c10d_logger|_functional_collectives|nn/functional)|autograd/function|_ops"
    r"|utils/_contextlib|amp/autocast_mode)\.py$"
)
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})  # names of their frames
_FORKS = "/multiprocessing/popen_fork.py"
_OURS = re.compile(r"/hangwatch_agent/|/hangwatch/(?!gallery/(?!standin/))[\w/]+\.py$")


@lru_cache(maxsize=8192)
def origin(file: str) -> str:
    """Where a source file comes from: "user", "package", "torch", "stdlib", "hangwatch" or "" (no file)."""
    if file.startswith("<") and not re.match(r"<(ipython-input|stdin)", file):
        return ""
    if _TORCH.search(file) or _COMPILED.search(file):
        return "torch"
    if _OURS.search(file):
        return "hangwatch"
    if _STDLIB.search(file):
        return "stdlib"
    if _PACKAGES.search(file):
        return "package"
    return "user" if file.endswith((".py", ".ipynb", ".pyx")) or file.startswith("<") else ""


def is_written_by_compiler(file: str) -> bool:
    """Code that torch.compile or torch.fx has written: a graph as Python, or what inductor made of it."""
    return file.startswith("<eval_with_key>") or _COMPILED.search(file) is not None


def is_of_a_module(frame: Frame) -> bool:
    """A frame of torch.nn.Module itself, which calls the forward and the hooks of a part of the model."""
    return frame.file.endswith(_MODULE)


def called_by_the_program(frames: tuple[Frame, ...]) -> bool:
    """A line of the user's called the collective itself, and not what wraps a module or a package around it."""
    inner = takewhile(lambda frame: origin(frame.file) != "user", frames)
    return all(_CALLING.search(frame.file) for frame in inner)


def behind_the_call(frames: tuple[Frame, ...]) -> Frame | None:
    """The innermost frame behind torch's own functions of the collective: what in torch, or beyond, called it."""
    return next((frame for frame in frames if not _CALLING.search(frame.file)), frames[0] if frames else None)


@lru_cache(maxsize=8192)
def name_of(function: str) -> str:
    """The bare function name of `Class.method` or `outer.<locals>.inner`."""
    return function if function.startswith("<") else function.rpartition(".")[2]


def function_of(frame: Frame) -> tuple[str, str]:
    """The function in which a frame stands, by its bare name: of a place in the source no class is known."""
    return frame.file, name_of(frame.function)


def callers_of(frames: tuple[Frame, ...], where: Frame) -> tuple[Frame, ...]:
    """The frames that called the function in which `where` stands; none where the stack is not in it."""
    depth = next((n for n, each in enumerate(frames) if function_of(each) == function_of(where)), len(frames))
    return frames[depth + 1 :]


def of_origin(frames: Iterable[Frame], *origins: str) -> tuple[Frame, ...]:
    """The Python frames in files of these origins, the innermost first."""
    return tuple(frame for frame in frames if not frame.native and origin(frame.file) in origins)


def user_frame(frames: tuple[Frame, ...]) -> Frame | None:
    """The user's innermost frame; a third-party package's where there is none outside packages.

    A child that multiprocessing has forked keeps the frames in which its parent made it: they are not where it is.
    """
    fallback = None
    for place, frame in enumerate(frames):
        if frame.native:
            continue
        if name_of(frame.function) == "_launch" and frame.file.endswith(_FORKS):
            break
        kind = origin(frame.file)
        if kind == "user":
            return _in_its_function(frame, frames[place + 1 :])
        if kind == "package" and fallback is None:
            fallback = frame
    return fallback


def _in_its_function(frame: Frame, callers: Iterable[Frame]) -> Frame:
    """Before Python 3.12 a comprehension has a frame of its own: it is told by the function in which it stands."""
    if name_of(frame.function) not in COMPREHENSIONS:
        return frame
    outside = (each for each in callers if each.file == frame.file and name_of(each.function) not in COMPREHENSIONS)
    return replace(frame, function=next((each.function for each in outside), frame.function))


def may_communicate(frames: Iterable[Frame]) -> bool:
    """A thread with these frames could come to a collective: the user's code runs in it, or torch.distributed's."""
    return any(
        not frame.native and (origin(frame.file) == "user" or _DISTRIBUTED.search(frame.file) is not None)
        for frame in frames
    )


def main_thread_of(stacks: Iterable[ThreadStack]) -> ThreadStack | None:
    """The main thread's stack, if it shows anything."""
    return next((stack for stack in stacks if stack.main and stack.frames), None)


def stacks_of_trace(text: str) -> tuple[ThreadStack, ...]:
    """The stacks in what Python's faulthandler writes when a process crashes; the main thread is the last one."""
    parts = re.split(r"^(?:Current thread|Thread) .*$", text, flags=re.MULTILINE)[1:]
    frames = [
        tuple(Frame(file, int(line), function) for file, line, function in _TRACE_LINE.findall(part)) for part in parts
    ]
    return tuple(
        ThreadStack(
            index,
            "MainThread" if index + 1 == len(frames) else "",
            found,
            main=index + 1 == len(frames),
            source="crash",
        )
        for index, found in enumerate(frames)
    )


def stacks_of_calls(calls: Iterable[Collective]) -> tuple[ThreadStack, ...]:
    """Where the threads of a process stood at its end, by the calls that they never returned from."""
    return tuple(
        ThreadStack(index, call.thread_name, call.frames, main=call.thread_name == "MainThread", source="board")
        for index, call in enumerate(calls)
        if call.frames
    )


def stacks_of_error(error: ExceptionFacts | None) -> tuple[ThreadStack, ...]:
    """Where a thread stood that ended its process by an error: the frames from which that was raised."""
    if error is None or not error.fatal or not error.frames:
        return ()
    name = error.thread or "MainThread"
    return (ThreadStack(0, name, error.frames, main=name == "MainThread", source="error"),)


def of_program(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames from the user's outermost one inwards; all of them where none is the user's."""
    own = [n for n, each in enumerate(frames) if not each.native and origin(each.file) == "user"]
    return frames[: own[-1] + 1] if own else frames


@lru_cache(maxsize=8192)
def via(frames: tuple[Frame, ...]) -> int:
    """A checksum of the lines of packages in a whole call path, the same on all machines; 0 where there are none.

    One line of the user's leads to all that a trainer calls, and one helper of a package's makes the calls of many.
    What has started the user's program, such as a debugger or a profiler on one rank, is left out.
    """
    lines = of_origin(of_program(frames), "package")
    return crc32("|".join(f"{_IN_PACKAGES.sub('', each.file)}:{each.line}" for each in lines).encode()) if lines else 0


def told(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """The frames that tell call sites apart: the user's own, and the function of torch's that was called.

    Where an installed package called that, such as a trainer, its innermost frame is one of them: one line of the
    user's leads to all that a trainer calls.
    """
    where = user_frame(frames)
    if where is None:
        return frames[:1]
    at = frames.index(where)
    package = next((n for n, each in enumerate(frames[:at]) if origin(each.file) == "package"), at)
    engine = tuple(each for each in frames[: max(package - 1, 0)] if each.function == ENGINE)
    inner = frames[max(package - 1, 0) : package + (package < at)]
    return (*engine, *inner, where, *(each for each in frames[at + 1 :] if origin(each.file) == "user"))


_TRACE_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
