// A job as it lives: what the stream tells of it, and the evidence that has been fetched.

import { batch, computed, signal } from "@preact/signals";
import { ask, type Capture, type GroupColumns, type HealthOfJob, type History, type IncidentSummary, type JobDetail, type JobSummary, type RankColumns } from "./api";
import { appended, emptyHistory } from "./model/tracks";
import type { Incident, JobHealth } from "./records";
import { address, write } from "./router";
import { blamed, firstShown, historyScene, isOver, type Scene } from "./scene";
import { connect } from "./stream";
import { clean, parseClean } from "./words";

const HEALTH_EVERY_MS = 5000; // a window is as long

/** Whether evidence should replace what is shown: newer, but something rather than nothing. */
export function better(incident: Incident, known: Incident | null): boolean {
  if (!known) return true;
  const [has, had] = [incident.stack_tree.length > 0, known.stack_tree.length > 0];
  if (has !== had) return has; // without stacks where the nodes did not answer in time
  return (incident.taken_at || incident.updated_at) >= (known.taken_at || known.updated_at);
}

export class LiveJob {
  readonly detail = signal<JobDetail | null>(null);
  readonly summary = signal<JobSummary | null>(null); // newer than `detail` in what moves
  readonly columns = signal<RankColumns | null>(null);
  readonly groups = signal<GroupColumns | null>(null);
  readonly doc = signal<Incident | null>(null);
  readonly incident = signal<Incident | null>(null); // the newest one, whatever evidence came later
  readonly docFrom = signal<{ page: "incident" | "capture"; id: string } | null>(null);
  readonly capture = signal<Capture | null>(null);
  readonly captureError = signal("");
  readonly incidents = signal<IncidentSummary[]>([]);
  readonly gone = signal(false);
  readonly missing = signal(false);
  readonly scene: Scene;
  private readonly health = signal<JobHealth | null>(null);
  private readonly history = signal<History>(emptyHistory("", []));
  private wantsHistory = false;
  private readonly fetched = new Set<string>();
  private readonly disconnect: () => void;

  constructor(readonly key: string) {
    this.scene = this.makeScene();
    this.disconnect = connect(key, {
      jobs: (data) => this.onJobs(parseClean<{ jobs: JobSummary[] }>(data).jobs),
      job: (data) => this.onJob(parseClean<JobDetail>(data)),
      ranks: (data) => this.onRanks(data),
      collectives: (data) => (this.groups.value = parseClean<GroupColumns>(data)),
      capture: (data) => this.onCapture(parseClean<Capture>(data)),
      incident: (data) => this.onIncident(parseClean<{ change: string; incident: IncidentSummary }>(data)),
      gone: (data) => this.onGone((JSON.parse(data) as { job: string }).job),
    });
    void this.loadIncidents();
    void this.exists();
  }

  close(): void {
    this.disconnect();
  }

  private async exists(): Promise<void> {
    try {
      const detail = await ask<JobDetail>(`/jobs/${encodeURIComponent(this.key)}`);
      if (this.detail.value === null) this.onJob(detail);
    } catch (error) {
      this.missing.value = (error as { status?: number }).status === 404 && this.detail.value === null;
    }
  }

  private onJobs(jobs: JobSummary[]): void {
    this.summary.value = jobs.find((job) => job.key === this.key) ?? this.summary.value;
  }

  private onJob(detail: JobDetail): void {
    batch(() => {
      this.detail.value = detail;
      this.missing.value = false;
      if (detail.capture) this.onCapture(detail.capture);
    });
    const wanted = detail.open_incident ?? detail.incident?.id;
    if (wanted) void this.fetchIncident(wanted, detail.incident?.updated_at ?? 0);
  }

  private onGone(job: string): void {
    if (job === this.key) (this.detail.value === null ? this.missing : this.gone).value = true;
  }

  private onRanks(data: string): void {
    const columns = JSON.parse(data) as RankColumns;
    columns.nodes = columns.nodes.map(clean);
    for (const sparse of [columns.waiting_for, columns.exception, columns.process_state]) {
      for (const rank of Object.keys(sparse)) sparse[rank] = clean(sparse[rank]!);
    }
    batch(() => {
      const first = this.columns.value === null;
      this.columns.value = columns;
      if (this.wantsHistory && (first || this.history.value.rank.length === 0)) this.scene.needHistory();
      else if (this.wantsHistory) this.history.value = appended(this.history.value, columns);
    });
  }

  private onCapture(capture: Capture): void {
    this.capture.value = capture;
    if (capture.state === "done") void this.fetchCapture(capture.id);
  }

