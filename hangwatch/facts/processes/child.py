"""A process that a rank has started, a loader worker or any other: where it stands, and what it waits for.

A fork copies one thread only. A lock that another thread held, and a thread pool whose threads were not copied, keep
the child waiting for ever, if nothing in the child can give what it waits for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from hangwatch import words
from hangwatch.model import Frame, LoaderFacts, ProcessEvidence, ProcessFacts, ThreadStack
from hangwatch.ranks.thread_stacks import runs_users_code
from hangwatch.ranks.view import RankView
from hangwatch.stacks.activity import Activity, Doing
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import name_of, user_frame

CHILD_IDLE_CPU_S = 0.05  # of a process that waits; on a busy machine one that computes gets little
CHILD_QUIET_IO = 64 << 10  # bytes between two samples; a child writes nothing for us
_FORKED = re.compile(r"/(multiprocess(ing)?|billiard)/process\.py$")
_OF_COMMANDS = re.compile(r"/subprocess\.py$")
_OF_CHILDREN = re.compile(r"/(multiprocess(ing)?|billiard|concurrent/futures|joblib)/|/subprocess\.py$")
WAIT_CALLS = frozenset({"wait4", "waitid"})
_READS = frozenset({"read", "readv", "recvfrom", "recvmsg"})  # Python polls what it reads with a timeout
COMMAND_SHOWN = 60  # characters of a child's command line
HELPER = "helper"  # the role of processes that Python starts for itself, such as the resource tracker
_QUEUES = re.compile(r"/(multiprocess(ing)?|billiard)/queues\.py$")


@dataclass(frozen=True)
class Child:
    """One process of a rank: its evidence, and what follows from it alone."""

    evidence: ProcessEvidence

    @property
    def pid(self) -> int:
        return self.evidence.facts.pid

    @property
    def facts(self) -> ProcessFacts:
        return self.evidence.facts

    @property
    def state(self) -> str:
        return self.evidence.facts.state

    # -------------------------------------------------------------- where it stands

    @cached_property
    def stack(self) -> ThreadStack | None:
        return next((stack for stack in self.evidence.stacks if stack.main), None)

    @cached_property
    def inner(self) -> tuple[Frame, ...]:
        """The frames of its own work. What lies further out in a forked child are frames of its parent."""
        frames = self.stack.frames if self.stack is not None else ()
        return next((frames[:depth] for depth, frame in enumerate(frames) if self.begins(frame)), frames)

    def begins(self, frame: Frame) -> bool:
        """Whether its own work was called from this frame."""
        return name_of(frame.function) == "_bootstrap" and bool(_FORKED.search(frame.file))

    @cached_property
    def now(self) -> Activity:
        """What its main thread does, by the frames of its own work."""
        return activity(ThreadStack(self.pid, "", self.inner, main=True))

    @property
    def idle(self) -> bool:
        """It waits for work: no code of the program's own is in the call of a queue's get."""
        return user_frame(self.inner) is None and any(
            name_of(frame.function) == "get" and _QUEUES.search(frame.file) for frame in self.inner
        )

    @property
    def where(self) -> Frame | None:
        return user_frame(self.inner)

    @property
    def place(self) -> str:
        where = self.where or (self.inner[0] if self.inner else None)
        return f"{name_of(where.function)} ({words.place(where)})" if where is not None else "code that shows no frames"

    @property
    def steady(self) -> bool:
        """Two samples agree on where it stands."""
        before = next((stack.frames for stack in self.evidence.earlier_stacks if stack.main), None)
        return self.stack is not None and before is not None and _python(before) == _python(self.stack.frames)

    # -------------------------------------------------------------- life

    @property
    def dead(self) -> bool:
        return self.state in ("X", "Z")

    @property
    def reaped(self) -> bool:
        """It ended between two samples and left no zombie: its parent has noticed that, and goes on."""
        return self.state == "X"

    @property
    def works(self) -> bool:
        """It uses the processor, moves bytes, or gets on in its code."""
        if self.dead or self.state in ("T", "t"):
            return False
        if self.computes or self.moves_data:
            return True
        return bool(self.evidence.earlier_stacks) and not self.steady

    @property
    def moves_data(self) -> bool:
        """It reads or writes files, or receives data."""
        return (self.facts.io_delta_bytes or 0) > CHILD_QUIET_IO or bool(self.facts.received_delta_bytes)

    @property
    def computes(self) -> bool:
        """It uses the processor, or would if one were free."""
        facts = self.facts
        return (facts.cpu_delta_s or 0) > CHILD_IDLE_CPU_S or facts.state == "R" or facts.system_call == ""

    # -------------------------------------------------------------- the fork

    @property
    def alone(self) -> bool:
        """It waits for what only another thread of its own process could give, and there is none that could."""
        return self.facts.deadlocked and self.steady

    @property
    def waits_for_lock(self) -> bool:
        """It stands in a lock of its own process, and no other thread of it runs the user's code.

        At its end it waits for the thread that writes what it has put into a queue, until its parent reads that.
        """
        if self.works:
            return False
        if self.stack is None:
            return self.facts.deadlocked  # the kernel says it where its frames could not be read
        others = (stack for stack in self.evidence.stacks if not stack.main)
        if any(map(runs_users_code, others)) or self.now.doing is Doing.QUEUE_FEEDER:
            return False
        return self.facts.private_wait or (self.now.doing is Doing.LOCK and not self._in_semaphore)

    @property
    def _in_semaphore(self) -> bool:
        """It stands in a semaphore that processes share: in one of the program's, or in that of a queue which is full.

        A lock of threads never stands right below a queue's own code.
        """
        python = next((frame.file for frame in self.inner if not frame.native), "")
        named = any(frame.native and "SemLock_acquire" in frame.function for frame in self.inner)
        return named or bool(_QUEUES.search(python)) or any("/synchronize.py" in frame.file for frame in self.inner)

    def forked_from(self, rank: ProcessFacts | None, loader: LoaderFacts | None = None) -> bool:
        """A forked process keeps the command line of its parent."""
        if loader is not None and loader.start_method in ("spawn", "forkserver"):
            return False
        return rank is None or not rank.command or self.facts.command == rank.command

    # -------------------------------------------------------------- in words

    @property
    def as_child(self) -> str:
        """`child process 77 (`gzip -dc`), which is in write on pipe:[4]`."""
        facts = self.facts
        file = f" on {facts.blocked_on.path}" if facts.blocked_on is not None else ""
        doing = f", which is in {facts.system_call}{file}" if facts.system_call else ""
        return f"child process {self.pid} (`{facts.command[:COMMAND_SHOWN]}`){doing}"

    @property
    def no_owner(self) -> str:
        """Why nothing in it can let go of what it waits for."""
        others = (self.facts.threads or 1) - 1
        left = f"its {words.plural(others, 'other thread')} {words.verb(others, 'waits', 'wait')} in the same way"
        return (
            "it waits for a lock that only another thread of it could let go, and"
            f" {left if others else 'it has no other thread'}"
        )


def waits_for_children(view: RankView) -> bool:
    """The rank waits for what a process that it has started gives: its end, a result, bytes of a pipe."""
    process = view.evidence.process
    if process is None or view.now.in_collective or view.works:
        return False
    if process.system_call in WAIT_CALLS or process.waits_for is not None:
        return True
    pipe = process.blocked_on is not None and process.blocked_on.is_pipe
    return pipe or any(_OF_CHILDREN.search(frame.file) for frame in _inside(view))


def stands_in_subprocess(stack: ThreadStack) -> bool:
    """A thread waits for a command that it has started with `subprocess`."""
    return any(_OF_COMMANDS.search(frame.file) for frame in stack.frames)


def awaits_child(view: RankView, child: ProcessFacts) -> bool:
    """The rank waits, without a timeout, for the end of that very child, for its output, or for its answer."""
    process = view.evidence.process
    if process is None or view.now.in_collective or view.works or not view.steady:
        return False
    if process.system_call in WAIT_CALLS and process.waits_for == child.pid:
        return True
    file = process.blocked_on if process.system_call in _READS else None
    if file is None:
        return False
    answers = (f"socket {end.remote} -> {end.local}" for end in child.sockets)  # the rank's end of each connection
    return file.path in answers or any(file.path == pipe.path for pipe in child.standard_pipes)


def own_children(view: RankView) -> tuple[Child, ...]:
    """The processes that the program of a rank has started, ended ones too, without those of Python itself."""
    return tuple(Child(each) for each in view.evidence.children if each.role != HELPER)


def idle_children(view: RankView) -> tuple[Child, ...]:
    """The children of whose results a rank waits, where all of them wait for work: a task was lost on its way.

    So it is after the death of a pool's process: the pool starts another one, which does not take over the task. Where
    a thread of the rank runs the program's code, it may have more work for them.
    """
    children = own_children(view)
    if not waits_for_children(view) or thread_of_parent(view) is not None:
        return ()
    return children if all(child.idle and not child.works for child in children) else ()


def _inside(view: RankView) -> tuple[Frame, ...]:
    """The frames that the user's line has called."""
    frames = view.evidence.main_stack
    return frames[: frames.index(view.main.where)] if view.main.where in frames else frames


def thread_of_parent(view: RankView) -> ThreadStack | None:
    """A thread of the rank, beside the main one, that runs the program's code."""
    return next((stack for stack in view.evidence.stacks if not stack.main and runs_users_code(stack)), None)


def _python(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return tuple(frame for frame in frames if not frame.native)
