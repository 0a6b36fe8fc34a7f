// The merged stacks for speedscope, as hangwatch/report/speedscope.py writes them.

import type { Frame, Incident, StackNode } from "../records";
import { ranks as sayRanks } from "../words";

export function speedscope(incident: Incident): string {
  const places = new Map<string, number>();
  const frames: object[] = [];
  const samples: number[][] = [];
  const weights: number[] = [];
  const index = (frame: Frame): number => {
    const key = `${frame.file}\u0000${frame.line}\u0000${frame.function}`;
    if (!places.has(key)) {
      places.set(key, frames.length);
      frames.push({ name: frame.function, ...(frame.file && { file: frame.file }), ...(frame.line && { line: frame.line }) });
    }
    return places.get(key)!;
  };
  const walk = (nodes: readonly StackNode[], above: number[]): void => {
    for (const node of nodes) {
      const path = [...above, index(node.frame)];
      const deeper = new Set(node.children.flatMap((child) => child.ranks));
      const ended = node.ranks.filter((rank) => !deeper.has(rank));
      if (ended.length) {
        samples.push([...path, index({ file: "", line: 0, function: sayRanks(ended), native: false })]);
        weights.push(ended.length);
      }
      walk(node.children, path);
    }
  };
  walk(incident.stack_tree, []);
  const endValue = weights.reduce((sum, weight) => sum + weight, 0);
  const name = `${incident.job.name || incident.job.id}: ranks per stack`;
  return JSON.stringify({
    $schema: "https://www.speedscope.app/file-format-schema.json",
    name: `hangwatch ${incident.id}`,
    exporter: "hangwatch",
    activeProfileIndex: 0,
    shared: { frames },
    profiles: [{ type: "sampled", name, unit: "none", startValue: 0, endValue, samples, weights }],
  });
}
