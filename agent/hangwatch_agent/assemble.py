"""Puts a watchdog together from settings: the one place that knows all its parts."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from hangwatch.health import HealthWatch
from hangwatch.model import Job, Reading, Snapshot
from hangwatch.settings import Settings
from hangwatch.wire import addresses
from hangwatch_agent import local, reader, rundir, steady
from hangwatch_agent.board import BoardError, request_collectives
from hangwatch_agent.capture import Means, Target, capture, with_native_stacks
from hangwatch_agent.capture.node import oom_kills
from hangwatch_agent.capture.outputs import log_files, unreadable
from hangwatch_agent.capture.redact import redact_command
from hangwatch_agent.casebook import Casebook
from hangwatch_agent.consultation import Consultation
from hangwatch_agent.conversation import Conversation, Link
from hangwatch_agent.jobname import job_identity
from hangwatch_agent.neighbours import Neighbours
from hangwatch_agent.response import Response
from hangwatch_agent.roster import Standing
from hangwatch_agent.watchdog import Watchdog

NATIVE_S = 3.0  # for the native frames of all processes together


def watchdog(folder: Path, settings: Settings, job: Job, *, root: int | None) -> Watchdog:
    """The watchdog of the boards in `folder`. `root` is the process that `hangwatch run` started, if it did."""
    casebook = Casebook(settings.report_dir, sys.stderr)
    response = Response(casebook)
    evidence = Evidence(job, root=root, run_id=folder.name)
    made = Watchdog(folder, settings, job, evidence, response, root=root)
    made.remember = evidence.remember
    link = _link(settings, job, casebook)
    if link is not None:
        made.conversation = Conversation(link)
    else:
        neighbours = Neighbours(settings.report_dir, f"{platform.node()}-{os.getpid()}", say=casebook.say)
        made.consultation = Consultation(neighbours, response)
    made.health = HealthWatch()
    if settings.native_stacks:
        response.deepen = _with_native_stacks
    response.on_hang = made.end
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
    if settings.token and addresses.exposes_token(settings.dashboard):
        casebook.say(
            f"hangwatch: warning: the token travels in the clear to {addresses.shown(settings.dashboard)}; use https://"
        )
    casebook.told = made.incident
    return made


def job_of_command(command: Sequence[str], settings: Settings) -> Job:
    """The job that `hangwatch run` watches."""
    identifier, name = job_identity(os.environ, job=settings.job, parent=os.getpid(), command=command)
    text = redact_command(command)
    return Job(id=identifier, name=name, world_size=None, command=text, started_at=steady.time())


def job_of_environment(settings: Settings) -> Job:
    """The job of the rank that attached."""
    identifier, name = job_identity(os.environ, job=settings.job, parent=os.getppid())
    return Job(id=identifier, name=name, world_size=None, started_at=steady.time())


class Evidence:
    """The watchdog's way to a snapshot: all captures of this machine, kept ready (NVML is started once)."""

    def __init__(self, job: Job, *, root: int | None, run_id: str) -> None:
        self._job = job
        self._root = root
        self._run_id = run_id
        self._means = Means(
            request_collectives=request_collectives,
            taken_up=reader.request_taken_up,
            oom_kills_before=oom_kills(),
            clock=steady.time,
        )
        self._logs: dict[Path, tuple[tuple[Path, ...], str]] = {}  # by board: those of the dead can no longer be found

    def remember(self, standings: Sequence[Standing]) -> None:
        """Note what can be known of a process only while it lives: where its output goes."""
        for each in standings:
            if each.path not in self._logs and each.visible and each.alive:
                self._logs[each.path] = log_files(each.pid), unreadable(each.pid)

    def __call__(self, standings: Sequence[Standing], sleep: Callable[[float], bool]) -> Snapshot:
        self.remember(standings)
        woken = False

        def nap(seconds: float) -> None:
            nonlocal woken
            woken = sleep(seconds) or woken

        taken = capture(
            [Target(each.reading, each.path, *self._logs.get(each.path, ((), "")), each.visible) for each in standings],
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
        return local.read(target.board_path).reading
    except (BoardError, OSError):
        return None
