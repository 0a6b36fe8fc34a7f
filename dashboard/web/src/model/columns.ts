// The ranks of an incident in the columns that the live page gets: one grid shows both.

import type { GroupColumns, GroupHeads, RankColumns } from "../api";
import type { GroupHead, Incident, RankReport } from "../records";
import { ranges, runs } from "../words";
import { PHASES } from "./phases";

export function columnsOf(incident: Incident): RankColumns {
  const ranks = [...incident.ranks].sort((a, b) => a.rank - b.rank);
  const hosts = [...new Set(ranks.map((rank) => rank.host))];
  const step = ranks.map((rank) => rank.progress?.step ?? -1);
  const fastest = step.reduce((a, b) => Math.max(a, b), -1);
  const times = ranks.map((rank) => rank.reading?.times);
  const sparse = (say: (rank: RankReport) => string | null | undefined): Record<string, string> =>
    Object.fromEntries(ranks.flatMap((rank) => (say(rank) ? [[rank.rank, say(rank)!]] : [])));
  return {
    job: incident.job.id,
    at: incident.taken_at || incident.updated_at,
    phases: PHASES,
    nodes: hosts,
    rank: ranks.map((rank) => rank.rank),
    node: ranks.map((rank) => hosts.indexOf(rank.host)),
    pid: ranks.map((rank) => rank.pid),
    phase: ranks.map((rank) => Math.max(0, (PHASES as string[]).indexOf(rank.phase))),
    step,
    epoch: ranks.map((rank) => rank.progress?.epoch ?? null),
    batch: ranks.map((rank) => rank.progress?.batch ?? null),
    lag: step.map((own) => fastest - own),
    still_s: ranks.map((rank) => rank.still_s),
    patience_s: ranks.map((rank) => rank.patience_s),
    steps: times.map((time) => time?.steps ?? 0),
    data_s: times.map((time) => time?.data_s ?? 0),
    compute_s: times.map((time) => time?.before_sync_s ?? 0),
    sync_s: times.map((time) => (time ? Math.max(0, time.total_s - time.data_s - time.before_sync_s) : 0)),
    last_step_s: times.map((time) => time?.last_s ?? 0),
    issued: ranks.map((rank) => rank.progress?.calls ?? 0),
    waiting_for: sparse((rank) => rank.waiting_for),
    exception: sparse((rank) => rank.exception && `${rank.exception.type}: ${rank.exception.message}`),
    process_state: sparse((rank) => rank.process?.state),
    absent: absent(incident),
  };
}

function absent(incident: Incident): string {
  const known = new Set(incident.ranks.map((rank) => rank.rank));
  const world = incident.job.world_size ?? 0;
  const missing = Array.from({ length: world }, (_, rank) => rank).filter((rank) => !known.has(rank));
  return text(missing);
}