  private onIncident(event: { change: string; incident: IncidentSummary }): void {
    if (event.incident.job !== this.key) return;
    const others = this.incidents.value.filter((known) => known.id !== event.incident.id);
    this.incidents.value = event.change === "deleted" ? others : [event.incident, ...others].sort((a, b) => b.opened_at - a.opened_at);
    if (event.change !== "deleted") void this.fetchIncident(event.incident.id, event.incident.updated_at);
  }

  private async loadIncidents(): Promise<void> {
    const answer = await ask<{ incidents: IncidentSummary[] }>(`/incidents?job=${encodeURIComponent(this.key)}&limit=20`).catch(() => null);
    if (answer) this.incidents.value = answer.incidents;
  }

  private async fetchIncident(id: string, version: number): Promise<void> {
    if (!this.once(`${id} ${version}`)) return;
    const incident = await ask<Incident>(`/incidents/${encodeURIComponent(id)}`).catch(() => null);
    if (!incident) return;
    if (incident.opened_at >= (this.incident.value?.opened_at ?? 0)) this.incident.value = incident;
    this.adopt(incident, "incident", id);
  }

  private async fetchCapture(id: string): Promise<void> {
    if (!this.once(id)) return;
    const capture = await ask<Capture>(`/captures/${encodeURIComponent(id)}`).catch(() => null);
    if (capture?.document) this.adopt(capture.document, "capture", id);
  }

  private once(name: string): boolean {
    return !this.fetched.has(name) && !!this.fetched.add(name);
  }

  private adopt(incident: Incident, page: "incident" | "capture", id: string): void {
    if (!better(incident, this.doc.value)) return;
    batch(() => {
      this.doc.value = incident;
      this.docFrom.value = { page, id };
    });
  }

  private async ask(): Promise<void> {
    this.captureError.value = "";
    try {
      this.onCapture(await ask<Capture>(`/jobs/${encodeURIComponent(this.key)}/captures`, "POST"));
    } catch (error) {
      this.captureError.value = (error as Error).message;
    }
  }

  private async showHistory(ranks: number[]): Promise<void> {
    this.wantsHistory = true;
    if (ranks.length === 0) return;
    this.history.value = emptyHistory(this.key, ranks);
    const wanted = ranks.slice(0, 256).join(",");
    const history = await ask<History>(`/jobs/${encodeURIComponent(this.key)}/history?seconds=300&ranks=${wanted}`).catch(() => null);
    if (history && history.rank.length && this.history.value.rank === ranks) this.history.value = history;
  }

  private async loadHealth(): Promise<void> {
    const answer = await ask<HealthOfJob>(`/jobs/${encodeURIComponent(this.key)}/health`).catch(() => null);
    if (answer) this.health.value = answer.health;
  }

  /** The incident that the job is in, or had ended in. One that is over is no news of a job that runs. */
  private ofNow(): string | null {
    const detail = this.detail.value;
    return detail?.open_incident ?? (detail?.closed_at ? detail.incident?.id : null) ?? null;
  }

  private makeScene(): Scene {
    const verdict = computed(() => this.detail.value?.judgement?.verdict ?? null);
    const culprits = computed(() => blamed(verdict.value));
    const self = this;
    return {
      live: true,
      ended: computed(() => (this.detail.value?.closed_at ?? null) !== null),
      over: computed(() => (this.detail.value?.closed_at ?? null) !== null || isOver(this.detail.value?.judgement?.status ?? null)),
      columns: this.columns,
      groups: this.groups,
      doc: this.doc,
      record: computed(() => (this.incident.value?.id === this.ofNow() ? this.incident.value : null)),
      status: computed(() => this.detail.value?.judgement?.status ?? null),
      verdict,
      culprits,
      nodes: computed(() =>
        (this.detail.value?.node_list ?? []).map((row) => ({ host: row.host, ranks: row.ranks, facts: row.facts, row })),
      ),
      warnings: computed(() => this.detail.value?.warning_list ?? []),
      divergences: computed(() => this.detail.value?.divergences ?? []),
      health: this.health,
      needHealth: () => {
        void this.loadHealth();
        const timer = setInterval(() => void this.loadHealth(), HEALTH_EVERY_MS);
        return () => clearInterval(timer);
      },
      ...historyScene(this.history),
      show: (ranks) => void this.showHistory(ranks),
      needHistory: () => {
        if (this.history.value.rank.length) this.wantsHistory = true;
        else void this.showHistory(firstShown(this.columns.value, culprits.value));
      },
      link: (view, rank = null) => address(write({ page: "job", id: this.key, view, rank })),
      get speedscope() {
        const from = self.docFrom.value;
        return from && `/api/v1/${from.page}s/${encodeURIComponent(from.id)}.speedscope.json`;
      },
      capture: () => this.ask(),
    };
  }
}
