// The worker that all tabs of a browser share: one stream for all of them. A browser opens six connections to a server
// at most, and a tab each would use them up.

import { Source } from "./source";

export type FromTab = { want: string | null } | { here: true } | { holds: string } | { bye: true };
export type ToTab = { event: string; data: string } | { down: number } | { locked: true };

const GONE_MS = 180_000; // timers of tabs in the background run once a minute

interface Tab {
  job: string | null;
  heardAt: number;
}

const tabs = new Map<MessagePort, Tab>();
let source: Source | null = null;

function tell(message: ToTab, job = ""): void {
  for (const [port, tab] of tabs) if (!job || tab.job === job) port.postMessage(message);
}

function changed(): void {
  if (tabs.size === 0) {
    source?.close();
    source = null;
    return;
  }
  source ??= new Source({
    event: (event, job, data) => tell({ event, data }, job),
    down: (failures) => tell({ down: failures }),
    locked: () => tell({ locked: true }),
  });
  source.want([...tabs.values()].flatMap((tab) => tab.job ?? []));
}

function leave(port: MessagePort): void {
  if (tabs.delete(port)) changed();
}

(self as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0]!;
  port.onmessage = (message: MessageEvent<FromTab>) => {
    const said = message.data;
    if ("bye" in said) return leave(port);
    if ("holds" in said) return void navigator.locks.request(said.holds, () => leave(port));
    const known = tabs.get(port);
    if ("want" in said) {
      tabs.set(port, { job: said.want, heardAt: Date.now() });
      changed();
    } else if (known) {
      known.heardAt = Date.now();
    }
  };
};

setInterval(() => {
  for (const [port, tab] of tabs) if (Date.now() - tab.heardAt > GONE_MS) leave(port); // crashed, where browsers have no locks
}, 30_000);
