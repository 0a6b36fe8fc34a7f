// What ranks did over time: lanes of phases, and curves of lag and step time. From the dashboard's history while the
// job lives; in an incident from the phases that the watchdog remembered, and from the ranks' step ledgers.

import type { History, RankColumns } from "../api";
import type { Incident, RankReport } from "../records";
import { PHASES } from "./phases";

export interface Segment {
  from: number;
  to: number;
  phase: string;
  step: number;
  still: boolean; // the last one of a rank that does not move
}

export interface Lane {
  rank: number;
  segments: Segment[];
}

/** Curves over common moments; outer index is the rank. `null` where nothing is known. */
export interface Curves {
  at: number[];
  ranks: number[];
  lag: (number | null)[][];
  stepTime: (number | null)[][];
}

export function emptyHistory(job: string, ranks: number[]): History {
  return { job, phases: PHASES, rank: ranks, at: [], step: [], phase: [], step_s: [], data_s: [], still_s: [] };
}

/** The history with one more moment, without what is older than `keep_s`. */
export function appended(history: History, columns: RankColumns, keep_s = 300): History {
  if (history.at.length && columns.at <= history.at.at(-1)!) return history;
  const index = new Map(columns.rank.map((rank, position) => [rank, position]));
  const pick = (column: number[], fallback: number): number[] =>
    history.rank.map((rank) => (index.has(rank) ? column[index.get(rank)!]! : fallback));
  const first = history.at.findIndex((at) => at >= columns.at - keep_s);
  const from = first < 0 ? history.at.length : first;
  const grown = <T,>(rows: T[][], row: T[]): T[][] => [...rows.slice(from), row];
  return {
    job: history.job,
    phases: columns.phases,
    rank: history.rank,
    at: [...history.at.slice(from), columns.at],
    step: grown(history.step, pick(columns.step, -1)),
    phase: grown(history.phase, pick(columns.phase, 0)),
    step_s: grown(history.step_s, pick(columns.last_step_s, 0)),
    data_s: grown(history.data_s, pick(columns.data_s, 0)),
    still_s: grown(history.still_s, pick(columns.still_s, 0)),
  };
}

const STILL = 2; // live: a batch may come late
const STILL_THEN = 1; // in evidence, which two samples a second apart agree on

export function lanesOfHistory(history: History): Lane[] {
  return history.rank.map((rank, lane) => {
    const segments: Segment[] = [];
    const since = stillSince(history, lane);
    history.at.forEach((at, moment) => {
      const phase = history.phases[history.phase[moment]![lane]!] ?? "start";
      const step = history.step[moment]![lane] ?? -1;
      const still = at >= since[moment]!;
      const last = segments.at(-1);
      if (last) last.to = at;
      if (last?.phase === phase && last.still === still) last.step = step;
      else segments.push({ from: at, to: at, phase, step, still });
    });
    return { rank, segments };
  });
}

/** For each moment, since when the rank had stood still by a later one: that it stands still is known only afterwards. */
function stillSince(history: History, lane: number): number[] {
  let since = Infinity;
  const result: number[] = new Array(history.at.length);
  for (let moment = history.at.length - 1; moment >= 0; moment--) {
    const still_s = history.still_s[moment]![lane] ?? 0;
    if (still_s > STILL) since = Math.min(since, history.at[moment]! - still_s);
    else if (history.at[moment]! < since) since = Infinity;
    result[moment] = since;
  }
  return result;
}

export function curvesOfHistory(history: History): Curves {
  const fastest = history.step.map((row) => row.reduce<number>((most, step) => Math.max(most, step ?? -1), -1));
  return {
    at: history.at,
    ranks: history.rank,
    // Behind where the fastest was a moment before: nodes are not looked at in one instant, and what is a step ahead
    // for some milliseconds is not ahead.
    lag: history.rank.map((_, lane) => history.step.map((row, moment) => (moment === 0 || row[lane] === null ? null : Math.max(0, fastest[moment - 1]! - row[lane]!)))),
    stepTime: history.rank.map((_, lane) => history.step_s.map((row, moment) => growing(row[lane], history.still_s[moment]![lane]))),
  };
}

