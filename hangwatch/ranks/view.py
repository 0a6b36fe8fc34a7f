"""One rank of a case: its evidence, and what follows from it alone."""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from functools import cached_property

from hangwatch.model import (
    Culprit,
    ExceptionFacts,
    Frame,
    LoaderFacts,
    Phase,
    ProcessFacts,
    RankEvidence,
    Reading,
    StepName,
    ThreadStack,
)
from hangwatch.ranks.last_words import Kind, last_words
from hangwatch.ranks.processes import IDLE_CPU_S, computes, is_chosen, without_its_call
from hangwatch.ranks.thread_stacks import awaits_a_thread, python_of, runs_users_code, stack_of, waits_for_a_lock
from hangwatch.stacks.activity import COLLECTIVE_WAITS, Activity, Doing, Within
from hangwatch.stacks.classify import activity
from hangwatch.stacks.frames import may_communicate, origin
from hangwatch.stacks.innermost import computes_gradients_in_driver

QUIET_IO = 1 << 20  # bytes read and written between two samples: a rank that answers us may import some modules first
QUIET_WRITES = 64 << 10  # bytes written, those for us left out
SAME_MOMENT_S = 0.5  # seconds; progress that was recorded so shortly after an error does not mean that it was handled
OLD_WORDS_S = 5.0  # seconds; a board whose ticker has been silent for longer has a stale heartbeat
_AFTER_THE_END = frozenset({None, -signal.SIGABRT, -signal.SIGTERM})
OVER = frozenset({Phase.DESTROYED, Phase.MAIN_DONE, Phase.ATEXIT, Phase.FINALIZING})
_AFTER_MAIN = OVER - {Phase.DESTROYED}
_START = frozenset({Doing.RENDEZVOUS, Doing.NEW_GROUP, Doing.DESTROY})
_ON_FILES = frozenset(
    {"read", "pread64", "readv", "preadv", "write", "pwrite64", "writev", "pwritev", "openat", "fsync", "fdatasync"}
)
_IDLERS = frozenset({Doing.LOCK, Doing.SLEEP, Doing.JOIN_CHILD, Doing.JOIN_THREADS, Doing.EVENTS})


