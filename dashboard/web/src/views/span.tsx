// The time range of a job's charts: chosen once, and the same on each of them.

import type { Signal } from "@preact/signals";
import { moved, resolved, zoomed, type Chosen, type Span } from "../model/span";
import { duration } from "../words";

const LAST = [30, 60, 120, 300];

export function SpanChoice({ chosen, whole }: { chosen: Signal<Chosen>; whole: Span }) {
  const now = resolved(chosen.value, whole);
  const length = whole.to - whole.from;
  const last = chosen.value && "last" in chosen.value ? chosen.value.last : 0;
  const some = chosen.value !== null && !last;
  return (
    <span class="zoom">
      <label>
        <span class="offscreen">Time range</span>
        <select value={some ? "some" : String(last)} onChange={(event) => (chosen.value = Number(event.currentTarget.value) ? { last: Number(event.currentTarget.value) } : null)}>
          <option value="0">all, {duration(length)}</option>
          {LAST.filter((seconds) => seconds < length || seconds === last).map((seconds) => <option key={seconds} value={String(seconds)}>the last {duration(seconds)}</option>)}
          {some && <option value="some">{duration(now.to - now.from)}</option>}
        </select>
      </label>
      <button type="button" onClick={() => (chosen.value = zoomed(now, whole, 0.5))} aria-label="Zoom in">+</button>
      <button type="button" onClick={() => (chosen.value = zoomed(now, whole, 2))} aria-label="Zoom out">−</button>
      <button type="button" onClick={() => (chosen.value = moved(now, whole, -0.3))} aria-label="Earlier">‹</button>
      <button type="button" onClick={() => (chosen.value = moved(now, whole, 0.3))} aria-label="Later">›</button>
    </span>
  );
}
