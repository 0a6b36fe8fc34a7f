// What the views of evidence show, live or frozen: every view takes a scene and does not know which it is.

import { computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { GroupColumns, History, NodeRow, RankColumns } from "./api";
import { columnsOf, groupsOf } from "./model/columns";
import { homes } from "./model/homes";
import type { Chosen } from "./model/span";
import { curvesOfHistory, curvesOfIncident, lanesOfHistory, lanesOfIncident, type Curves, type Lane } from "./model/tracks";
import type { Divergence, HealthWarning, Incident, JobHealth, NodeFacts, Status, Verdict } from "./records";
import { address, write, writeView, type View } from "./router";

export interface Node {
  host: string;
  ranks: number[];
  facts: NodeFacts | null;
  row: NodeRow | null; // live only
}

export interface Scene {
  live: boolean;
  ended: ReadonlySignal<boolean>; // the job is over: nothing is on the move
  over: ReadonlySignal<boolean>; // it is over, or has been judged not to go on: what was forecast is past
  columns: ReadonlySignal<RankColumns | null>;
  groups: ReadonlySignal<GroupColumns | null>;
  doc: ReadonlySignal<Incident | null>; // the newest evidence: stacks, calls, processes
  record: ReadonlySignal<Incident | null>; // the incident that the evidence is of; null while there is none
  status: ReadonlySignal<Status | null>;
  verdict: ReadonlySignal<Verdict | null>;
  culprits: ReadonlySignal<ReadonlySet<number>>;
  nodes: ReadonlySignal<Node[]>;
  warnings: ReadonlySignal<HealthWarning[]>;
  divergences: ReadonlySignal<Divergence[]>;
  health: ReadonlySignal<JobHealth | null>; // null: not known, or not yet
  needHealth(): () => void; // it is about to be looked at; until the answer is called
  lanes: ReadonlySignal<Lane[]>;
  curves: ReadonlySignal<Curves>;
  span: Signal<Chosen>; // the part of the time that they show
  shown: ReadonlySignal<number[]>; // the ranks of lanes and curves
  show(ranks: number[]): void; // asks for others
  needHistory(): void; // lanes and curves are about to be looked at
  link(view: View, rank?: number | null): string;
  speedscope: string | null; // where the stacks can be had; null: from the document itself
  capture: (() => Promise<void>) | null;
}

export const MOST_LANES = 64;

export function blamed(verdict: Verdict | null): ReadonlySet<number> {
  return new Set((verdict?.culprits ?? []).flatMap((culprit) => (culprit.rank === null ? [] : [culprit.rank])));
}

/** Whether a job of this status goes on by nothing that is to come. */
export function isOver(status: Status | null): boolean {
  return status === "hung" || status === "failed" || status === "lingering";
}

/** What is said of what a verdict names: what is awaited still works, and has done no wrong. Of a rank with a process at fault that the process is. */
export function role(scene: Scene, rank: number | null = null): string {
  const said = scene.status.value === "waiting" ? "awaited" : "at fault";
  const home = rank === null ? undefined : homes(scene.verdict.value).get(rank);
  return home ? `its ${home} ${said}` : said;
}

/** The first lanes to show: who is at fault first, then ranks from 0 on. */
export function firstShown(columns: RankColumns | null, culprits: ReadonlySet<number>, most = MOST_LANES): number[] {
  const all = columns?.rank ?? [];
  if (all.length <= most) return all;
  const known = new Set(all);
  const first = [...culprits].filter((rank) => known.has(rank)).slice(0, most / 2);
  const rest = all.filter((rank) => !culprits.has(rank)).slice(0, most - first.length);
  return [...first, ...rest].sort((a, b) => a - b);
}

/** An incident, or the document of a capture: nothing moves. */
export function frozen(incident: Incident, page: "incident" | "capture", id: string, speedscope: string | null): Scene {
  const columns = columnsOf(incident);
  const culprits = blamed(incident.verdict);
  const shown = signal(firstShown(columns, culprits));
  const lanes = lanesOfIncident(incident);
  const curves = curvesOfIncident(incident);
  const rows = computed(() => new Set(shown.value));
  return {
    live: false,
    ended: signal(false), // it may have moved when the evidence was taken
    over: signal(isOver(incident.status)),
    columns: signal(columns),
    groups: signal(groupsOf(incident)),
    doc: signal(incident),
    record: signal(page === "incident" ? incident : null),
    status: signal(incident.status),
    verdict: signal(incident.verdict),
    culprits: signal(culprits),
    nodes: signal(incident.nodes.map((facts) => ({ host: facts.host, ranks: facts.ranks, facts, row: null }))),
    warnings: signal(incident.warnings),
    divergences: signal(incident.divergences),
    health: signal(incident.health ?? null),
    needHealth: () => () => undefined,
    lanes: computed(() => lanes.filter((lane) => rows.value.has(lane.rank))),
    curves: computed(() => only(curves, rows.value)),
    span: signal<Chosen>(null),
    shown,
    show: (ranks) => (shown.value = ranks),
    needHistory: () => undefined,
    link: (view, rank = null) => address(id ? write({ page, id, view, rank }) : writeView(view, rank)),
    speedscope,
    capture: null,
  };
}

function only(curves: Curves, ranks: ReadonlySet<number>): Curves {
  const kept = <T>(rows: T[]): T[] => rows.filter((_, index) => ranks.has(curves.ranks[index]!));
  return { at: curves.at, ranks: kept(curves.ranks), lag: kept(curves.lag), stepTime: kept(curves.stepTime) };
}

export function historyScene(history: ReadonlySignal<History>): Pick<Scene, "lanes" | "curves" | "span" | "shown"> {
  return {
    lanes: computed(() => lanesOfHistory(history.value)),
    curves: computed(() => curvesOfHistory(history.value)),
    span: signal<Chosen>(null),
    shown: computed(() => history.value.rank),
  };
}

/** The pids of the processes that a verdict names and that are no ranks. */
export function blamedPids(verdict: Verdict | null): ReadonlySet<number> {
  return new Set((verdict?.culprits ?? []).flatMap((who) => (who.process === "rank" || who.pid === null ? [] : [who.pid])));
}
