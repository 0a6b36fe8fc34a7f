"""The words that records share: how certain, in which state, in which stage, in which phase."""

from __future__ import annotations

from enum import StrEnum

SCHEMA = "hangwatch.incident/2"


class Certainty(StrEnum):
    """How sure a verdict is."""

    PROVEN = "proven"
    LIKELY = "likely"
    UNDETERMINED = "undetermined"


class Status(StrEnum):
    """What became of the job."""

    HUNG = "hung"
    WAITING = "waiting"
    LINGERING = "lingering"
    FAILED = "failed"
    RECOVERED = "recovered"


class Stage(StrEnum):
    """The stage of a job's life in which it stopped."""

    START = "start"
    STEP = "step"
    DATA = "data"
    DEVICE = "device"
    EXIT = "exit"


class Phase(StrEnum):
    """What a rank was doing when a hook last heard of it."""

    START = "start"  # the probe is there; no process group yet
    INIT = "init"  # inside init_process_group
    GROUP = "group"  # inside new_group
    READY = "ready"  # process group made; no step seen yet
    DATA = "data"  # inside a loader's next()
    STEP = "step"  # between a batch and the next one, nothing finer known
    FORWARD = "forward"  # inside a wrapped model's forward
    BACKWARD = "backward"  # after a forward with gradients, before the optimizer
    OPTIMIZER = "optimizer"  # an optimizer step has been made
    EVAL = "eval"  # a forward without gradients
    BETWEEN = "between"  # a loader has ended or been left; no new batch yet
    DESTROYING = "destroying"  # inside destroy_process_group
    DESTROYED = "destroyed"  # destroy_process_group returned
    MAIN_DONE = "main-done"  # the main program has ended, threading._shutdown runs
    ATEXIT = "atexit"  # atexit callbacks run
    FINALIZING = "finalizing"  # the last atexit callback is over
    FAILED = "failed"  # an uncaught exception is on its way out
