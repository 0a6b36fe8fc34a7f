"""Prometheus' text format, and the service's own counters. Bounded: at most so many jobs and ranks get a line."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from hangwatch.model import RankBeat, Status
from hangwatch_dashboard.live import LiveJob, LiveNode

MOST_JOBS = 50
MOST_RANKS = 64  # of one job; of larger jobs the slowest and the most waiting
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Meters:
    """What the service counts of itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        self._buckets = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def count(self, name: str, by: int = 1) -> None:
        with self._lock:
            self.counts[name] += by

    def took(self, seconds: float) -> None:
        """One batch was taken, in so many seconds."""
        with self._lock:
            self._buckets[bisect_left(BOUNDS, seconds)] += 1
            self._sum += seconds

    def lines(self) -> Iterable[str]:
        yield from _family("hangwatch_ingest_total", "counter", "Requests of nodes, by outcome")
        for name, number in sorted(self.counts.items()):
            yield _line("hangwatch_ingest_total", {"outcome": name}, number)
        yield from _family("hangwatch_ingest_seconds", "histogram", "Time to take a batch, until it is in the store")
        so_far = 0
        for bound, number in zip((*BOUNDS, "+Inf"), self._buckets, strict=True):
            so_far += number
            yield _line("hangwatch_ingest_seconds_bucket", {"le": str(bound)}, so_far)
        yield _line("hangwatch_ingest_seconds_sum", {}, self._sum)
        yield _line("hangwatch_ingest_seconds_count", {}, so_far)


def render(meters: Meters, jobs: Iterable[LiveJob], streams: int, now: float) -> str:
    """The whole page."""
    alive = sorted((job for job in jobs if not job.over), key=lambda job: -job.last_seen_at)[:MOST_JOBS]
    lines = [*meters.lines(), *_family("hangwatch_streams", "gauge", "Open live streams")]
    lines += [_line("hangwatch_streams", {}, streams), *_jobs(alive, now), *_ranks(alive, now)]
    return "\n".join(lines) + "\n"


def _jobs(jobs: list[LiveJob], now: float) -> Iterable[str]:
    values: dict[str, tuple[str, Callable[[LiveJob], float]]] = {
        "hangwatch_job_steps_per_second": ("Steps a second, of the slowest rank", lambda job: job.steps_per_s(now)),
        "hangwatch_job_ranks": ("Ranks heard of", lambda job: len(job.ranked())),
        "hangwatch_job_stalled": ("1 while an incident is open", lambda job: int(bool(job.incident))),
        "hangwatch_job_waiting": (
            "1 while a rank is awaited that still works",
            lambda job: int(job.state(now) == str(Status.WAITING)),
        ),
        "hangwatch_job_batches_dropped": (
            "Batches that the nodes had to give up",
            lambda job: sum(node.batch.dropped for node in job.all_nodes),
        ),
        "hangwatch_job_nodes_silent_seconds": (
            "Since the quietest node was heard of",
            lambda job: max((node.silent_s(now) for node in job.all_nodes), default=0.0),
        ),
    }
    for name, (text, value) in values.items():
        yield from _family(name, "gauge", text)
        for job in jobs:
            yield _line(name, _labels(job), value(job))


def _ranks(jobs: list[LiveJob], now: float) -> Iterable[str]:
    chosen = [(job, node, beat) for job in jobs for node, beat in _chosen(job)]
    values: dict[str, tuple[str, str, Callable[[RankBeat], float]]] = {
        "hangwatch_rank_step": ("counter", "Step counter", lambda beat: max(beat.progress.step, 0)),
        "hangwatch_rank_data_seconds": ("counter", "Waiting for the loader", lambda beat: beat.times.data_s),
        "hangwatch_rank_step_seconds": ("counter", "Sum of step times", lambda beat: beat.times.total_s),
        "hangwatch_rank_collectives": ("counter", "Collectives issued", lambda beat: beat.progress.calls),
    }
    for name, (kind, text, value) in values.items():
        yield from _family(f"{name}_total", kind, text)
        for job, _, beat in chosen:
            yield _line(f"{name}_total", {**_labels(job), "rank": str(beat.rank)}, value(beat))
    yield from _family("hangwatch_rank_still_seconds", "gauge", "Since the rank last moved")
    for job, node, beat in chosen:
        yield _line("hangwatch_rank_still_seconds", {**_labels(job), "rank": str(beat.rank)}, node.still_s(beat, now))


def _chosen(job: LiveJob) -> list[tuple[LiveNode, RankBeat]]:
    ranked = job.ranked()
    if len(ranked) <= MOST_RANKS:
        return ranked
    behind = sorted(ranked, key=lambda pair: (pair[1].progress.step, -pair[1].still_s))
    return sorted(behind[:MOST_RANKS], key=lambda pair: pair[1].rank)


def _labels(job: LiveJob) -> dict[str, str]:
    return {"job": job.key}  # the key and not the name: a rank must not be able to choose the labels


def _family(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value:g}" if inside else f"{name} {value:g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