@dataclass(frozen=True)
class RankView:
    """One rank: its evidence and what follows from it alone.

    `followed`: another rank had failed before this one ended, of whose end nothing is known. `returned`: a package ran
    the program's function in a thread, which has ended.
    """

    rank: int
    evidence: RankEvidence
    sampled_twice: bool
    followed: bool = False
    returned: bool = False

    @property
    def reading(self) -> Reading | None:
        return self.evidence.reading

    @property
    def pid(self) -> int | None:
        reading = self.reading
        return self.evidence.pid or (reading.identity.pid if reading is not None else None)

    @property
    def phase(self) -> Phase | None:
        return None if self.reading is None else self.reading.phase

    @property
    def lasting_threads(self) -> tuple[int, ...]:
        """Threads of which the rank itself says that they are no daemons; empty where it does not say."""
        return (self.reading.lasting_threads or ()) if self.reading is not None else ()

    @cached_property
    def threads(self) -> tuple[Activity, ...]:
        return tuple(activity(stack) for stack in self.evidence.stacks)

    @cached_property
    def main(self) -> Activity:
        """What the main thread does."""
        return next((thread for thread in self.threads if thread.main), Activity(Doing.NOTHING))

    @cached_property
    def now(self) -> Activity:
        """What the training thread does: the main one, or another where that trains and the main one only waits."""
        if self.main.in_collective or self.phase in OVER:
            return self.main
        if self.returned:
            return Activity(Doing.NOTHING)
        others = [thread for thread in self.threads if not thread.main and thread.in_collective]
        hosted = self.hosted
        unseen = self.dead and self.main.doing is Doing.NOTHING  # of its end the trace of one thread may be left
        idles = self.main.doing in _IDLERS or waits_for_a_lock(self.main, self.evidence.process)
        if len(others) == 1 and (hosted or unseen or idles):
            return self._asked_for(others[0])
        return hosted[0] if len(hosted) == 1 and not others else self.main

    def _asked_for(self, thread: Activity) -> Activity:
        """`thread`; where none of the user's lines leads to it, with the line at which the main thread awaits it."""
        main = self.main
        if thread.where is not None or main.where is None or not self.main_waits_for_a_thread:
            return thread
        return replace(
            thread, where=main.where, block=main.block, in_loop=main.in_loop, loop=main.loop, guard=main.guard
        )

    @cached_property
    def serves_a_package(self) -> bool:
        """The main thread runs a package's loop, such as an actor's, and nothing of the user's or of torch."""
        stack = next((stack for stack in self.evidence.stacks if stack.main), None)
        found = {origin(frame.file) for frame in stack.frames if not frame.native} if stack is not None else set()
        return "package" in found and found.isdisjoint(("user", "torch"))

    @cached_property
    def hosted(self) -> tuple[Activity, ...]:
        """The threads that run the user's program for the package that the main one serves."""
        pairs = zip(self.threads, self.evidence.stacks, strict=True) if self.serves_a_package else ()
        return tuple(thread for thread, stack in pairs if not stack.main and runs_users_code(stack))

    @property
    def where(self) -> Frame | None:
        return self.now.where

    @property
    def waits_for_sure(self) -> bool:
        """Its training thread surely waits for a collective, and does not compute or read on the way to one.

        A blocking call of torch.distributed shows it by its own frame. Backward has none for the wait: there a native
        frame shows it, or `sleeps_privately` where no device is about.
        """
        now = self.now
        in_python = now.doing is Doing.WORK_WAIT and now.frame is not None and not now.frame.native
        return now.doing is Doing.COLLECTIVE or now.native or in_python

    @property
    def in_kernel(self) -> ProcessFacts | None:
        """The facts of its process, with a system call only where that is one of the thread that trains.

        The system is asked for the call of the main thread alone, and that may serve a package's event loop.
        """
        process = self.evidence.process
        if process is None or self.now.main or self.now.doing is Doing.NOTHING:
            return process
        return without_its_call(process)

    @property
    def sleeps(self) -> bool:
        """It sleeps for some time. `time.sleep` has no frame of its own: the thread's system call shows it."""
        process, doing = self.in_kernel, self.now.doing
        in_call = process is not None and "sleep" in (process.system_call or "")
        return doing is Doing.SLEEP or (doing is Doing.CODE and in_call)

    @property
    def sleeps_privately(self) -> bool:
        """Its training thread sleeps without a timeout for what only its own process can give."""
        process = self.in_kernel
        return self.idle and process is not None and process.private_wait

    def threads_that_may_communicate(self) -> list[str]:
        """Names of other threads that could issue a collective: those in one, and those that run the user's code.

        That a thread has issued none so far says nothing of what it will do.
        """
        return [thread.thread or str(thread.thread_id) for thread, _ in self.others_that_may_communicate]

    @cached_property
    def others_that_may_communicate(self) -> list[tuple[Activity, ThreadStack]]:
        """The same threads, each with its stack."""
        return [
            (thread, stack)
            for thread, stack in zip(self.threads, self.evidence.stacks, strict=True)
            if thread.thread_id != self.now.thread_id and not (thread.main and self.main_waits_for_a_thread)
            if thread.in_collective or may_communicate(stack.frames)
        ]

    @cached_property
    def main_waits_for_a_thread(self) -> bool:
        """The main thread is in the join of another thread or in the result of its future, without a timeout."""
        process = self.evidence.process
        timed = process is not None and bool(process.system_call) and not process.private_wait
        return not timed and any(awaits_a_thread(stack) for stack in self.evidence.stacks if stack.main)

    @property
    def guarded(self) -> bool:
        """It is at a place that only some ranks reach: behind a rank check, or in what programs do on one rank.

        Evaluations and checkpoints count only where the source does not show that every rank reaches them.
        """
        if self.now.guard in ("rank", "none"):
            return self.now.guard == "rank"
        evaluates = self.phase is Phase.EVAL and Within.BUFFERS in self.now.within
        return evaluates or Within.CHECKPOINT in self.now.within

    # -------------------------------------------------------------- life

    @property
    def state(self) -> str:
        return self.evidence.process.state if self.evidence.process is not None else ""

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None where it lives, or the code is not known."""
        return self.evidence.process.exit_code if self.evidence.process is not None else None

    @property
    def dead(self) -> bool:
        return self.state in ("X", "Z")

    @property
    def stopped(self) -> bool:
        return self.state in ("T", "t")

    @property
    def over(self) -> bool:
        """Its training has ended: the process group is destroyed, or the program is done."""
        return self.phase in OVER or self.returned

    @property
    def finished(self) -> bool:
        """Gone as it should be: with exit code 0, or not known to be otherwise after the main program's end.

        A clean exit may end in SIGABRT, in destructors of torch's gloo, or in its launcher's SIGTERM if the others have
        failed meanwhile: that does no harm any more. After the end a program may also choose an exit code of its own,
        and Ray ends its workers with 1, of which no error of the user's makes an end.
        """
        code = self.exit_code
        if not self.dead or self.phase is Phase.FAILED or self.raised:
            return False
        no_harm = code in _AFTER_THE_END or is_chosen(code) or (code == 1 and self._is_a_worker_of_ray)
        return code == 0 or (self.over and not self.lost_a_peer and no_harm)

    @property
    def _is_a_worker_of_ray(self) -> bool:
        return self.reading is not None and "/ray/_private/workers/" in self.reading.identity.command

    @property
    def ended_well(self) -> bool:
        """Gone as it should be, or on its way out of a main program that ended without an error.

        The interpreter and torch take a second to be taken down, and peers that lose it fail in that second.
        """
        ends = not self.dead and not self.raised and not self.lost_a_peer
        return self.finished or (ends and self.phase in _AFTER_MAIN)

    @property
    def exception(self) -> ExceptionFacts | None:
        """The last exception that it has recorded."""
        return self.reading.exception if self.reading is not None else None

    def progressed_since(self, error: ExceptionFacts) -> bool:
        """It has made progress since `error` was recorded."""
        return self.reading is not None and self.reading.progress.at - SAME_MOMENT_S > error.at

    @property
    def raised(self) -> bool:
        """An uncaught exception is on its way out, or has ended it."""
        return self.exception is not None and self.exception.fatal

    @cached_property
    def lost_a_peer(self) -> bool:
        """It caught, in its last step, the error by which it lost a peer: that is why it left whatever it was in."""
        error = self.exception
        if error is None or error.fatal or error.step is None or error.step != self.step.step:
            return False
        lost = any(word.kind is Kind.CONNECTION for word in last_words(error.message))
        return lost and bool(error.frames) and origin(error.frames[0].file) == "torch"

    @property
    def failed(self) -> bool:
        """It has died in the middle of its work, or is dying of an error."""
        return (self.dead and not self.finished) or self.raised

    @property
    def silent_s(self) -> float | None:
        """For how long its own ticker thread has not run; None without a board."""
        return self.reading.taken_at - self.reading.ticker_at if self.reading is not None else None

    @property
    def left_by_error(self) -> bool:
        """The stack of its main thread is that of the error which has taken it out of its main program."""
        return any(stack.main and stack.source == "error" for stack in self.evidence.stacks)

    @property
    def cpu(self) -> float | None:
        return self.evidence.process.cpu_delta_s if self.evidence.process is not None else None

    @property
    def idle(self) -> bool:
        """Known to use no processor time, and not waiting for a processor either."""
        return self.cpu is not None and self.cpu <= IDLE_CPU_S and not self._runs

    @property
    def busy(self) -> bool:
        """It uses the processor, and not only to spin in a wait."""
        return self.cpu is not None and self.cpu > IDLE_CPU_S and not self.spins

    @property
    def moves_data(self) -> bool:
        """It reads or writes files, or receives data."""
        process = self.evidence.process
        if process is None:
            return False
        moved = (process.io_delta_bytes or 0) > QUIET_IO or (process.written_delta_bytes or 0) > QUIET_WRITES
        return moved or self.receives

    @property
    def receives(self) -> bool:
        """Data came over the connection that it waits on: no other rank's, and not the answers of the job's store."""
        process = self.in_kernel
        waits_for_ranks = self.now.doing in COLLECTIVE_WAITS | _START
        return process is not None and bool(process.received_delta_bytes) and not waits_for_ranks

    @property
    def works(self) -> bool:
        """Shows any sign of work: a counter moved, the processor is used, bytes flow, a child computes."""
        if self.dead or self.stopped:
            return False
        return self.busy or self.starved or self.works_besides

    @property
    def works_besides(self) -> bool:
        """Shows a sign of work that is not its own use of the processor."""
        if self.dead or self.stopped:
            return False
        if self.evidence.moved or self.moves_data:
            return True
        return any(computes(child.facts) for child in self.evidence.children)

    @property
    def starved(self) -> bool:
        """Ready to run, on a machine whose processors are taken."""
        return self._runs and self.cpu != 0.0 and not self.spins

    @property
    def _runs(self) -> bool:
        """It has a processor or waits for one: that state is the main thread's, which need not be the one that trains.

        Under Ray, for example, the main thread serves an event loop beside the training.
        """
        return self.state == "R" and (self.now.main or self.now.doing is Doing.NOTHING)

    @property
    def computes_or_reads(self) -> bool:
        """The thread that trains computes, or is in a system call on a file: neither is a wait for another rank.

        Waits for ranks sleep in calls of many kinds, which the system may restart under other names.
        """
        process = self.in_kernel
        return (self._runs and self.busy) or (process is not None and process.system_call in _ON_FILES)

    @cached_property
    def spins(self) -> bool:
        """It takes a processor to wait for its device, for members of a communicator that is made, or for any data.

        A native frame shows it: its own, which may not have been taken where others stand in the same Python frames.
        """
        now, dry = self.now, self.loader is not None and self.loader.gives_nothing
        in_backward = now.doing is Doing.BACKWARD and self.steady
        full = in_backward and any(computes_gradients_in_driver(stack.frames) for stack in self.evidence.stacks)
        return now.doing is Doing.DEVICE or now.spins or now.joins or full or dry

    @property
    def steady(self) -> bool:
        """Two samples agree on where the training thread stands, and no counter moved between them."""
        return self.sampled_twice and not self.evidence.moved and self._same_stack

    @cached_property
    def _same_stack(self) -> bool:
        now, before = (stack_of(each, self.now) for each in (self.evidence.stacks, self.evidence.earlier_stacks))
        return now is not None and before is not None and python_of(now) == python_of(before)

    # -------------------------------------------------------------- where it is in the training

    @property
    def step(self) -> StepName:
        if self.reading is None:
            return StepName()
        progress = self.reading.progress
        return StepName(progress.epoch, progress.batch, progress.step if progress.step >= 0 else None)

    @property
    def loaders(self) -> tuple[LoaderFacts, ...]:
        """The loaders on its board, for training or not; empty without a board."""
        return self.reading.loaders if self.reading is not None else ()

    @cached_property
    def loader(self) -> LoaderFacts | None:
        """The training loader used last; None where there is none."""
        loaders = [loader for loader in self.loaders if loader.training]
        return max(loaders, key=lambda loader: (loader.epoch, loader.drawn), default=None)

    def culprit(self, where: Frame | None = None) -> Culprit:
        host = self.evidence.host or (self.reading.identity.host if self.reading else "")
        return Culprit(self.rank, self.pid, host, where=where or self.where)
