// What a rank is inside of, by its own records: a verdict's waits end at the ranks that it blames, which wait as well.

import type { Collective, RankReport, Verdict, Wait } from "../records";
import { site } from "./frames";

/** "barrier 305 of group 0", "a batch of loader 1"; "" for a rank that is inside of nothing. As watchdogs say it. */
export function inside(rank: RankReport): string {
  const call = openCall(rank);
  if (call) return say(call);
  const loader = rank.loader.find((each) => each.inside_next);
  return loader ? `a batch of loader ${loader.index}` : "";
}

/** The waits of blamed ranks that a verdict leaves out: for the members of the group that have not come to their call. */
export function ownWaits(verdict: Pick<Verdict, "waits" | "culprits">, ranks: readonly RankReport[]): Wait[] {
  const told = new Set(verdict.waits.flatMap((wait) => [wait.rank, ...(wait.also ?? [])]));
  const blamed = new Set(verdict.culprits.flatMap((who) => (who.process === "rank" && who.rank !== null ? [who.rank] : [])));
  return ranks.flatMap((rank) => {
    const call = blamed.has(rank.rank) && !told.has(rank.rank) ? openCall(rank) : null;
    const group = call && rank.collectives.heads.find((head) => head.name === call.group && head.members.includes(rank.rank));
    if (!group || call.peer !== null) return []; // a message, or a call whose root alone may be awaited
    const awaited = ranks.filter((other) => other !== rank && group.members.includes(other.rank) && hasNotCome(other, call, group.members));
    return awaited.length ? [{ rank: rank.rank, awaited: awaited.map((other) => other.rank), what: say(call), where: site(call.frames), also: [] }] : [];
  });
}

/** The call that a living rank has entered and not left. */
function openCall(rank: RankReport): Collective | null {
  const over = rank.ended_at !== null || "XZ".includes(rank.process?.state || "-");
  return over ? null : (rank.collectives.open_calls[0] ?? rank.reading?.open_calls[0] ?? null);
}

function say(call: Collective): string {
  return call.peer === null ? `${call.op} ${call.seq} of group ${call.group}` : `${call.op} with rank ${call.peer}`;
}

/** Whether a rank is known not to have made a call: it has made fewer, or another one under that number. */
function hasNotCome(rank: RankReport, call: Collective, members: readonly number[]): boolean {
  const head = rank.collectives.heads.find((head) => head.name === call.group && head.members.join() === members.join());
  if (head && head.issued < call.seq) return true;
  const same = [...rank.collectives.open_calls, ...rank.collectives.recent].find((other) => other.group === call.group && other.seq === call.seq && !isMessage(other));
  return same !== undefined && same.op !== call.op;
}

function isMessage(call: Collective): boolean {
  return /send|recv/.test(call.op);
}
