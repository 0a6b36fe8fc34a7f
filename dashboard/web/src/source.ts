// One stream of server-sent events that comes again by itself. A worker holds it for all tabs of a browser; where there
// are no shared workers, a tab has its own.

import { API } from "./api";

export const EVENTS = ["hello", "ping", "jobs", "job", "ranks", "collectives", "capture", "incident", "gone", "review"];
export const STALE_S = 5;

const WAITS_S = [1, 1, 2, 4, 8];
const GATHER_MS = 30; // tabs that open at the same time are one change

export interface Sink {
  /** `job` is the key of the job that an event is about, "" for events to all. */
  event(name: string, job: string, data: string): void;
  /** The stream is gone and comes again by itself; how often that has failed. */
  down(failures: number): void;
  /** The dashboard wants a token first. */
  locked(): void;
}

export class Source {
  private current: EventSource | null = null;
  private spoken = false; // the current one has
  private replaced: EventSource | null = null; // one that has spoken: still open, until the current one does
  private jobs: string[] = [];
  private failures = 0;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private gather: ReturnType<typeof setTimeout> | undefined;
  private readonly watch: ReturnType<typeof setInterval>;
  private heardAt = Date.now();

  constructor(private readonly sink: Sink) {
    this.watch = setInterval(() => {
      if (Date.now() - this.heardAt > 3000 * STALE_S && this.current?.readyState === EventSource.OPEN) this.again();
    }, 1000);
  }

  /** Which jobs to be told of in full. The dashboard tells everything anew, for each new reader. */
  want(jobs: string[]): void {
    this.jobs = jobs;
    clearTimeout(this.gather);
    this.gather = setTimeout(() => {
      if (!this.retry) this.open();
    }, GATHER_MS);
  }

  close(): void {
    clearTimeout(this.gather);
    clearTimeout(this.retry);
    clearInterval(this.watch);
    this.closeReplaced();
    this.current?.close();
    this.current = null;
  }

  private closeReplaced(): void {
    this.replaced?.close();
    this.replaced = null;
  }

  private open(): void {
    const query = [...new Set(this.jobs)].map((job) => `job=${encodeURIComponent(job)}`).join("&");
    // Two at most: of many that wait for each other to speak, the browser's six connections leave none for the newest.
    if (this.spoken) this.replaced = this.current;
    else this.current?.close();
    this.spoken = false;
    const source = new EventSource(`${API}/events${query && `?${query}`}`);
    this.current = source;
    for (const name of EVENTS) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        if (this.current !== source) return;
        this.spoken = true;
        this.closeReplaced();
        this.heardAt = Date.now();
        this.failures = 0;
        this.sink.event(name, event.lastEventId, event.data);
      });
    }
    source.onerror = () => {
      if (this.current === source) this.again();
      else source.close(); // or the browser would open it again
    };
  }

  // The browser's own reconnecting gives up on an answer such as 503; this does not.
  private again(): void {
    this.closeReplaced();
    this.current?.close();
    this.current = null;
    this.spoken = false;
    if (this.retry) return;
    this.sink.down(this.failures);
    const wait_s = WAITS_S[Math.min(this.failures, WAITS_S.length - 1)]!;
    this.failures += 1;
    this.retry = setTimeout(async () => {
      const locked = await wantsToken();
      this.retry = undefined;
      if (locked) {
        this.sink.locked();
        this.again();
      } else {
        this.open();
      }
    }, wait_s * 1000);
  }
}

/** Whether the dashboard will not answer without a token; no answer counts as "go on trying". */
async function wantsToken(): Promise<boolean> {
  try {
    const answer = await fetch(`${API}/session`, { credentials: "same-origin" });
    const session = (await answer.json()) as { required: boolean; signed_in: boolean };
    return session.required && !session.signed_in;
  } catch {
    return false;
  }
}
