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
from hangwatch_agent.board import directory, local_reader, reader
from hangwatch_agent.board.layout import BoardError
from hangwatch_agent.board.reader import request_collectives
from hangwatch_agent.capture import CaptureOptions, Target, capture, with_native_stacks
from hangwatch_agent.capture.gpu import Gpus
from hangwatch_agent.capture.gpu_strangers import with_strangers
from hangwatch_agent.capture.proc.node import oom_kills
from hangwatch_agent.capture.proc.variables import digests
from hangwatch_agent.capture.rank.outputs import log_files, unreadable
from hangwatch_agent.capture.rank.ras import Ras
from hangwatch_agent.capture.rank.torch_dumps import TorchDumps
from hangwatch_agent.peers.peers import Peers
from hangwatch_agent.peers.plan_files import PlanFiles
from hangwatch_agent.peers.plans import SharedPlans
from hangwatch_agent.roster.rank_states import RankState
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.job_identity import job_identity
from hangwatch_agent.shared.redact import redact_command
from hangwatch_agent.watchdog.dashboard_exchange import DashboardExchange, Link
from hangwatch_agent.watchdog.incidents import Incidents
from hangwatch_agent.watchdog.loop import Watchdog
from hangwatch_agent.watchdog.node_look import NodeLook
from hangwatch_agent.watchdog.peer_exchange import PeerExchange
from hangwatch_agent.watchdog.response import Response

NVIDIA = Path("/dev/nvidiactl")  # where there is a driver
KEEP_EVERY_S = 2.0  # between looks for dumps that torch has written
NATIVE_S = 3.0  # for the native frames of all processes together


def watchdog(folder: Path, settings: Settings, job: Job, *, root: int | None) -> Watchdog:
    """The watchdog of the boards in `folder`. `root` is the process that `hangwatch run` started, if it did."""
    incidents = Incidents(settings.report_dir, sys.stderr)
    response = Response(incidents)
    kept_in = Path(settings.report_dir) / f"torch-dumps-{folder.name}"
    dumps = TorchDumps(folder, kept_in) if settings.torch_dumps else None
    evidence = Evidence(job, root=root, run_id=folder.name, dumps=dumps)
    made = Watchdog(folder, settings, job, evidence, response, root=root)
    made.remember = evidence.remember
    made.keep = evidence.keep_dumps
    link = _link(settings, job, incidents)
    if link is not None:
        made.dashboard = DashboardExchange(link)
    else:
        node = f"{platform.node()}-{os.getpid()}"
        peers = Peers(settings.report_dir, node, say=incidents.say)
        made.peer_exchange = PeerExchange(peers, response, plans=SharedPlans(PlanFiles(settings.report_dir, node)))
    watch = HealthWatch()
    look = NodeLook(evidence.gpus, NVIDIA.exists, tell=link.of_node if link is not None else None)
    made.health = lambda readings: (*watch(readings), *look(readings))
    made.pace = watch.pace
    if settings.native_stacks:
        response.deepen = _with_native_stacks
    response.on_hang = made.end
    return made


def _link(settings: Settings, job: Job, incidents: Incidents) -> Link | None:
    """The way to the dashboard, if there is to be one. A bad address is named, and the watch goes on."""
    if not settings.dashboard:
        return None
    from hangwatch_agent.dashboard_client import connection, link  # imported only where there is a dashboard

    try:
        made = link.Link(settings, directory.spool(settings), job, say=incidents.say)
    except (connection.AddressError, OSError) as error:
        incidents.say(f"hangwatch: no dashboard: {error}")
        return None
    if settings.token and addresses.exposes_token(settings.dashboard):
        incidents.say(
            f"hangwatch: warning: the token travels in the clear to {addresses.shown(settings.dashboard)}; use https://"
        )
    incidents.told = made.incident
    return made


def job_of_command(command: Sequence[str], settings: Settings) -> Job:
    """The job that `hangwatch run` watches."""
    identifier, name = job_identity(os.environ, job=settings.job, parent=os.getpid(), command=command)
    text = redact_command(command)
    return Job(id=identifier, name=name, world_size=None, command=text, started_at=steady_clock.time())