function text(ranks: Iterable<number>): string {
  return runs(ranks)
    .map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`))
    .join(",");
}

/** The process groups of an incident, each with its members by how far they are, furthest first. */
export function groupsOf(incident: Incident): GroupColumns {
  const found = new Map<string, { head: GroupHead; heads: Map<string, { head: GroupHead; ranks: number[] }> }>();
  for (const rank of incident.ranks) {
    for (const head of rank.collectives.heads) {
      const key = `${head.name} ${head.members.join()}`;
      const group = found.get(key) ?? { head, heads: new Map() };
      found.set(key, group);
      const place = `${head.issued} ${head.completed}`;
      const at = group.heads.get(place) ?? { head, ranks: [] };
      group.heads.set(place, at);
      at.ranks.push(rank.rank);
    }
  }
  const groups = [...found.entries()].map(([key, group]) => {
    const heads: GroupHeads[] = [...group.heads.values()]
      .map(({ head, ranks }) => ({ issued: head.issued, completed: head.completed, ranks: text(ranks) }))
      .sort((a, b) => b.issued - a.issued || b.completed - a.completed);
    const furthest = Math.max(-1, ...heads.map((head) => head.issued));
    const behind = [...group.heads.values()].filter(({ head }) => head.issued < furthest).flatMap(({ ranks }) => ranks);
    return {
      id: key,
      name: group.head.name,
      description: group.head.description,
      backend: group.head.backend,
      members: text(group.head.members),
      size: group.head.members.length,
      issued: furthest,
      completed: Math.max(-1, ...heads.map((head) => head.completed)),
      heads,
      behind: text(behind),
    };
  });
  return { job: incident.job.id, at: incident.taken_at, groups };
}

const MOVES_S = 2;

/** Ranks that are in one and the same situation, most telling first: a grid of any size in a few lines of text. */
export interface Situation {
  ranks: number[];
  phase: string; // empty where they move
  step: number;
  says: string;
  state: string;
  still_s: number;
  atFault: boolean;
}

/** `homes`: ranks of which a process is at fault, which is said of them, and not of those at fault themselves. */
export function situations(columns: RankColumns, culprits: ReadonlySet<number>, ended = false, homes: ReadonlyMap<number, string> = new Map()): Situation[] {
  const found = new Map<string, Situation>();
  columns.rank.forEach((rank, index) => {
    const phase = columns.phases[columns.phase[index]!] ?? "start";
    const still = columns.still_s[index]! > MOVES_S;
    const says = columns.exception[rank] ?? ((still && columns.waiting_for[rank]) || "");
    const state = columns.process_state[rank] ?? "";
    const odd = state && "TtDXZ".includes(state) ? state : "";
    const atFault = culprits.has(rank);
    const moves = !ended && !still && !says && !odd && !atFault; // then the phase changes all the time
    const key = `${moves ? "moves" : columns.phase[index]} ${columns.step[index]} ${atFault} ${homes.get(rank) ?? ""} ${odd} ${says}`;
    const known = found.get(key);
    if (known) {
      known.ranks.push(rank);
      known.still_s = Math.min(known.still_s, columns.still_s[index]!);
    } else {
      found.set(key, { ranks: [rank], phase: moves ? "" : phase, step: columns.step[index]!, says, state: odd, still_s: columns.still_s[index]!, atFault });
    }
  });
  return [...found.values()].sort((a, b) => Number(b.atFault) - Number(a.atFault) || b.ranks.length - a.ranks.length);
}

export function sayRanks(text: string): string {
  return ranges(text.split(",").flatMap((part) => {
    const [first, last] = part.split("-").map(Number);
    if (first === undefined || Number.isNaN(first)) return [];
    return Array.from({ length: (last ?? first) - first + 1 }, (_, index) => first + index);
  }));
}

const COLLAPSED_FROM = 128;

/** In a large job that is judged, the nodes on which nothing stands out: all their ranks are where most ranks are. */
export function uneventful(columns: RankColumns, culprits: ReadonlySet<number>): ReadonlySet<number> {
  if (columns.rank.length < COLLAPSED_FROM || culprits.size === 0) return new Set();
  const where = (index: number): string => `${columns.phase[index]} ${columns.step[index]}`;
  const counts = new Map<string, number>();
  columns.rank.forEach((_, index) => counts.set(where(index), (counts.get(where(index)) ?? 0) + 1));
  const usual = [...counts].reduce((most, entry) => (entry[1] > most[1] ? entry : most))[0];
  const eventful = new Set<number>();
  columns.rank.forEach((rank, index) => {
    const odd = "XZTtD".includes(columns.process_state[rank] || "-");
    if (where(index) !== usual || culprits.has(rank) || columns.exception[rank] || odd) eventful.add(columns.node[index]!);
  });
  const all = new Set(columns.node);
  return eventful.size && eventful.size < all.size ? new Set([...all].filter((node) => !eventful.has(node))) : new Set();
}

/** The columns without the ranks of some nodes. */
export function without(columns: RankColumns, nodes: ReadonlySet<number>): RankColumns {
  const kept = columns.rank.flatMap((_, index) => (nodes.has(columns.node[index]!) ? [] : [index]));
  const entries = Object.entries(columns).map(([name, column]) => [
    name,
    Array.isArray(column) && name !== "phases" && name !== "nodes" ? kept.map((index) => (column as unknown[])[index]) : column,
  ]);
  return Object.fromEntries(entries) as RankColumns;
}
