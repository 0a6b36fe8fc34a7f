// Rows of a large job that say the same: told once, with the ranks of which it is true.

export const FEW_ROWS = 16; // so many are listed one by one, alike or not

/** Rows of equal keys together, in the order in which the first of each came. */
export function alike<T>(rows: readonly T[], key: (row: T) => string): T[][] {
  const found = new Map<string, T[]>();
  for (const row of rows) {
    const name = key(row);
    const known = found.get(name);
    if (known) known.push(row);
    else found.set(name, [row]);
  }
  return [...found.values()];
}

/** What all of them have, null where they differ. */
export function common<T, V>(rows: readonly T[], value: (row: T) => V): V | null {
  const first = value(rows[0]!);
  return rows.every((row) => value(row) === first) ? first : null;
}

/** "31 GiB", "31 to 40 GiB"; "" where none is known. */
export function span(values: readonly (number | null)[], say: (value: number) => string): string {
  const known = values.filter((value): value is number => value !== null);
  if (!known.length) return "";
  const least = known.reduce((a, b) => Math.min(a, b));
  const most = known.reduce((a, b) => Math.max(a, b));
  const [from, to] = [say(least), say(most)];
  return from === to ? from : `${from} to ${to}`;
}
