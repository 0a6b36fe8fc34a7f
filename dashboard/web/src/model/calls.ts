// Collectives lined up across ranks: call by call, who arrived, who did not, and who came with something else.

import type { Collective, Frame, Incident } from "../records";
import { site } from "./frames";

/** What some ranks issued under one number; more than one of these under a number is a mismatch. */
export interface Variant {
  op: string;
  sizes: string;
  dtypes: string;
  peer: number | null;
  where: Frame | null;
  ranks: number[];
  open: number[]; // those of the ranks that have not completed it
}

export interface Call {
  seq: number;
  step: number | null;
  variants: Variant[];
  missing: number[]; // members that have not issued it
  unknown: number[]; // members whose ring of calls does not reach back, or lists no calls
}

export interface GroupCalls {
  key: string;
  name: string;
  members: number[];
  calls: Call[]; // newest first
}

const MOST_CALLS = 40;

export function groupCalls(incident: Incident): GroupCalls[] {
  const groups = new Map<string, GroupCalls>();
  for (const rank of incident.ranks) {
    for (const head of rank.collectives.heads) {
      const key = `${head.name} ${head.members.join()}`;
      if (!groups.has(key)) groups.set(key, { key, name: head.name, members: head.members, calls: [] });
    }
  }
  for (const group of groups.values()) group.calls = lineUp(incident, group);
  return [...groups.values()].sort((a, b) => b.members.length - a.members.length || a.name.localeCompare(b.name));
}

function lineUp(incident: Incident, group: GroupCalls): Call[] {
  const bySeq = new Map<number, Call>();
  const reach = new Map<number, { oldest: number; issued: number }>();
  const members = new Set(group.members);
  for (const rank of incident.ranks.filter((rank) => members.has(rank.rank))) {
    const head = rank.collectives.heads.find((head) => head.name === group.name && head.members.join() === group.members.join());
    if (!head) continue;
    const listed = distinct([...rank.collectives.recent, ...rank.collectives.open_calls]).filter((call) => call.group === group.name);
    reach.set(rank.rank, { oldest: Math.min(Infinity, ...listed.map((call) => call.seq)), issued: head.issued });
    for (const call of listed) {
      const line = bySeq.get(call.seq) ?? { seq: call.seq, step: call.step, variants: [], missing: [], unknown: [] };
      bySeq.set(call.seq, line);
      add(line, rank.rank, call);
    }
  }
  const newest = [...bySeq.values()].sort((a, b) => b.seq - a.seq).slice(0, MOST_CALLS);
  for (const line of newest) sortOut(line, group.members, reach);
  return newest;
}

function distinct(calls: Collective[]): Collective[] {
  const seen = new Set<string>();
  return calls.filter((call) => {
    const key = `${call.group} ${call.seq} ${call.op} ${call.peer}`;
    return !seen.has(key) && !!seen.add(key);
  });
}

function add(line: Call, rank: number, call: Collective): void {
  const where = site(call.frames);
  const sizes = call.sizes.map((size) => size.join("×") || "scalar").join(", ");
  const dtypes = [...new Set(call.dtypes)].join(", ");
  line.step ??= call.step;
  const known = line.variants.find(
    (variant) =>
      variant.op === call.op && variant.sizes === sizes && variant.dtypes === dtypes &&
      variant.where?.file === where?.file && variant.where?.line === where?.line && (variant.peer === call.peer),
  );
  const variant = known ?? { op: call.op, sizes, dtypes, peer: call.peer, where, ranks: [], open: [] };
  if (!known) line.variants.push(variant);
  variant.ranks.push(rank);
  if (call.retired === false) variant.open.push(rank);
}

function sortOut(line: Call, members: number[], reach: Map<number, { oldest: number; issued: number }>): void {
  const arrived = new Set(line.variants.flatMap((variant) => variant.ranks));
  for (const member of members) {
    if (arrived.has(member)) continue;
    const known = reach.get(member);
    if (known && known.issued < line.seq) line.missing.push(member);
    else line.unknown.push(member);
  }
  line.variants.sort((a, b) => b.ranks.length - a.ranks.length);
}

/** Whether ranks came to one number with different things: not only from different lines of the program. */
export function mismatched(call: Call): boolean {
  return new Set(call.variants.map((variant) => `${variant.op} ${variant.sizes} ${variant.dtypes}`)).size > 1;
}
