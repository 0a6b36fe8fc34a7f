"""What keeps a job from ending."""

from __future__ import annotations

from hangwatch.model import Stage

from .cause import Cause

EXIT = (
    Cause(
        "exit-non-daemon-thread",
        Stage.EXIT,
        "A thread keeps the process alive",
        "The main program is over; the interpreter waits for a thread that is no daemon.",
        "threading.Thread(..., daemon=True), or tell it to stop and join it before the end",
        ("exit-child-process", "exit-queue-feeder"),
    ),
    Cause(
        "exit-child-process",
        Stage.EXIT,
        "A child process keeps the process alive",
        "The main program is over; multiprocessing waits for a child that still runs.",
        "process.terminate(); process.join() before the end, or Process(..., daemon=True)",
        ("exit-non-daemon-thread", "exit-queue-feeder"),
    ),
    Cause(
        "exit-queue-feeder",
        Stage.EXIT,
        "A queue that is never emptied keeps the process alive",
        "A multiprocessing queue still holds data, and its feeder thread waits for a reader.",
        "read the queue until it is empty, or queue.cancel_join_thread() if the data may be lost",
        ("exit-non-daemon-thread", "exit-child-process"),
    ),
    Cause(
        "exit-atexit-handler",
        Stage.EXIT,
        "An exit handler does not return",
        "The main program is over; a function registered with atexit still runs.",
        "give what it waits for a timeout",
        ("exit-non-daemon-thread", "exit-destructor"),
    ),
    Cause(
        "exit-destructor",
        Stage.EXIT,
        "A destructor does not return",
        "The interpreter is being taken down, and an object's destructor still runs.",
        "close the object before the end instead of leaving it to `__del__`",
        ("exit-atexit-handler",),
    ),
    Cause(
        "exit-orphan-holds-pipe",
        Stage.EXIT,
        "An orphan holds the output open",
        "Training is over, but a process that it started still holds its output, and the reader waits for its end.",
        "end that process; do not let it inherit stdout and stderr",
        ("exit-launcher-order",),
    ),
    Cause(
        "exit-destroy-asymmetric",
        Stage.EXIT,
        "Some ranks left while others still communicate",
        "Some ranks have destroyed the process group while others still wait in a collective of it.",
        "end with dist.barrier() before dist.destroy_process_group() on every rank, after the last collective",
        ("uneven-steps", "early-exit"),
    ),
    Cause(
        "exit-launcher-order",
        Stage.EXIT,
        "The launcher waits for the wrong child",
        "The launcher waits for one rank while another one is dead already.",
        "poll all children and end the others when one fails, or use torchrun",
        ("rank-died",),
    ),
    Cause(
        "output-pipe-full",
        Stage.EXIT,
        "No process reads the output",
        "A rank writes to a pipe that is full because its reader does not read.",
        "read the pipe in the launcher all the time, or let the ranks write to files",
        ("user-code-blocked",),
    ),
)
