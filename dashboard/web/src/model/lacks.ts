// Evidence that could not be had, in sentences: what is alike of many ranks or nodes is one of them.

import type { CaptureNote } from "../records";
import { plural, ranks } from "../words";

const SILENT = /^(.+?) did not answer(?:; last heard of (\d+) s ago)?$/; // as the dashboard says it of a node
const NAMED = 3;

/** Notes of nodes that did not answer are one note: a rack that is gone has dozens. */
export function oneOfNodes(notes: readonly CaptureNote[]): CaptureNote[] {
  const silent = notes.flatMap((note) => {
    const found = !note.ok && note.source === "node" ? SILENT.exec(note.detail) : null;
    return found ? [{ note, host: found[1]!, heard: found[2] === undefined ? null : Number(found[2]) }] : [];
  });
  if (silent.length < 2) return [...notes];
  const gathered = new Set(silent.map(({ note }) => note));
  return [{ ...silent[0]!.note, detail: says(silent) }, ...notes.filter((note) => !gathered.has(note))];
}

function says(silent: readonly { host: string; heard: number | null }[]): string {
  const hosts = silent.map(({ host }) => host);
  const rest = hosts.length > NAMED ? ` and ${hosts.length - NAMED} more` : "";
  const heard = silent.flatMap((each) => each.heard ?? []);
  const [least, most] = [heard.reduce((a, b) => Math.min(a, b), Infinity), heard.reduce((a, b) => Math.max(a, b), 0)];
  const ago = heard.length ? `; last heard of ${least === most ? least : `${least} to ${most}`} s ago` : "";
  return `${plural(hosts.length, "node")} did not answer: ${hosts.slice(0, NAMED).join(", ")}${rest}${ago}`;
}

export function lacks(notes: readonly CaptureNote[]): string[] {
  const lost = new Map<string, { note: CaptureNote; whose: number[] }>();
  for (const note of oneOfNodes(notes)) {
    if (note.ok) continue;
    const key = `${note.source}\u0000${note.detail}`;
    const known = lost.get(key) ?? { note, whose: [] };
    if (note.rank !== null) known.whose.push(note.rank);
    lost.set(key, known);
  }
  return [...lost.values()].map(({ note, whose }) => {
    if (note.source === "node" && SILENT.test(note.detail.split(":")[0]!)) return note.detail; // a sentence already
    return `${note.source}${whose.length ? ` of ${ranks(whose)}` : ""}${note.detail ? ` (${note.detail})` : ""}`;
  });
}
