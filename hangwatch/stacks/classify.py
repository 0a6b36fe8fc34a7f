"""What a thread is doing, told from its frames alone.

The frames between the innermost one and the user's own innermost line say in *what* the thread stands (a collective, a
queue, a lock); the frames further out say *within what* that happens (a backward pass, a checkpoint, an exit handler).
Function names are compared without their class, because py-spy gives qualified names on some Python versions only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from hangwatch.model import Frame, ThreadStack
from hangwatch.stacks.activity import Activity, Doing, Within
from hangwatch.stacks.frames import name_of, user_frame
from hangwatch.stacks.innermost import (
    A_FUTURE,
    called,
    compiling,
    joins_natively,
    launches,
    names_of,
    natively,
    serves_backward,
    spins,
    standing,
    waits_natively,
)


def activity(stack: ThreadStack) -> Activity:
    """What the thread of `stack` is doing."""
    told = _told(stack.frames, stack.main)
    return Activity(
        doing=told.doing,
        op=told.op,
        call=told.call,
        where=told.where,
        frame=told.frame,
        within=told.within,
        block=stack.block or ("with" if Within.EXIT_BLOCK in told.within else ""),
        in_loop=stack.in_loop,
        loop=stack.loop,
        guard=stack.guard,
        handler=stack.handler,
        thread=stack.name,
        thread_id=stack.thread_id,
        main=stack.main,
        exact=told.exact,
        native=told.native,
        spins=told.spins,
        joins=told.joins,
        launches=told.launches,
    )


@lru_cache(maxsize=4096)  # thousands of ranks stand in a handful of different stacks
def _told(frames: tuple[Frame, ...], main: bool) -> Activity:
    if not frames:
        return Activity(Doing.NOTHING)
    where = user_frame(frames)
    inner = frames[: frames.index(where)] if where is not None else frames
    doing, op, frame = standing(inner)
    within = frozenset(_surroundings(frames, main))
    natives = () if serves_backward(frames) else inner  # what it waits for is what the thread in backward waits for
    if doing is Doing.CODE:
        doing = natively(natives)
        op = A_FUTURE if doing is Doing.REMOTE_CALL else op
    return Activity(
        doing=doing,
        op=op,
        call=called(inner, op),
        where=where,
        frame=frame or where or frames[0],
        within=within,
        exact=doing is Doing.COLLECTIVE and Within.CHECKPOINT not in within,
        native=waits_natively(natives),
        spins=spins(natives),
        joins=joins_natively(natives),
        launches=launches(natives),
    )


def _surroundings(frames: tuple[Frame, ...], main: bool) -> Iterator[Within]:
    for frame in frames:
        name, file = name_of(frame.function), frame.file
        yield from _BY_NAME.get(name, ())
        if "/distributed/checkpoint/" in file or file.endswith("torch/serialization.py"):
            yield Within.CHECKPOINT
        elif "/fsdp/" in file:
            yield Within.SHARDED
        elif "utils/data" in file and name in ("fetch", "__next__", "_next_data"):
            yield Within.LOADER
        elif file.startswith("<frozen importlib") and name in _IMPORTS:  # py_compile uses other functions of it
            yield Within.IMPORT
    if compiling(names_of(frames)) is not None:
        yield Within.COMPILE
    outermost = next((frame for frame in reversed(frames) if not frame.native), None)
    if main and outermost is not None and name_of(outermost.function) not in _MAIN_PROGRAMS:
        yield Within.ATEXIT


_IMPORTS = frozenset({"_find_and_load", "_find_and_load_unlocked", "_load_unlocked", "_gcd_import", "exec_module"})
_MAIN_PROGRAMS = frozenset({"<module>", "_bootstrap", "spawn_main", "_run_code", "_run_module_as_main", "_shutdown"})
_BY_NAME: dict[str, tuple[Within, ...]] = {
    "_engine_run_backward": (Within.BACKWARD,),
    "_pre_forward": (Within.FORWARD,),
    "_run_ddp_forward": (Within.FORWARD,),
    "_call_impl": (Within.FORWARD,),
    "_sync_buffers": (Within.BUFFERS,),
    "_sync_module_buffers": (Within.BUFFERS,),
    "init_process_group": (Within.RENDEZVOUS,),
    "new_group": (Within.NEW_GROUP,),
    "destroy_process_group": (Within.DESTROY,),
    "_shutdown": (Within.SHUTDOWN,),
    "_exit_function": (Within.MULTIPROCESSING_EXIT,),
    "__del__": (Within.DESTRUCTOR,),
    "__exit__": (Within.EXIT_BLOCK,),
    "__aexit__": (Within.EXIT_BLOCK,),
    "optimizer_step": (Within.OPTIMIZER,),
}
