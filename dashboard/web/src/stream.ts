// The line to the dashboard: server-sent events that come again by themselves, and that say when they are old.

import { signal } from "@preact/signals";
import { API } from "./api";
import { signedIn } from "./session";

export type Health = "connecting" | "live" | "stale" | "lost";
export const health = signal<Health>("connecting");
export const heardAt = signal(0); // by the reader's clock, in seconds
export const serverAhead = signal(0); // the dashboard's clock minus the reader's, in seconds

export type Handlers = Record<string, (data: string) => void>;

const STALE_S = 5;
const CHECK_MS = 500;
const WAITS_S = [1, 1, 2, 4, 8];

/** One stream at a time; closing is the caller's. */
export function connect(job: string | null, handlers: Handlers): () => void {
  let source: EventSource | null = null;
  let failures = 0;
  let retry = 0;
  let closed = false;
  const heard = (): void => {
    heardAt.value = Date.now() / 1000;
    health.value = "live";
    failures = 0;
  };
  const open = (): void => {
    source = new EventSource(`${API}/events${job === null ? "" : `?job=${encodeURIComponent(job)}`}`);
    for (const name of ["hello", "ping"]) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        heard();
        serverAhead.value = (JSON.parse(event.data) as { server_time: number }).server_time - heardAt.value;
      });
    }
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        heard();
        handle(event.data);
      });
    }
    source.onerror = again;
  };
  // The browser's own reconnecting gives up on an answer such as 503; this does not.
  const again = (): void => {
    source?.close();
    if (closed || retry) return;
    if (health.value !== "stale") health.value = failures ? "lost" : "connecting";
    const wait_s = WAITS_S[Math.min(failures, WAITS_S.length - 1)]!;
    failures += 1;
    retry = window.setTimeout(async () => {
      retry = 0;
      if (!closed && (await signedIn()) && !closed) open();
    }, wait_s * 1000);
  };
  const watch = window.setInterval(() => {
    const silent_s = Date.now() / 1000 - heardAt.value;
    if (health.value === "live" && silent_s > STALE_S) health.value = "stale";
    if (silent_s > 3 * STALE_S && source?.readyState === EventSource.OPEN) again();
  }, CHECK_MS);
  health.value = "connecting";
  open();
  return () => {
    closed = true;
    clearInterval(watch);
    clearTimeout(retry);
    source?.close();
  };
}