/** The time of the last step, or of the one that a rank stands still in where that is longer: in a hang it grows. */
function growing(last_s: number | null | undefined, still_s: number | null | undefined): number | null {
  return Math.max(last_s ?? 0, (still_s ?? 0) > STILL ? still_s! : 0) || null;
}

export function lanesOfIncident(incident: Incident): Lane[] {
  const end = incident.taken_at || incident.updated_at;
  return [...incident.ranks]
    .sort((a, b) => a.rank - b.rank)
    .map((rank) => ({ rank: rank.rank, segments: hasPhases(rank) ? phasesOf(rank, end) : stepsOf(rank, end) }));
}

/** Whether the phases of its last minutes were kept; reports of older versions and outlines of large jobs have none. */
export function hasPhases(rank: RankReport): boolean {
  return (rank.phases?.length ?? 0) > 0;
}

function phasesOf(rank: RankReport, end: number): Segment[] {
  const segments: Segment[] = rank.phases.map((span, index) => ({
    from: span.at, to: rank.phases[index + 1]?.at ?? Math.max(end, span.at), phase: span.phase, step: span.step, still: false,
  }));
  const last = segments.at(-1)!;
  const stopped = Math.max(end - rank.still_s, last.from);
  if (rank.still_s <= STILL_THEN || stopped >= last.to) return segments;
  const before = stopped > last.from ? [{ ...last, to: stopped }] : [];
  return [...segments.slice(0, -1), ...before, { ...last, from: stopped, still: true }];
}

function stepsOf(rank: RankReport, end: number): Segment[] {
  const steps = rank.reading?.steps ?? [];
  const segments: Segment[] = steps.slice(0, -1).map((entry, index) => ({
    from: entry.at, to: steps[index + 1]!.at, phase: "step", step: entry.step, still: false,
  }));
  const last = steps.at(-1);
  const stopped = Math.max(rank.reading?.phase_at ?? 0, last?.at ?? 0) || rank.progress?.at || end;
  if (last && last.at < stopped) segments.push({ from: last.at, to: stopped, phase: "step", step: last.step, still: false });
  segments.push({ from: stopped, to: Math.max(end, stopped), phase: rank.phase, step: rank.progress?.step ?? -1, still: rank.still_s > STILL_THEN });
  return segments;
}

/** Lag and step time at every moment at which any rank began a step. Behind is who does not begin a step before the fastest begins the next. */
export function curvesOfIncident(incident: Incident): Curves {
  const ranks = [...incident.ranks].sort((a, b) => a.rank - b.rank);
  const ledgers = ranks.map((rank) => rank.reading?.steps ?? []);
  const at = [...new Set([...ledgers.flatMap((steps) => steps.map((entry) => entry.at)), incident.taken_at])].sort((a, b) => a - b);
  const begun = ledgers.map((steps) => sampled(at, steps.map((entry) => [entry.at, entry.step])));
  const took = ledgers.map((steps) =>
    sampled(at, steps.slice(1).map((entry, index): [number, number] => [entry.at, entry.at - steps[index]!.at])),
  );
  const end = at.length - 1;
  ranks.forEach((rank, index) => {
    if (took[index]!.length) took[index]![end] = growing(took[index]![end], rank.still_s);
  });
  const fastest = at.map((_, moment) => begun.reduce((most, row) => Math.max(most, row[moment] ?? -1), -1));
  const ends = lastOfStep(fastest);
  const lag = begun.map((row) => row.map((step, moment) => (step === null ? null : fastest[moment]! - row[ends[moment]!]!)));
  return { at, ranks: ranks.map((rank) => rank.rank), lag, stepTime: took };
}

/** For each moment the last one in the same step of the fastest: a rank that begins it until then is not behind. */
function lastOfStep(fastest: number[]): number[] {
  const ends: number[] = new Array(fastest.length);
  for (let moment = fastest.length - 1; moment >= 0; moment--) {
    const same = moment + 1 < fastest.length && fastest[moment + 1] === fastest[moment];
    ends[moment] = same ? ends[moment + 1]! : moment;
  }
  return ends;
}

/** The value that held at each moment, null before the first. `changes` are in order of time. */
function sampled(at: number[], changes: [number, number][]): (number | null)[] {
  let next = 0;
  let value: number | null = null;
  return at.map((moment) => {
    while (next < changes.length && changes[next]![0] <= moment) value = changes[next++]![1];
    return value;
  });
}