def job_of_environment(settings: Settings) -> Job:
    """The job of the rank that attached."""
    identifier, name = job_identity(os.environ, job=settings.job, parent=os.getppid())
    return Job(id=identifier, name=name, world_size=None, started_at=steady_clock.time())


class Evidence:
    """The watchdog's way to a snapshot: all captures of this machine, kept ready (NVML is started once)."""

    def __init__(self, job: Job, *, root: int | None, run_id: str, dumps: TorchDumps | None = None) -> None:
        self._job = job
        self._dumps = dumps
        self._ras = Ras()
        self._listens = False
        self._kept_at = 0.0
        self._root = root
        self._run_id = run_id
        self._options = CaptureOptions(
            request_collectives=request_collectives,
            taken_up=reader.request_taken_up,
            oom_kills_before=oom_kills(),
            clock=steady_clock.time,
        )
        self._logs: dict[Path, tuple[tuple[Path, ...], str]] = {}  # by board: those of the dead can no longer be found
        self._logs_of_root: tuple[Path, ...] = ()
        self._variables: dict[Path, dict[str, str] | None] = {}  # by board, of those that lived when they were seen

    @property
    def gpus(self) -> Gpus:
        """NVML, which is started once."""
        return self._options.gpus

    def remember(self, rank_states: Sequence[RankState]) -> None:
        """Note what can be known of a process only while it lives: where its output goes, and its environment.

        The driver reports errors only to listeners, as they happen: from the first rank on, where it has one.
        """
        if not self._listens and any(each.alive for each in rank_states) and NVIDIA.exists():
            self._listens = True
            self._options.gpus.start()
        if self._dumps is not None and steady_clock.time() - self._kept_at > KEEP_EVERY_S:
            self._kept_at = steady_clock.time()
            self._dumps.keep_rest()
        if self._root is not None and not self._logs_of_root:
            self._logs_of_root = log_files(self._root)
        for each in rank_states:
            if each.path not in self._logs and each.visible and each.alive:
                self._logs[each.path] = log_files(each.pid), unreadable(each.pid)
                self._variables[each.path] = digests(each.pid)

    def _logs_known_of(self, board: Path) -> tuple[tuple[Path, ...], str]:
        """The logs of a rank; of one that ended before it was seen alive those that its launcher and others share."""
        if board in self._logs:
            return self._logs[board]
        theirs = {path for paths, _ in self._logs.values() for path in paths}
        return tuple(path for path in self._logs_of_root if path in theirs), ""

    def __call__(self, rank_states: Sequence[RankState], sleep: Callable[[float], bool]) -> Snapshot:
        self.remember(rank_states)
        woken = False

        def nap(seconds: float) -> None:
            nonlocal woken
            woken = sleep(seconds) or woken

        taken = capture(
            [self._target(each) for each in rank_states],
            reread=_reread,
            root=self._root,
            run_id=self._run_id,
            options=replace(self._options, sleep=nap),
        )
        taken = with_strangers(taken)
        taken = self._ras.completed(self._dumps.completed(taken) if self._dumps is not None else taken)
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
            switches=taken.switches,
            store_keys=taken.store_keys,
        )

    def _target(self, state: RankState) -> Target:
        logs, unreadable_output = self._logs_known_of(state.path)
        variables = self._variables.get(state.path)
        return Target(state.reading, state.path, logs, unreadable_output, state.visible, variables)

    def keep_dumps(self) -> str:
        """Keep the dumps that torch has written for this job. A sentence that says where; "" where there are none."""
        kept = self._dumps.keep_rest() if self._dumps is not None else None
        return f"hangwatch: torch's own dumps of this job are kept in {kept}/" if kept is not None else ""


def _with_native_stacks(snapshot: Snapshot, pids: Sequence[int]) -> Snapshot:
    """Native frames of a few processes: after the verdict, because each costs half a second, and pauses its process."""
    return with_native_stacks(snapshot, pids, most_s=NATIVE_S)


def _reread(target: Target) -> Reading | None:
    try:
        return local_reader.read(target.board_path).reading
    except (BoardError, OSError):
        return None
