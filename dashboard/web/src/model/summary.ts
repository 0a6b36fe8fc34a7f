// A report without the evidence of each rank, as `hangwatch report --summary` writes it: for an issue or a chat.

import type { CaptureNote, Incident, RankReport } from "../records";

const NOTE: CaptureNote = { source: "report", ok: false, detail: "a summary: stacks, calls and processes are in the full report", rank: null, took_s: 0 };

type Outline = Pick<
  RankReport,
  "rank" | "host" | "pid" | "phase" | "progress" | "waiting_for" | "exception" | "still_s" | "patience_s" | "moved" | "ended_at"
> & { collectives: Pick<RankReport["collectives"], "heads" | "open_calls" | "source"> };

/** What is left out has its default where a report is read. */
export function summary(incident: Incident): Omit<Incident, "ranks"> & { ranks: Outline[] } {
  return {
    ...incident,
    ranks: incident.ranks.map(outline),
    launchers: [],
    others: [],
    launched: [],
    call_sites: [],
    switches: [],
    store_keys: [],
    excerpts: [],
    capture: [...incident.capture, NOTE],
  };
}

function outline(rank: RankReport): Outline {
  const { heads, source } = rank.collectives;
  const open_calls = rank.collectives.open_calls.slice(0, 4).map((call) => ({ ...call, frames: call.frames.slice(0, 1) }));
  return {
    rank: rank.rank, host: rank.host, pid: rank.pid, phase: rank.phase, progress: rank.progress, waiting_for: rank.waiting_for,
    collectives: { heads, open_calls, source }, exception: rank.exception, still_s: rank.still_s, patience_s: rank.patience_s,
    moved: rank.moved, ended_at: rank.ended_at,
  };
}
