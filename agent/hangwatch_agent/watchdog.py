"""The watchdog's loop: read the boards, notice that nothing moves, take evidence, judge, and say so.

One class for the process beside the ranks, the parent that `hangwatch run` is, and the thread in a rank. It owns no
threads of its own but the one that waits for deaths; whoever runs it decides when to stop.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from hangwatch.diagnosis import diagnose, words
from hangwatch.divergence import DivergenceWatch
from hangwatch.health import device_warnings
from hangwatch.records import (
    CaptureNote,
    Certainty,
    Divergence,
    HealthWarning,
    Incident,
    Job,
    Judgement,
    Launched,
    NodeFacts,
    RankEvidence,
    Reading,
    Snapshot,
    Status,
    StepName,
)
from hangwatch.settings import Settings
from hangwatch_agent.capture.procfs import Table
from hangwatch_agent.casebook import WORTH_AN_INCIDENT, Casebook
from hangwatch_agent.deaths import DeathWatch
from hangwatch_agent.jobname import shared_identity
from hangwatch_agent.launches import Launches
from hangwatch_agent.neighbours import SHARED, Neighbours, Ruling, elsewhere, present
from hangwatch_agent.patience import patience
from hangwatch_agent.roster import Roster, Standing
from hangwatch_agent.schedule import Reason, Schedule, reasons, slow_after
from hangwatch_agent.tracks import Tracks

SETTLED_POLLS = 10  # between looks at the job's processes once every rank has come

GROWTH = 2.0  # of patience after every incident that ended by itself
MOST_GROWTH = 8.0
MOST_NATIVE = 3  # culprits whose native frames are taken, half a second each
OFFER_EVERY = 0.95  # seconds between what the dashboard hears of the ranks


class Link(Protocol):
    """What the watchdog tells a dashboard, and what it is asked (see `hangwatch_agent.link`)."""

    def offer(self, standings: Sequence[Standing], now: float) -> None: ...
    def incident(self, incident: Incident) -> None: ...
    def capture(self, snapshot: Snapshot, request: str = "") -> None: ...
    def captures_wanted(self) -> list[str]: ...
    def news(
        self, facts: NodeFacts | None, warnings: Sequence[HealthWarning] = (), divergences: Sequence[Divergence] = ()
    ) -> None: ...
    def close(self, exit_code: int | None = None) -> None: ...


Capture = Callable[[Sequence[Standing], Callable[[float], bool]], Snapshot]
"""Takes the evidence of the ranks; the second argument sleeps, and returns True when it was woken early."""


@dataclass
class Watchdog:
    """One node's watch over one job.

    `look()` is one round; `run()` repeats it every `settings.poll` seconds until `stop` is set or nobody is left to
    watch; `close()` makes the last judgement of a job that came down. `clock` gives seconds since 1970. `root` is the
    process that `hangwatch run` started, if it did.
    """

    folder: Path
    settings: Settings
    job: Job
    capture: Capture
    casebook: Casebook
    link: Link | None = None
    root: int | None = None
    clock: Callable[[], float] = time.time
    stop: threading.Event = field(default_factory=threading.Event)
    on_hang: Callable[[Incident], None] = lambda incident: None
    deepen: Callable[[Snapshot, Sequence[int]], Snapshot] = lambda snapshot, pids: snapshot
    judge: Callable[[Snapshot], Judgement] = diagnose
    health: Callable[[Sequence[Reading]], Sequence[HealthWarning]] = lambda readings: ()
    neighbours: Neighbours | None = None  # where there is no link

    def __post_init__(self) -> None:
        self.roster = Roster(self.folder)
        self.standings: tuple[Standing, ...] = ()
        self.growth = 1.0
        self.aborted = False
        self.dismissed = False
        self._wake = threading.Event()
        self.deaths = DeathWatch(self._wake.set, self.clock)
        self.launches = Launches(self.root, self.deaths) if self.root is not None else None
        self.launched: tuple[Launched, ...] = ()
        self._polls = 0
        self._offered_at = 0.0
        self._looking = threading.Lock()
        self._schedule = Schedule()
        self._tracks = Tracks()
        self._divergence = DivergenceWatch()
        self.divergences: tuple[Divergence, ...] = ()
        self.warnings: dict[tuple[str, tuple[int, ...]], HealthWarning] = {}
        self._moved_at_opening: dict[int, float] = {}

    def run(self, *, until_alone: bool = False, empty_for: float = 30.0) -> None:
        """Look until told to stop; with `until_alone`, until every rank has gone, or none came for `empty_for` s."""
        born = self.clock()
        while not self.stop.is_set():
            self.look()
            living = any(each.alive for each in self.standings)
            if until_alone and not living and (self.standings or self.clock() - born > empty_for):
                return
            self._pause(self.settings.poll)

    def look(self) -> None:
        """One round: boards, warnings, and a closer look where one is due."""
        now = self.clock()
        self.standings = self.roster.update(now)
        self._tracks.note(self.standings, now)
        for each in self.standings:
            self.deaths.watch(each.pid)
        self._count_launches(now)
        self._compare(now)
        self._close_if_moving()
        if self.link is not None:
            self._exchange(self.link, now)
        if self.neighbours is not None:
            self._heed(self.neighbours, now)
        found = reasons(
            self.standings,
            now,
            self.settings,
            world_size=self.world_size,
            growth=self.growth,
            launched=self.launched,
            nobody_since=self.job.started_at if self.launches is not None and self.launches.elastic else None,
        )
        if self.dismissed:
            found = [reason for reason in found if reason.kind == "lingering"]
        if self._schedule.due(found, now) is not None:
            self.look_closely(found)

    def look_closely(self, found: Sequence[Reason] = ()) -> Judgement:
        """Take evidence, judge it, and act on the judgement."""
        with self._looking:
            return self._look_closely(found)

    def _look_closely(self, found: Sequence[Reason]) -> Judgement:
        started = self.clock()
        with self._still_heard():
            snapshot = self.snapshot()
            judgement = self.judge(snapshot)
            if self.neighbours is not None and self._is_shared(judgement, started):
                judgement = self._act_together(self.neighbours, judgement, snapshot)
            else:
                self._act(judgement, snapshot)
        if self.link is not None:
            self.link.capture(snapshot)
        self._schedule.looked(found, started, self.clock())
        return judgement

    def snapshot(self) -> Snapshot:
        """The evidence of this moment, with what only the watchdog knows of each rank."""
        taken = self.capture(self.standings, self._sleep)
        broken = dict(self.roster.broken)
        by_pid = {each.pid: each for each in self.standings}
        ranks = tuple(self._completed(rank, by_pid.get(rank.pid or -1), taken.taken_at) for rank in taken.ranks)
        return replace(
            taken,
            job=replace(self.job, world_size=self.world_size, launcher=self.job.launcher or _launcher(self.standings)),
            ranks=ranks,
            divergences=self.divergences,
            warnings=(*self.warnings.values(), *device_warnings(taken.nodes, ranks)),
            notes=(*taken.notes, *(CaptureNote("board", False, f"{path.name}: {why}") for path, why in broken.items())),
            last_progress_at=max((each.moved_at for each in self.standings), default=0.0),
            launched=self.launched,
            start_patience_s=self.settings.start_after,
        )

    def _count_launches(self, now: float) -> None:
        """Who was started as a rank: at every poll until all have come, then now and then."""
        if self.launches is None:
            return
        came = len({each.rank for each in self.standings if each.alive})
        self._polls += 1
        if came < (self.world_size or 1) or self._polls % SETTLED_POLLS == 0:
            self.launches.update(Table.read(), now)
            self.launched = self.launches.known({each.pid for each in self.standings})

    @property
    def world_size(self) -> int | None:
        sizes = [each.reading.identity.world_size for each in self.standings]
        sizes += [each.world_size for each in self.launched]
        return max((size for size in sizes if size is not None), default=self.job.world_size)

    def halt(self) -> None:
        """Make `run()` return soon: nothing sleeps from here on."""
        self.stop.set()
        self._wake.set()

    def dismiss(self) -> None:
        """Somebody has asked the job to end: that its ranks die now is no failure."""
        self.dismissed = True

    def close(self, exit_code: int | None = None) -> None:
        """The job is over: judge one last time if it came down and nothing has been said of it yet."""
        self.standings = self.roster.update(self.clock())
        self.halt()
        with self._looking:
            if self.casebook.open is None and not self.dismissed and self._came_down(exit_code):
                self._look_closely(())
        if self.link is not None:
            self.link.close(exit_code)
        if self.neighbours is not None:
            self.neighbours.leave(tidy=self.casebook.open is None and not self.casebook.closed)

    def _came_down(self, exit_code: int | None) -> bool:
        raised = any(each.reading.exception and each.reading.exception.fatal for each in self.standings)
        return bool(self.standings) and (raised or exit_code not in (None, 0))

    def _completed(self, rank: RankEvidence, standing: Standing | None, taken_at: float) -> RankEvidence:
        if standing is None:
            return rank
        process, code = rank.process, self.deaths.codes.get(standing.pid)
        if process is not None and process.exit_code is None and process.state in ("X", "Z"):
            process = replace(process, exit_code=code)
        return replace(
            rank,
            process=process,
            still_s=max(0.0, taken_at - standing.moved_at),
            patience_s=patience(standing.reading, self.settings, self.growth),
            ended_at=self.deaths.ended.get(standing.pid),
            phases=self._tracks.of(standing.pid),
        )

    def _act(self, judgement: Judgement, snapshot: Snapshot, judged: Callable[[], None] = lambda: None) -> None:
        before = self.casebook.open
        self.casebook.judged(judgement, snapshot)
        judged()
        opened = self.casebook.open
        if opened is not None and before is None:
            self._moved_at_opening = {each.pid: each.moved_at for each in self.standings}
            self.casebook.enrich(judgement, self._deepened(opened, snapshot))
            self.on_hang(opened)
        if judgement.status is Status.WAITING and any(rank.stalled for rank in snapshot.ranks):
            self.casebook.say_once("waiting", f"hangwatch: waiting: {judgement.verdict.summary}")

    def _deepened(self, opened: Incident, snapshot: Snapshot) -> Snapshot:
        """The snapshot with native frames of those ranks that are here: on another node their pids mean others."""
        here = {each.rank for each in self.standings}
        own = tuple(rank for rank in snapshot.ranks if rank.rank in here)
        found = self.deepen(replace(snapshot, ranks=own), _worth_native(opened, own))
        others = (rank for rank in snapshot.ranks if rank.rank not in here)
        return replace(found, ranks=tuple(sorted((*found.ranks, *others), key=lambda rank: rank.rank)))

    # ------------------------------------------------------------ with other nodes, where there is no dashboard

    def _heed(self, neighbours: Neighbours, now: float) -> None:
        """Give evidence to a node that asks for it, and take over what another one has judged."""
        if self.dismissed or not elsewhere(self.standings, self.launched, self.world_size):
            return
        job = self._shared_job
        heard = neighbours.heard(job, present(self.standings, now), still=self._is_still(now))
        if isinstance(heard, Ruling):
            self._adopt(heard)
        elif heard is not None:
            snapshot = self.snapshot()
            neighbours.answer(heard, job, self.judge(snapshot), snapshot)

    def _is_shared(self, judgement: Judgement, now: float) -> bool:
        """Whether the other nodes should be asked: an incident is near, or nobody moves and some wait."""
        known = self.casebook.open
        if self.dismissed or not elsewhere(self.standings, self.launched, self.world_size):
            return False
        if known is not None and known.verdict.certainty is Certainty.PROVEN:
            return False
        waiting = judgement.status is Status.WAITING and any(each.blocked for each in self.standings)
        return judgement.status in SHARED or (waiting and self._is_still(now))

    def _is_still(self, now: float) -> bool:
        return all(now - each.moved_at >= slow_after(each) for each in self.standings)

    def _act_together(self, neighbours: Neighbours, judgement: Judgement, snapshot: Snapshot) -> Judgement:
        closing = self.stop.is_set()
        found = neighbours.together(
            self._shared_job,
            judgement,
            snapshot,
            present(self.standings, self.clock()),
            ending=closing or judgement.status is Status.FAILED,
            nap=_doze if closing else self._sleep,
        )
        if isinstance(found, Ruling):
            self._adopt(found)
            return judgement

        def judged() -> None:
            if found.question:
                worth = found.judgement.status in WORTH_AN_INCIDENT
                neighbours.told(found.question, self.casebook.open if worth else None)

        self._act(found.judgement, found.snapshot, judged)
        return found.judgement

    def _adopt(self, ruling: Ruling) -> None:
        before = self.casebook.open
        if self.casebook.adopt(ruling.incident, ruling.path, ruling.node) and before is None:
            self._moved_at_opening = {each.pid: each.moved_at for each in self.standings}
            self.on_hang(ruling.incident)

    @property
    def _shared_job(self) -> Job:
        identities = (each.reading.identity for each in self.standings)
        return replace(self.job, id=shared_identity(self.job.id, identities))

    def _close_if_moving(self) -> None:
        """A hang is over when somebody who stood still then has moved since, and nobody has gone."""
        opened, then = self.casebook.open, self._moved_at_opening
        if opened is None:
            return
        living = {each.pid for each in self.standings if each.alive}
        if living and living.isdisjoint(then):
            self.casebook.file_away()  # a launcher has restarted the job: what comes now is another story
        if opened.status not in (Status.HUNG, Status.LINGERING):
            return
        moved = [each for each in self.standings if each.moved_at > then.get(each.pid, each.moved_at)]
        whole = all(each.alive and not _failing(each) for each in self.standings)
        if self.casebook.open and moved and whole:
            self.growth = min(self.growth * GROWTH, MOST_GROWTH)
            self.casebook.moved_on()

    def _compare(self, now: float) -> None:
        readings = [each.reading for each in self.standings]
        for divergence in self._divergence.update(readings, now):
            if divergence not in self.divergences:
                self.divergences += (divergence,)
                self.casebook.say_once(f"divergence {divergence.group}", f"hangwatch: warning: {_words(divergence)}")
                self._tell_news()
        for warning in self.health(readings):
            if self.warnings.setdefault((warning.kind, warning.ranks), warning) is warning:
                self.casebook.say_once(f"warning {warning.kind}", f"hangwatch: warning: {warning.summary}")
                self._tell_news()

    def _exchange(self, link: Link, now: float) -> None:
        if now - self._offered_at >= OFFER_EVERY:
            self._offered_at = now
            link.offer(self.standings, now)
        for request in link.captures_wanted():
            with self._still_heard():
                snapshot = self.snapshot()
            link.capture(snapshot, request)
            self._tell_news(snapshot)

    @contextlib.contextmanager
    def _still_heard(self) -> Iterator[None]:
        """While evidence is taken, which is long on a busy machine, the dashboard goes on hearing of the ranks.

        A node that says nothing for some seconds counts as silent there, and no proof holds without its words.
        """
        if self.link is None:
            yield
            return
        done = threading.Event()
        beat = threading.Thread(target=self._beat, args=(self.link, done), name="hangwatch-beat", daemon=True)
        beat.start()
        try:
            yield
        finally:
            done.set()
            beat.join()  # the roster has one user at a time

    def _beat(self, link: Link, done: threading.Event) -> None:
        """What the loop does for the dashboard, in its place. The roster reads anew; `standings` stay as they are."""
        while not done.wait(max(0.0, self._offered_at + OFFER_EVERY - self.clock())):
            self._offered_at = self.clock()
            link.offer(self.roster.update(self._offered_at), self._offered_at)

    def _tell_news(self, snapshot: Snapshot | None = None) -> None:
        if self.link is not None:
            facts = next(iter(snapshot.nodes), None) if snapshot else None
            self.link.news(facts, tuple(self.warnings.values()), self.divergences)

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _sleep(self, seconds: float) -> bool:
        return self.stop.wait(seconds)


def _worth_native(opened: Incident, ranks: Sequence[RankEvidence]) -> list[int]:
    """The pids whose native frames say more: the culprits, and one of those who wait for them."""
    here = {None, *(rank.rank for rank in ranks)}
    pids = [who.pid for who in opened.verdict.culprits if who.pid is not None and who.rank in here]
    waiting = [rank.pid for rank in ranks if rank.rank in opened.verdict.victims and rank.pid is not None]
    return [*pids[:MOST_NATIVE], *waiting[:1]]


def _doze(seconds: float) -> bool:
    """Sleep, while the job comes down and nothing else sleeps any more."""
    time.sleep(seconds)
    return False


def _failing(standing: Standing) -> bool:
    return standing.reading.exception is not None and standing.reading.exception.fatal


def _launcher(standings: Sequence[Standing]) -> str:
    return next((each.reading.identity.launcher for each in standings if each.reading.identity.launcher), "")


def _words(divergence: Divergence) -> str:
    step = words.step(StepName(divergence.epoch, divergence.batch, divergence.step))
    issued = {count: [] for count in divergence.counts.values()}  # type: dict[int, list[int]]
    for rank, count in divergence.counts.items():
        issued[count].append(rank)
    counts = ", ".join(f"{words.ranks(ranks)}: {count}" for count, ranks in sorted(issued.items()))
    return (
        f"in {step} the ranks issued different numbers of collectives ({counts}); "
        "from here on gradients may be wrong, and the job may hang"
    )
