"""What keeps a job from ending."""

from __future__ import annotations

from .case import Case

EXIT: tuple[Case, ...] = (
    Case(
        name="exit-heartbeat-thread",
        cause="exit-non-daemon-thread",
        script="exit_non_daemon_thread.py",
        status="lingering",
        where="beat",
    ),
    Case(
        name="exit-writer-thread",
        cause="exit-non-daemon-thread",
        script="exit_writer_thread.py",
        launcher="spawn",
        status="lingering",
        where="drain",
    ),
    Case(
        name="exit-child-process",
        cause="exit-child-process",
        script="exit_child_process.py",
        process="other",
        status="lingering",
        where="upload",
    ),
    Case(
        name="exit-queue",
        cause="exit-queue-feeder",
        script="exit_queue_feeder.py",
        launcher="plain",
        status="lingering",
    ),
    Case(
        name="exit-handler",
        cause="exit-atexit-handler",
        script="exit_atexit_handler.py",
        status="lingering",
        where="finish",
    ),
    Case(
        name="exit-destructor",
        cause="exit-destructor",
        script="exit_destructor.py",
        ranks=3,
        culprit=2,
        status="lingering",
        where="__del__",
    ),
    Case(
        name="exit-orphan",
        cause="exit-orphan-holds-pipe",
        script="exit_orphan_holds_pipe.py",
        launcher="plain",
        launch=("--output=copy",),
        process="other",
        status="lingering",
    ),
    Case(
        name="destroyed-early",
        cause="exit-destroy-asymmetric",
        script="exit_destroy_asymmetric.py",
        where="export",
        step=(2, 0),
    ),
    Case(
        name="launcher-order",
        cause="exit-launcher-order",
        script="exit_launcher_order.py",
        launcher="plain",
        immune=(0,),
        status="lingering",
    ),
    Case(
        name="output-pipe-full",
        cause="output-pipe-full",
        script="output_pipe_full.py",
        launcher="plain",
        launch=("--output=keep",),
        healthy_launch=("--output=copy",),
        process="launcher",
        where="report",
    ),
)
