"""What Prometheus is told: the service's own counters, and the running jobs. At most so many jobs and ranks have lines.

A job's label is `run`: Prometheus itself puts the name of its scrape configuration into `job`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hangwatch.model import JobHealth, RankBeat, Status
from hangwatch.version import __version__
from hangwatch_dashboard.live import LiveJob
from hangwatch_dashboard.live_node import LiveNode

disable_created_metrics()  # type: ignore[no-untyped-call]  # an unneeded gauge beside every counter
MOST_JOBS = 50
MOST_RANKS = 64  # of one job; of larger jobs the slowest and the most waiting
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
PARTS = {"wait": "rest"}  # what is left of the step beside data and forward: backward and optimizer are in it
OF_PACE: dict[str, tuple[str, Callable[[JobHealth], float]]] = {
    "hangwatch_job_data_share": (
        "Share of its time that the rank with the least spends waiting for data",
        lambda health: health.data_share,
    ),
    "hangwatch_job_stragglers": (
        "Ranks that the others wait for in each step",
        lambda health: sum(len(each.ranks) for each in health.stragglers),
    ),
    "hangwatch_job_straggler_lag_seconds": (
        "What the slowest of them adds to each step",
        lambda health: max((each.lag_s for each in health.stragglers), default=0.0),
    ),
}


class Meters:
    """What the service counts of itself, and the page that Prometheus reads."""

    def __init__(self, store: str = "sqlite") -> None:
        self._registry = CollectorRegistry()
        own = self._registry
        self._ingest = Counter(
            "hangwatch_ingest",
            "Requests of nodes: accepted, hello (asked to identify themselves), or the status of the refusal",
            ["outcome"],
            registry=own,
        )
        self._opened = Counter("hangwatch_jobs_opened", "Job runs that this process opened for nodes", registry=own)
        self._seconds = Histogram(
            "hangwatch_ingest_seconds", "Time to take a batch, until it is in the store", buckets=BOUNDS, registry=own
        )
        self._incidents = Counter(
            "hangwatch_incidents", "Incidents that this process opened, by cause", ["cause", "status"], registry=own
        )
        self._notifications = Counter(
            "hangwatch_notifications",
            "Messages to people: sent, failed (tried again), given up",
            ["outcome"],
            registry=own,
        )
        for outcome in ("sent", "failed", "given_up"):
            self._notifications.labels(outcome)  # 0 from the start: an alert needs a rate
        for outcome in ("accepted", "hello", "413", "422", "429", "503"):
            self._ingest.labels(outcome)
        build = Info("hangwatch_build", "The version that runs, and the kind of its database", registry=own)
        build.info({"version": __version__, "store": store})
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def count(self, outcome: str) -> None:
        """One request of a node."""
        self._ingest.labels(outcome).inc()

    def job_opened(self) -> None:
        """A node came with a job, or a run of a job, that was not there before."""
        self._opened.inc()

    def took(self, seconds: float) -> None:
        """One batch was taken, in so many seconds."""
        self._seconds.observe(seconds)

    def incident(self, cause: str, status: str) -> None:
        """An incident was opened."""
        self._incidents.labels(cause or "unknown", status).inc()

    def notification(self, outcome: str) -> None:
        """A message was sent, failed, or given up."""
        self._notifications.labels(outcome).inc()

    def page(self, jobs: Iterable[LiveJob], streams: int, now: float) -> str:
        """Prometheus text."""
        live = CollectorRegistry()
        live.register(_Live(jobs, streams, now))
        return (generate_latest(self._registry) + generate_latest(live)).decode()


class _Live(Collector):
    """The running jobs at one moment."""

    def __init__(self, jobs: Iterable[LiveJob], streams: int, now: float) -> None:
        running = [job for job in jobs if not job.over]
        self._jobs = sorted(running, key=lambda job: -job.last_seen_at)[:MOST_JOBS]
        self._count, self._streams, self._now = len(running), streams, now

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("hangwatch_streams", "Open live streams", value=self._streams)
        yield GaugeMetricFamily("hangwatch_jobs", "Running jobs, of which the first 50 have lines", value=self._count)
        yield from self._of_jobs()
        yield from self._of_pace()
        yield from self._of_ranks()

    def _of_jobs(self) -> Iterator[Metric]:
        now = self._now
        values: dict[str, tuple[str, Callable[[LiveJob], float]]] = {
            "hangwatch_job_steps_per_second": ("Steps a second, of the slowest rank", lambda job: job.steps_per_s(now)),
            "hangwatch_job_ranks": ("Ranks heard of", lambda job: len(job.ranked())),
            "hangwatch_job_stalled": ("1 while an incident is open", lambda job: int(bool(job.incident))),
            "hangwatch_job_waiting": (
                "1 while a rank is awaited that still works",
                lambda job: int(job.state(now) == str(Status.WAITING)),
            ),
            "hangwatch_job_nodes_silent": (
                "Nodes of which nothing was heard for some seconds",
                lambda job: sum(node.is_silent(now) for node in job.all_nodes),
            ),
            "hangwatch_job_nodes_silent_seconds": (
                "Since the quietest of these nodes was heard of, 0 while there is none",
                lambda job: max((node.silent_s(now) for node in job.all_nodes if node.is_silent(now)), default=0.0),
            ),
        }
        for name, (text, value) in values.items():
            gauge = GaugeMetricFamily(name, text, labels=["run"])
            for job in self._jobs:
                gauge.add_metric([job.key], value(job))
            yield gauge
        dropped = CounterMetricFamily("hangwatch_job_batches_dropped", "Batches that nodes gave up", labels=["run"])
        for job in self._jobs:
            dropped.add_metric([job.key], sum(node.batch.dropped for node in job.all_nodes))
        yield dropped

    def _of_pace(self) -> Iterator[Metric]:
        """A few lines a job, however many ranks it has: the spread of the parts of a step, and who is waited for."""
        found = [(job.key, health) for job in self._jobs if (health := job.health.pace).at]
        step = GaugeMetricFamily(
            "hangwatch_job_step_part_seconds",
            "Mean time of a part of the step (data, forward, rest) in the last window: least to most of all ranks",
            labels=["run", "part", "ranks"],  # "quantile" is kept for summaries
        )
        for run, health in found:
            for part in health.spread:
                for which in ("least", "median", "p90", "most"):
                    step.add_metric([run, PARTS.get(part.phase, part.phase), which], getattr(part, which))
        yield step
        for name, (text, of) in OF_PACE.items():
            gauge = GaugeMetricFamily(name, text, labels=["run"])
            for run, health in found:
                gauge.add_metric([run], of(health))
            yield gauge

    def _of_ranks(self) -> Iterator[Metric]:
        chosen = [(job.key, node, beat) for job in self._jobs for node, beat in _chosen(job)]
        values: dict[str, tuple[str, Callable[[RankBeat], float]]] = {
            "hangwatch_rank_step": ("Step counter", lambda beat: max(beat.progress.step, 0)),
            "hangwatch_rank_data_seconds": ("Waiting for the loader", lambda beat: beat.times.data_s),
            "hangwatch_rank_step_seconds": ("Sum of step times", lambda beat: beat.times.total_s),
            "hangwatch_rank_collectives": ("Collectives issued", lambda beat: beat.progress.calls),
        }
        for name, (text, value) in values.items():
            counter = CounterMetricFamily(name, text, labels=["run", "rank"])
            for run, _, beat in chosen:
                counter.add_metric([run, str(beat.rank)], value(beat))
            yield counter
        still = GaugeMetricFamily("hangwatch_rank_still_seconds", "Since the rank last moved", labels=["run", "rank"])
        for run, node, beat in chosen:
            still.add_metric([run, str(beat.rank)], node.still_s(beat, self._now))
        yield still


def _chosen(job: LiveJob) -> list[tuple[LiveNode, RankBeat]]:
    ranked = job.ranked()
    if len(ranked) <= MOST_RANKS:
        return ranked
    behind = sorted(ranked, key=lambda pair: (pair[1].progress.step, -pair[1].still_s))
    return sorted(behind[:MOST_RANKS], key=lambda pair: pair[1].rank)
