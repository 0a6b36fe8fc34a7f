// Whose code a frame is: the user's own lines are what a reader looks for.

import type { Frame, RankReport, ThreadStack } from "../records";

const NOT_OURS = /(^|\/)(site-packages|dist-packages)\/|(^|\/)lib(64)?\/python3[^/]*\/|^<frozen|^<string>|^$/;

/** A Python frame outside installed packages and the standard library. */
export function isUser(frame: Frame): boolean {
  return !frame.native && frame.line > 0 && !NOT_OURS.test(frame.file) && !/\.(so|c|cpp|h)(\.|$)/.test(frame.file);
}

/** The user's line that a stack (innermost first) stands in; the innermost Python frame where none is the user's. */
export function site(frames: readonly Frame[]): Frame | null {
  return frames.find(isUser) ?? frames.find((frame) => !frame.native) ?? frames[0] ?? null;
}

export function mainStack(rank: Pick<RankReport, "stacks">): ThreadStack | null {
  return rank.stacks.find((stack) => stack.main) ?? null;
}

export function same(a: Frame | null, b: Frame | null): boolean {
  return a === b || (!!a && !!b && a.file === b.file && a.line === b.line && a.function === b.function);
}
