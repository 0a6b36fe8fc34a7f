// The line to the dashboard, shared by all tabs where the browser can; it says when it is old.

import { signal } from "@preact/signals";
import { signedIn } from "./session";
import type { FromTab, ToTab } from "./shared";
import { Source, STALE_S } from "./source";

export type Health = "connecting" | "live" | "stale" | "lost";
export const health = signal<Health>("connecting");
export const heardAt = signal(0); // by the reader's clock, in seconds
export const serverAhead = signal(0); // the dashboard's clock minus the reader's, in seconds

export type Handlers = Record<string, (data: string) => void>;

const CHECK_MS = 500;
const HERE_MS = 20_000;

/** The events of all jobs, and of `job` in full; closing is the caller's. */
export function connect(job: string | null, handlers: Handlers): () => void {
  const heard = (name: string, data: string): void => {
    heardAt.value = Date.now() / 1000;
    health.value = "live";
    if (name === "hello" || name === "ping") serverAhead.value = (JSON.parse(data) as { server_time: number }).server_time - heardAt.value;
    handlers[name]?.(data);
  };
  const down = (failures: number): void => {
    if (health.value !== "stale") health.value = failures ? "lost" : "connecting";
  };
  const watch = window.setInterval(() => {
    if (health.value === "live" && Date.now() / 1000 - heardAt.value > STALE_S) health.value = "stale";
  }, CHECK_MS);
  health.value = "connecting";
  const leave = (typeof SharedWorker === "undefined" ? alone : together)(job, heard, down);
  return () => {
    clearInterval(watch);
    leave();
  };
}

type Line = (job: string | null, heard: (name: string, data: string) => void, down: (failures: number) => void) => () => void;

const together: Line = (job, heard, down) => {
  const port = new SharedWorker(new URL("./shared.ts", import.meta.url), { name: "hangwatch" }).port;
  const say = (message: FromTab): void => port.postMessage(message);
  port.onmessage = (message: MessageEvent<ToTab>) => {
    const said = message.data;
    if ("event" in said) heard(said.event, said.data);
    else if ("down" in said) down(said.down);
    else void signedIn();
  };
  const join = (): void => say({ want: job });
  const part = (): void => say({ bye: true });
  const here = window.setInterval(() => say({ here: true }), HERE_MS);
  const letGo = held((lock) => say({ holds: lock }));
  addEventListener("pagehide", part);
  addEventListener("pageshow", again);
  function again(event: PageTransitionEvent): void {
    if (event.persisted) join(); // back out of the browser's cache of pages
  }
  join();
  return () => {
    clearInterval(here);
    removeEventListener("pagehide", part);
    removeEventListener("pageshow", again);
    part();
    letGo();
    port.close();
  };
};

/** Holds a lock for as long as this tab lives: the browser lets go of it however a tab ends, where its last message may
 * be lost. Says its name once it is held; browsers have locks for https and the own machine alone. */
function held(say: (lock: string) => void): () => void {
  let letGo: () => void = () => undefined;
  const until = new Promise<void>((done) => (letGo = done));
  const lock = `hangwatch-${Math.random()}`;
  const hold = (): Promise<void> => (say(lock), until);
  void (navigator.locks as LockManager | undefined)?.request(lock, hold);
  return letGo;
}

const alone: Line = (job, heard, down) => {
  const source = new Source({ event: (name, _job, data) => heard(name, data), down, locked: () => void signedIn() });
  source.want(job === null ? [] : [job]);
  return () => source.close();
};
