// The part of the time that the charts of a job show: one choice for all of them.

export interface Span {
  from: number;
  to: number;
}

/** Moments, the last seconds, which move on with the job, or (null) everything. */
export type Chosen = Span | { last: number } | null;

/** What is shown of `whole`. */
export function resolved(chosen: Chosen, whole: Span): Span {
  if (!chosen) return whole;
  return inside("last" in chosen ? { from: whole.to - chosen.last, to: whole.to } : chosen, whole);
}

export function zoomed(now: Span, whole: Span, factor: number, center = 0.5): Chosen {
  const length = (now.to - now.from) * factor;
  if (length >= whole.to - whole.from) return null;
  const middle = now.from + (now.to - now.from) * center;
  return inside({ from: middle - length * center, to: middle + length * (1 - center) }, whole);
}

export function moved(now: Span, whole: Span, share: number): Span {
  const by = (now.to - now.from) * share;
  return inside({ from: now.from + by, to: now.to + by }, whole);
}

export function inside(span: Span, whole: Span): Span {
  const length = Math.min(span.to - span.from, whole.to - whole.from);
  const from = Math.min(Math.max(span.from, whole.from), whole.to - length);
  return { from, to: from + length };
}

/** Seconds between two marks of a time axis. */
export const STRIDES = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14_400, 43_200, 86_400];
