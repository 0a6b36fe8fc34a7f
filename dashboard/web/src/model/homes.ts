// Ranks that a verdict names for a process of theirs: a loader worker is at fault, its rank waits like all others.

import type { Verdict } from "../records";
import { kindOf } from "../words";

/** Of the ranks that a verdict names, those named only for a process of theirs, and what that is: "worker", "child process". */
export function homes(verdict: Pick<Verdict, "culprits"> | null): ReadonlyMap<number, string> {
  const found = new Map<number, string>();
  const culprits = verdict?.culprits ?? [];
  for (const who of culprits) if (who.rank !== null && who.process !== "rank") found.set(who.rank, kindOf(who).replace(/^loader /, ""));
  for (const who of culprits) if (who.rank !== null && who.process === "rank") found.delete(who.rank);
  return found;
}
