"""Puts a watchdog together from settings: the one place that knows all its parts."""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hangwatch.health import HealthWatch
from hangwatch.records import Incident, Job, Reading, Snapshot, Status
from hangwatch.settings import Settings
from hangwatch_agent import rundir
from hangwatch_agent.abort import end_idle_command, end_ranks
from hangwatch_agent.board import BoardError, read_board, request_collectives
from hangwatch_agent.capture import Means, Target, capture, with_native_stacks
from hangwatch_agent.capture.node import oom_kills
from hangwatch_agent.capture.outputs import log_files
from hangwatch_agent.capture.redact import redact_command
from hangwatch_agent.casebook import Casebook
from hangwatch_agent.consultation import Consultation
from hangwatch_agent.conversation import Conversation, Link
from hangwatch_agent.jobname import job_identity
from hangwatch_agent.neighbours import Neighbours
from hangwatch_agent.response import Response
from hangwatch_agent.roster import Standing, one_reader
from hangwatch_agent.watchdog import Watchdog

NATIVE_S = 3.0  # for the native frames of all processes together


def watchdog(folder: Path, settings: Settings, job: Job, *, root: int | None) -> Watchdog:
    """The watchdog of the boards in `folder`. `root` is the process that `hangwatch run` started, if it did."""
    casebook = Casebook(settings.report_dir, sys.stderr)
    response = Response(casebook)
    made = Watchdog(folder, settings, job, Evidence(job, root=root, run_id=folder.name), response, root=root)
    link = _link(settings, job, casebook)
    if link is not None:
        made.conversation = Conversation(link)
    else:
        neighbours = Neighbours(settings.report_dir, f"{platform.node()}-{os.getpid()}", say=casebook.say)
        made.consultation = Consultation(neighbours, response)
    made.health = HealthWatch()
    if settings.native_stacks:
        response.deepen = _with_native_stacks
    if settings.on_hang == "abort":
        response.on_hang = lambda incident: _abort(made, incident)
    return made


def _link(settings: Settings, job: Job, casebook: Casebook) -> Link | None:
    """The way to the dashboard, if there is to be one. An address that is none is named, and the watch goes on."""
    if not settings.dashboard:
        return None
    from hangwatch_agent import link, post  # only who has a dashboard pays for it

    try:
        made = link.Link(settings, rundir.spool(settings), job, say=casebook.say)
    except (post.AddressError, OSError) as error:
        casebook.say(f"hangwatch: no dashboard: {error}")
        return None
    casebook.told = made.incident
    return made


def job_of_command(command: Sequence[str], settings: Settings) -> Job:
    """The job that `hangwatch run` watches."""
    identifier, name = job_identity(os.environ, job=settings.job, parent=os.getpid(), command=command)
    text = redact_command(command)
    return Job(id=identifier, name=name, world_size=None, command=text, started_at=time.time())


def job_of_environment(settings: Settings) -> Job:
    """The job of the rank that attached."""
    identifier, name = job_identity(os.environ, job=settings.job, parent=os.getppid())
    return Job(id=identifier, name=name, world_size=None, started_at=time.time())


class Evidence:
    """The watchdog's way to a snapshot: all captures of this machine, kept ready (NVML is started once)."""

    def __init__(self, job: Job, *, root: int | None, run_id: str) -> None:
        self._job = job
        self._root = root
        self._run_id = run_id
        self._means = Means(request_collectives=request_collectives, oom_kills_before=oom_kills())
        self._logs: dict[int, tuple[Path, ...]] = {}  # by pid: the logs of the dead can no longer be found

    def remember(self, standings: Sequence[Standing]) -> None:
        """Note what can be known of a process only while it lives."""
        for each in standings:
            if each.pid not in self._logs:
                self._logs[each.pid] = log_files(each.pid)

    def __call__(self, standings: Sequence[Standing], sleep: Callable[[float], bool]) -> Snapshot:
        self.remember(standings)
        woken = False

        def nap(seconds: float) -> None:
            nonlocal woken
            woken = sleep(seconds) or woken

        taken = capture(
            [Target(each.reading, each.path, self._logs.get(each.pid, ())) for each in standings],
            reread=_reread,
            root=self._root,
            run_id=self._run_id,
            means=replace(self._means, sleep=nap),
        )
        return Snapshot(
            job=self._job,
            taken_at=taken.taken_at,
            ranks=taken.ranks,
            launchers=taken.launchers,
            others=taken.others,
            nodes=(taken.node,),
            notes=taken.notes,
            sampled_twice=taken.sampled_twice and not woken,
            excerpts=taken.excerpts,
            call_sites=taken.call_sites,
        )


def _with_native_stacks(snapshot: Snapshot, pids: Sequence[int]) -> Snapshot:
    """Native frames of a few processes: after the verdict, because each costs half a second, and pauses its process."""
    return with_native_stacks(snapshot, pids, most_s=NATIVE_S)


def _reread(target: Target) -> Reading | None:
    try:
        with one_reader:
            return read_board(target.board_path)
    except (BoardError, OSError):
        return None


def _abort(made: Watchdog, incident: Incident) -> None:
    """End the job in a thread: the watchdog goes on looking, so that a restarted job is watched too."""
    if incident.status is Status.FAILED:
        return  # it comes down by itself
    culprits = [who.pid for who in incident.verdict.culprits if who.pid is not None]
    made.aborted = True
    made.casebook.settle()

    def end() -> None:
        killed = end_ranks(made.standings, culprits, made.settings.abort_grace)
        stubborn = f"; {len(killed)} of their processes had to be killed" if killed else ""
        made.casebook.say(f"hangwatch: ended the ranks, as --on-hang abort asks{stubborn}")
        if made.root is not None and end_idle_command(made.root, made.settings.abort_grace):
            made.casebook.say("hangwatch: ended the command too: it waited for a minute without its ranks")

    threading.Thread(target=end, name="hangwatch-abort", daemon=True).start()
