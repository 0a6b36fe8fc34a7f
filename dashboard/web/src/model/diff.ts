// The ranks' diff as text: what a cell says, which rows are remarkable.

import type { DiffCall, DiffIteration, RanksDiff } from "../records";
import { place, plural } from "../words";

/** "all_reduce x2 (train.py:71, below train.py:90), waiting"; "-" for no call. */
export function told(call: DiffCall | null | undefined): string {
  if (!call) return "-";
  const times = call.times > 1 ? ` x${call.times}` : "";
  return `${call.op}${times}${way(call)}${call.open ? ", waiting" : ""}`;
}

/** The call's place and the line above it: below a framework, the user's line that runs the framework. */
function way({ caller, where, via }: DiffCall): string {
  const lines = [where, via[0]].flatMap((frame) => (frame ? [place(frame)] : []));
  if (caller) lines.unshift(`${caller.function}, ${place(caller)}`);
  return lines.length ? ` (${lines.join(", below ")})` : "";
}

/** "epoch 0, batch 5 (step 5)", or as much of it as is known. */
export function titleOf({ step }: DiffIteration): string {
  const named = step.epoch !== null && step.batch !== null;
  if (named) return `epoch ${step.epoch}, batch ${step.batch}${step.step === null ? "" : ` (step ${step.step})`}`;
  return step.step === null ? "an iteration without a number" : `step ${step.step}`;
}

/** One cell for each lane, whatever a report from elsewhere holds. */
export function cells(diff: RanksDiff, calls: (DiffCall | null)[]): (DiffCall | null)[] {
  return diff.lanes.map((_, lane) => calls[lane] ?? null);
}

/** What was compared, where that is not all ranks. */
export function compared(diff: RanksDiff, ranks: number): string {
  return diff.compared < ranks ? `${diff.compared} of ${plural(ranks, "rank")} were compared` : "";
}
