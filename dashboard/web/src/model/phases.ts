// How a rank's phase looks: a colour of the style sheet and, for those who do not tell colours apart, a mark.

import type { Phase } from "../records";

export type Mark = "dot" | "low" | "slash" | "backslash" | "plus" | "ring" | "bar" | "lines" | "cross";

/** Phases that mean the same to a reader share a kind. `name` is also the colour: `--phase-NAME`. */
export interface Kind {
  name: string;
  mark: Mark;
  says: string;
}

export const KINDS = {
  start: { name: "start", mark: "dot", says: "starting" },
  data: { name: "data", mark: "low", says: "waits for data" },
  compute: { name: "compute", mark: "slash", says: "step, forward" },
  backward: { name: "backward", mark: "backslash", says: "backward" },
  optimizer: { name: "optimizer", mark: "plus", says: "optimizer" },
  eval: { name: "eval", mark: "ring", says: "evaluation" },
  between: { name: "between", mark: "bar", says: "out of the loop" },
  end: { name: "end", mark: "lines", says: "ending" },
  failed: { name: "failed", mark: "cross", says: "failed" },
} as const satisfies Record<string, Kind>;

export type KindName = keyof typeof KINDS;

const KIND_OF: Record<Phase, KindName> = {
  start: "start",
  init: "start",
  group: "start",
  ready: "start",
  data: "data",
  step: "compute",
  forward: "compute",
  backward: "backward",
  optimizer: "optimizer",
  eval: "eval",
  between: "between",
  destroying: "end",
  destroyed: "end",
  "main-done": "end",
  atexit: "end",
  finalizing: "end",
  failed: "failed",
};

const WORDS: Partial<Record<Phase, string>> = {
  start: "before the process group",
  init: "in init_process_group",
  group: "in new_group",
  ready: "before the first step",
  data: "waits for data",
  step: "in the step",
  forward: "in forward",
  backward: "in backward",
  optimizer: "after the optimizer",
  eval: "in evaluation",
  between: "out of the loop",
  destroying: "in destroy_process_group",
  destroyed: "group destroyed",
  "main-done": "main has ended",
  atexit: "in exit handlers",
  finalizing: "finalizing",
  failed: "failed",
};

export const PHASES = Object.keys(KIND_OF) as Phase[];

export function kindOf(phase: string): KindName {
  return KIND_OF[phase as Phase] ?? "start";
}

/** The phase in words: "in backward". */
export function sayPhase(phase: string): string {
  return WORDS[phase as Phase] ?? phase;
}
