// The list of jobs as the stream tells it: all at first, then those that changed.

import { computed, signal } from "@preact/signals";
import type { JobState, JobSummary } from "./api";

const URGENT: Record<JobState, number> = { hung: 0, failed: 1, lingering: 1, waiting: 1, silent: 2, starting: 2, running: 2, finished: 3 };

export class JobsStore {
  readonly jobs = signal<ReadonlyMap<string, JobSummary>>(new Map());
  readonly known = signal(false); // whether the dashboard has told once
  readonly sorted = computed(() => [...this.jobs.value.values()].sort(byUrgency));

  merge(changed: JobSummary[]): void {
    const jobs = new Map(this.jobs.value);
    for (const job of changed) jobs.set(job.key, job);
    this.jobs.value = jobs;
    this.known.value = true;
  }

  remove(key: string): void {
    const jobs = new Map(this.jobs.value);
    jobs.delete(key);
    this.jobs.value = jobs;
  }
}

/** What hangs now comes first, finished jobs last; the latest first within each. */
export function byUrgency(a: JobSummary, b: JobSummary): number {
  return URGENT[a.state] - URGENT[b.state] || b.started_at - a.started_at || a.key.localeCompare(b.key);
}
