"""The watchdog's loop: read the boards, notice that nothing moves, take evidence, judge, and have it acted upon.

One class for the process beside the ranks, the parent that `hangwatch run` is, and the thread in a rank. It owns no
threads of its own but the one that waits for deaths; its caller decides when to stop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from hangwatch.health import FORECASTS, device_warnings, foreign_memory, leftover_processes
from hangwatch.health.timeout_ahead import timeout_ahead
from hangwatch.judge import diagnose
from hangwatch.looks import Reason, Schedule
from hangwatch.model import (
    CaptureNote,
    Certainty,
    HealthWarning,
    Incident,
    Job,
    JobHealth,
    Judgement,
    Launched,
    RankEvidence,
    Reading,
    Snapshot,
    Status,
)
from hangwatch.settings import Settings
from hangwatch_agent.roster.nested import Nested
from hangwatch_agent.roster.patience import Holds
from hangwatch_agent.roster.rank_states import RankState, Roster
from hangwatch_agent.shared import steady_clock
from hangwatch_agent.shared.procfs import Table
from hangwatch_agent.watchdog.dashboard_exchange import DashboardExchange
from hangwatch_agent.watchdog.deaths import DeathWatch
from hangwatch_agent.watchdog.first_words import FirstWords
from hangwatch_agent.watchdog.incidents import Incidents
from hangwatch_agent.watchdog.launched_ranks import LaunchedRanks
from hangwatch_agent.watchdog.look_log import LookLog, outcome
from hangwatch_agent.watchdog.on_hang import OnHang
from hangwatch_agent.watchdog.peer_exchange import Here, PeerExchange
from hangwatch_agent.watchdog.rank_facts import RankFacts
from hangwatch_agent.watchdog.response import Response
from hangwatch_agent.watchdog.triggers import reasons, rest_after, until_next_poll
from hangwatch_agent.watchdog.unwatched_ranks import sentence, unwatched
from hangwatch_agent.watchdog.warnings import Warnings

SETTLED_POLLS = 10  # between looks at the job's processes once every rank has come

Capture = Callable[[Sequence[RankState], Callable[[float], bool]], Snapshot]
"""Takes the evidence of the ranks; the second argument sleeps, and returns True when it was woken early."""


@dataclass
class Watchdog:
    """One node's watch over one job.

    `poll()` is one round; `run()` repeats it every `settings.poll` seconds until `stop` is set or no rank is left to
    watch. Where a round has reasons to, `examine()` has evidence taken (`take_evidence()`), judges it (`judge`) and
    acts on the judgement. `close()` makes the last judgement of a job that failed. `clock` gives seconds since 1970
    and is never set (see `shared.steady_clock`). `root` is the process that `hangwatch run` started, if it did.
    """

    folder: Path
    settings: Settings
    job: Job
    capture: Capture
    response: Response
    dashboard: DashboardExchange | None = None
    peer_exchange: PeerExchange | None = None  # where there is no dashboard
    root: int | None = None
    clock: Callable[[], float] = steady_clock.time
    stop: threading.Event = field(default_factory=threading.Event)
    judge: Callable[[Snapshot], Judgement] = diagnose
    health: Callable[[Sequence[Reading]], Sequence[HealthWarning]] = lambda readings: ()
    pace: Callable[[Sequence[Reading]], JobHealth] = lambda readings: JobHealth()
    remember: Callable[[Sequence[RankState]], None] = lambda rank_states: None  # what can be known of the living only
    keep: Callable[[], str] = lambda: ""  # what would go with the job's folder; says in a sentence where it is kept

    def __post_init__(self) -> None:
        self.roster = Roster(self.folder)
        self._nested = Nested()
        self.rank_states: tuple[RankState, ...] = ()
        self.dismissed = False
        self.log = LookLog(self.clock)
        self._wake = threading.Event()
        self.ending = OnHang(self.settings, self.root, self.incidents.say, self.clock)
        self.deaths = DeathWatch(self._wake.set, self.clock)
        self.launches = LaunchedRanks(self.root, self.deaths) if self.root is not None else None
        self.launched: tuple[Launched, ...] = ()
        self._polls = 0
        self._peopled_at = 0.0  # when a rank last lived
        self._looking = threading.Lock()
        self._schedule = Schedule()
        self._rank_facts = RankFacts(self.settings, self.deaths)
        self._holds = Holds(self.settings)
        self._first_words = FirstWords(self.response.incidents.say, lambda snapshot: self.judge(snapshot))
        self.warnings = Warnings(self.incidents.say_once, self._tell_news, self._heed)

    def run(self, *, until_alone: bool = False, empty_for: float = 30.0) -> None:
        """Look until told to stop; with `until_alone`, until every rank has gone, or none came for `empty_for` s."""
        born = self.clock()
        while not self.stop.is_set():
            self._guarded("a poll", self.poll)
            living = any(each.alive for each in self.rank_states)
            if until_alone and not living and (self.rank_states or self.clock() - born > empty_for):
                return
            self._pause(until_next_poll(self.rank_states, self.clock(), self.settings.poll))

    def poll(self) -> None:
        """One round: read the boards, exchange messages with other nodes, and examine the job where that is due."""
        with self.log.poll():
            self._poll(self.clock())

    def _poll(self, now: float) -> None:
        self._read_ranks(now)
        self._count_launches(now)
        self._guarded("the comparison of steps", lambda: self._compare(now))
        self._note_progress()
        self._tell_and_hear(now)
        if not self.ending.is_over:  # what we have ended is not judged again, and a later attempt has not begun
            self._examine_if_due(now)

    def _read_ranks(self, now: float) -> None:
        self.rank_states = self.ending.remaining(self._read(now))
        if any(each.alive for each in self.rank_states):
            self._peopled_at = now
        self._rank_facts.note(self.rank_states, now)
        self.remember(self.rank_states)

    def _tell_and_hear(self, now: float) -> None:
        if (talk := self.dashboard) is not None:
            self._guarded("the exchange with the dashboard", lambda: self._exchange(talk, now))
        if (others := self.peer_exchange) is not None and not self.dismissed:
            self._guarded("the exchange with other nodes", lambda: self._exchange_with_nodes(others, now))

    def _examine_if_due(self, now: float) -> None:
        found = [*self._reasons(now), *(() if self.dismissed else self._first_words.announced(now))]
        words_due = None if self.dismissed or self.incidents.open else self._first_words.due(self.rank_states, now)
        if words_due is not None and not self._first_words.has_evidence(now):
            found.append(words_due)
        if self._schedule.due(found, now) is not None:
            self.examine(found)
        if words_due is not None and self.incidents.open is None:
            part = "what is said of a standstill"
            self._guarded(part, lambda: self._first_words.tell(self.clock(), elsewhere=self._here.is_part))

    def _reasons(self, now: float) -> list[Reason]:
        found = reasons(
            self.rank_states,
            now,
            self.settings,
            world_size=self.world_size,
            growth=self.response.growth,
            launched=self.launched,
            no_rank_since=self._no_rank_since,
        )
        return [reason for reason in found if not self.dismissed or reason.kind == "lingering"]

    def _note_progress(self) -> None:
        told = self.incidents.open is not None
        if not self.dismissed:  # how ranks move on a signal is no sign of recovery
            self.response.look(self.rank_states, self.clock())
        self._first_words.note(self.rank_states, self._no_rank_since, told=told)

    def _guarded(self, part: str, act: Callable[[], object]) -> None:
        """An error of hangwatch costs one part of one look, and ends neither the watch nor the job."""
        try:
            act()
        except Exception as error:
            kind = type(error).__name__
            self.incidents.say_once(
                f"fault {part} {kind}",
                f"hangwatch: {part} failed ({kind}: {error}); the watch goes on. Please report it.",
            )

    def examine(self, found: Sequence[Reason] = ()) -> Judgement:
        """Take evidence, judge it, and act on the judgement."""
        with self._looking:
            return self._examine(found)

    def _examine(self, found: Sequence[Reason]) -> Judgement:
        started = self.clock()
        with self.log.look(found) as look, self._still_heard():
            snapshot = self.response.confirmed(self.take_evidence(), self.rank_states)
            look.taken_at = self.clock()
            self._first_words.saw(snapshot, self.clock())
            self._guarded("the look at timeouts", lambda: self.warnings.tell(timeout_ahead(snapshot)))
            judgement = self._act(self.judge(snapshot), snapshot, started)
            look.came_to = outcome(judgement)
        if self.dashboard is not None:
            self.dashboard.link.capture(snapshot)
        now = self.clock()
        self._schedule.looked(found, now, rest_after(now - started))
        return judgement

    def _act(self, judgement: Judgement, snapshot: Snapshot, started: float) -> Judgement:
        if self._was_foretold(judgement):
            return judgement
        together, here = self.peer_exchange, self._here
        if together is not None and not self.dismissed and together.is_due(judgement, here, started):
            return together.act(judgement, snapshot, here, closing=self.stop.is_set(), nap=self._sleep)
        self.response.act(judgement, snapshot, self.rank_states)
        return judgement

    def _was_foretold(self, judgement: Judgement) -> bool:
        """Whether these ranks fail because another node has ended its own a moment before, for a forecast."""
        unexplained = judgement.status is Status.FAILED and judgement.verdict.certainty is not Certainty.PROVEN
        if self.peer_exchange is not None and self.settings.on_forecast == "abort" and unexplained:
            for warning in self.peer_exchange.acted_upon(self._here, self.clock()):
                self.warnings.tell(warning)
        return unexplained and self.ending.is_over

    def take_evidence(self) -> Snapshot:
        """The evidence of this moment, with what only the watchdog knows of each rank."""
        taken = self.capture(self.rank_states, self._sleep)
        broken = dict(self.roster.broken)
        ranks = self._rank_facts.added(taken, self.rank_states, self.response.growth)
        found = replace(
            taken,
            job=replace(self.job, world_size=self.world_size, launcher=self._launcher),
            ranks=ranks,
            divergences=self.warnings.divergences,
            warnings=(
                *self.warnings.told,
                *device_warnings(taken.nodes, ranks),
                *leftover_processes(taken.nodes, ranks, taken.others),
            ),
            notes=(*taken.notes, *(CaptureNote("board", False, f"{path.name}: {why}") for path, why in broken.items())),
            last_progress_at=max((each.moved_at for each in self.rank_states), default=0.0),
            launched=self.launched,
            start_patience_s=self.settings.start_after,
            health=self._health_of(taken, ranks),
        )
        return self._holds.noted(found, self.rank_states, self.response.growth)

    def _health_of(self, taken: Snapshot, ranks: Sequence[RankEvidence]) -> JobHealth | None:
        """How fast the ranks were, and whose memory is on whose GPU; None where neither is known."""
        pace = self.pace([each.reading for each in self.rank_states])
        found = replace(pace, memory=foreign_memory(taken.nodes, ranks))
        return found if found != JobHealth() else None

    def _read(self, now: float) -> tuple[RankState, ...]:
        """The boards as they are now, with what the looks have shown of their ranks."""
        return self._holds.applied(self._boards(now))

    def _boards(self, now: float) -> tuple[RankState, ...]:
        return self._nested.without(self.roster.update(now))

    def _count_launches(self, now: float) -> None:
        """Find the processes started as ranks: at every poll until all have come, then now and then."""
        if self.launches is None:
            return
        came = len({each.rank for each in self.rank_states if each.alive})
        self._polls += 1
        if came < (self.world_size or 1) or self._polls % SETTLED_POLLS == 0:
            self.launches.update(Table.read(), now)
            self.launched = self.ending.remaining_launched(self.launches.known({each.pid for each in self.rank_states}))
            self._guarded("the search for ranks that are not watched", lambda: self._tell_unwatched(now))

    def _tell_unwatched(self, now: float) -> None:
        if found := unwatched(self.launched, now, self.settings.start_after):
            self.incidents.say_once("unwatched", sentence(found))

    @property
    def incidents(self) -> Incidents:
        return self.response.incidents

    @property
    def _no_rank_since(self) -> float | None:
        """Since when a launcher such as torchrun has been there without ranks, as far as we know."""
        if self.launches is None or not self.launches.elastic:
            return None
        return max(self.job.started_at, self.ending.at, self._peopled_at)

    @property
    def world_size(self) -> int | None:
        sizes = [each.reading.identity.world_size for each in self.rank_states]
        sizes += [each.world_size for each in self.launched]
        return max((size for size in sizes if size is not None), default=self.job.world_size)

    @property
    def _launcher(self) -> str:
        named = (self.job.launcher, *(each.reading.identity.launcher for each in self.rank_states))
        return next(filter(None, named), "")

    def halt(self) -> None:
        """Make `run()` return soon: nothing sleeps from here on."""
        self.stop.set()
        self._wake.set()

    def end(self, incident: Incident) -> None:
        """Do what --on-hang asks for."""
        if self.ending.begin(incident, self.rank_states, self.launched):
            self.incidents.settle()

    def finish_abort(self, slack_s: float) -> None:
        """Wait until an abort that has begun has come to its end, at most `slack_s` longer than its grace."""
        self.ending.finish(slack_s)

    def was_aborted(self, exit_code: int) -> bool:
        """Whether the job came to nothing because we ended it (see `OnHang`)."""
        self.ending.remaining(self._boards(self.clock()))
        return self.ending.was_aborted(exit_code)

    def dismiss(self) -> None:
        """The job was asked to end: that its ranks die now is no failure."""
        if not self.dismissed:
            stood_s = self._first_words.stands_for(self.rank_states, self.clock())
            self.log.job_was_asked_to_end(stood_s, self.rank_states)
        self.dismissed = True

    def close(self, exit_code: int | None = None) -> None:
        """The job is over: judge one last time if it failed and that has not been reported yet."""
        self.rank_states = self.ending.remaining(self._boards(self.clock()))
        self.halt()
        if self._looking.locked():
            self._guarded("writing the log of looks", self._keep_log)  # the look that is under way may never end
        try:
            self._judge_the_end(exit_code)
        finally:
            self._guarded("writing the log of looks", self._keep_log)
        self._guarded("keeping torch's dumps", self._keep)
        if self.dashboard is not None:
            self.dashboard.link.close(exit_code)
        if self.peer_exchange is not None:
            self.peer_exchange.leave()

    def _judge_the_end(self, exit_code: int | None) -> None:
        with self._looking:
            ended = self.dismissed or self.ending.is_over
            if exit_code == 0 and not ended:
                self.response.ended_well(self.rank_states)
            if self.incidents.open is None and not ended and self._came_down(exit_code):
                self._examine(())
                self.response.came_down(exit_code, self.launched, self.rank_states)

    def _keep(self) -> None:
        if said := self.keep():
            self.incidents.say(said)

    def _keep_log(self) -> None:
        self.log.keep(self.folder.name, self.incidents, self.rank_states, always=self.settings.log_looks)

    def _came_down(self, exit_code: int | None) -> bool:
        raised = any(each.reading.exception and each.reading.exception.fatal for each in self.rank_states)
        return bool(self.rank_states) and (raised or exit_code not in (None, 0))

    @property
    def _here(self) -> Here:
        return Here(self.job, self.rank_states, self.launched, self.world_size)

    def _own_judgement(self) -> tuple[Judgement, Snapshot]:
        return self.judge(snapshot := self.take_evidence()), snapshot

    def _compare(self, now: float) -> None:
        self.warnings.compare([each.reading for each in self.rank_states], now)
        living = [each.reading for each in self.rank_states if each.alive]  # the next job of a script has other plans
        for warning in self.health(living):
            self.warnings.tell(warning)

    def _heed(self, warning: HealthWarning) -> None:
        """Do what --on-forecast asks for."""
        if warning.kind in FORECASTS and self.settings.on_forecast == "abort" and not self.ending.happened:
            self.incidents.say(f"hangwatch: what to do: {warning.fix}")
            self.ending.before_it_hangs(self.rank_states, self.launched)

    def _exchange(self, dashboard: DashboardExchange, now: float) -> None:
        dashboard.offer(self.rank_states, now)
        for request in dashboard.link.captures_wanted():
            with self._still_heard():
                snapshot = self.take_evidence()
            dashboard.link.capture(snapshot, request)
            self._tell_news(snapshot)

    def _exchange_with_nodes(self, others: PeerExchange, now: float) -> None:
        others.heed(self._here, now, self._own_judgement)
        for warning in others.forecasts(self._here, now, everywhere=self.settings.on_forecast == "abort"):
            self.warnings.tell(warning)

    def _still_heard(self) -> AbstractContextManager[None]:
        """The roster reads anew meanwhile; `rank_states` stay as they are."""
        return self.dashboard.still_heard(self._read) if self.dashboard is not None else nullcontext()

    def _tell_news(self, snapshot: Snapshot | None = None) -> None:
        if self.dashboard is not None:
            facts = next(iter(snapshot.nodes), None) if snapshot else None
            self.dashboard.link.news(facts, self.warnings.told, self.warnings.divergences)

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _sleep(self, seconds: float) -> bool:
        return self.stop.wait(seconds)
