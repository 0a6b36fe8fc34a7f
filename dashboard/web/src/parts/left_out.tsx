// What a long list leaves out because nothing stands out there, and the button that shows it.

import type { Signal } from "@preact/signals";

export function LeftOut({ says, whole, all = "Show all", less = "Show only what stands out" }: { says: string; whole: Signal<boolean>; all?: string; less?: string }) {
  return (
    <p class="collapsed">
      {!whole.value && `${says} `}
      <button type="button" class="link" aria-expanded={whole.value} onClick={() => (whole.value = !whole.value)}>{whole.value ? less : all}</button>
    </p>
  );
}
