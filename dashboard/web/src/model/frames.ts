// Whose code a frame is, as hangwatch/frames.py sees it: the user's own lines are what a reader looks for.

import type { Frame, RankReport, ThreadStack } from "../records";

const STDLIB = /\/lib(64)?\/python\d[.\d]*t?\/(?!(site|dist)-packages\/)|\/python\d+t?\.zip\//;
const PACKAGES = /\/(site|dist)-packages\//;
const TORCH =
  /\/torch\/(distributed|nn|utils|autograd|optim|cuda|multiprocessing|amp|fx|jit|library|_[a-z]\w*)\/|\/torch\/(serialization|_tensor|_ops|_compile|storage|functional|__init__|random)\.py$/;
const OURS = /\/hangwatch_agent\/|\/hangwatch\/(?!gallery\/)[\w/]+\.py$/;

export type Origin = "user" | "package" | "library" | "";

/** Where a source file comes from; "" for none. */
export function origin(file: string): Origin {
  if (file.startsWith("<")) return /^<(ipython-input|stdin)/.test(file) ? "user" : "";
  if (TORCH.test(file) || OURS.test(file) || STDLIB.test(file)) return "library";
  if (PACKAGES.test(file)) return /\/(torch|functorch|torchgen)\//.test(file) ? "library" : "package";
  return /\.(py|ipynb|pyx)$/.test(file) ? "user" : "";
}

export function isUser(frame: Frame): boolean {
  return !frame.native && origin(frame.file) === "user";
}

/** The user's line that a stack (innermost first) stands in; a package's, else the innermost, where there is none. */
export function site(frames: readonly Frame[]): Frame | null {
  return frames.find(isUser) ?? frames.find((frame) => !frame.native && origin(frame.file) === "package") ?? frames.find((frame) => !frame.native) ?? frames[0] ?? null;
}

export function mainStack(process: Pick<RankReport, "stacks"> | null): ThreadStack | null {
  return process?.stacks.find((stack) => stack.main) ?? null;
}
