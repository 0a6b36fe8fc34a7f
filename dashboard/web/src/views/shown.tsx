// Which ranks the charts show, where there are more than fit.

import { useSignal } from "@preact/signals";
import { MOST_LANES, type Scene } from "../scene";
import { fromRanges, plural, ranges, runs } from "../words";

export function ShownRanks({ scene }: { scene: Scene }) {
  const all = scene.columns.value?.rank ?? [];
  const shown = scene.shown.value;
  const typed = useSignal<string | null>(null);
  if (all.length <= MOST_LANES) return null;
  const text = typed.value ?? runs(shown).map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(", ");
  const show = (wanted: number[]): void => {
    const known = new Set(all);
    const kept = wanted.filter((rank) => known.has(rank)).slice(0, MOST_LANES);
    typed.value = null;
    if (kept.length) scene.show(kept);
  };
  const turn = (by: number): void => {
    const first = Math.min(...shown);
    const start = Math.max(0, Math.min(all.indexOf(first) + by * MOST_LANES, all.length - MOST_LANES));
    show(all.slice(start, start + MOST_LANES));
  };
  return (
    <form
      class="shown"
      onSubmit={(event) => {
        event.preventDefault();
        show(fromRanges(text));
      }}
    >
      <button type="button" onClick={() => turn(-1)} aria-label="Ranks before these">‹</button>
      <label>
        Ranks <input value={text} onInput={(event) => (typed.value = event.currentTarget.value)} size={18} spellcheck={false} />
      </label>
      <button type="submit">Show</button>
      <button type="button" onClick={() => turn(1)} aria-label="Ranks after these">›</button>
      <button type="button" onClick={() => show(slowest(scene))}>Furthest behind</button>
      <span class="quiet">
        {ranges(shown).length > 40 ? plural(shown.length, "rank") : ranges(shown)} of {plural(all.length, "rank")}
      </span>
    </form>
  );
}

function slowest(scene: Scene): number[] {
  const columns = scene.columns.value;
  if (!columns) return [];
  return columns.rank
    .map((rank, index) => ({ rank, lag: columns.lag[index]! }))
    .sort((a, b) => b.lag - a.lag || a.rank - b.rank)
    .slice(0, MOST_LANES)
    .map((entry) => entry.rank)
    .sort((a, b) => a - b);
}
