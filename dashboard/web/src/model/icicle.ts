// The merged stack tree as boxes: as wide as it has ranks, outermost frame on top.

import type { Frame, StackNode } from "../records";
import { isUser } from "./frames";

export interface Box {
  node: StackNode;
  depth: number;
  x: number; // 0 to 1
  width: number;
  minority: boolean; // fewer ranks than a sibling: here the ranks part
  trail: string; // the frames from the root to here: it finds the box again in newer evidence
  ends: number[]; // ranks whose stack ends here
}

const NARROWEST = 0.02;
const MOST_READABLE = 0.7; // of the width, for all branches of ranks at fault together

/**
 * Boxes in the order of depth first. A branch of few among thousands keeps a share of the width, or it could not be seen;
 * one of `culprits` keeps `readable`, or its frames could not be read.
 */
export function layOut(tree: readonly StackNode[], culprits: ReadonlySet<number> = new Set(), readable = NARROWEST): Box[] {
  const boxes: Box[] = [];
  const branches = branchesOf(tree, culprits);
  const wide = Math.min(readable, MOST_READABLE / (branches || 1));
  const least = (node: StackNode): number => (concerns(node, culprits) ? Math.max(NARROWEST, wide * (branchesOf(node.children, culprits) || 1)) : NARROWEST);
  const place = (nodes: readonly StackNode[], ranks: number, x: number, width: number, depth: number, above: string, minority: boolean): void => {
    const most = Math.max(0, ...nodes.map((node) => node.ranks.length));
    const widths = shares(nodes.map((node) => [node.ranks.length / (ranks || 1), least(node) / width]));
    nodes.forEach((node, index) => {
      const trail = `${above}\u0001${frameKey(node.frame)}`;
      const own = widths[index]! * width;
      const deeper = new Set(node.children.flatMap((child) => child.ranks));
      const odd = minority || node.ranks.length < most || (nodes.length > 1 && most * nodes.length === ranks);
      boxes.push({ node, depth, x, width: own, minority: odd, trail, ends: node.ranks.filter((rank) => !deeper.has(rank)) });
      place(node.children, node.ranks.length, x, own, depth + 1, trail, odd);
      x += own;
    });
  };
  const all = new Set(tree.flatMap((node) => node.ranks));
  place(tree, all.size, 0, 1, 0, "", false);
  return boxes;
}

function concerns(node: StackNode, culprits: ReadonlySet<number>): boolean {
  return culprits.size > 0 && node.ranks.some((rank) => culprits.has(rank));
}

/** How many branches there are in which a rank at fault stands: each wants to be read. */
export function branchesOf(nodes: readonly StackNode[], culprits: ReadonlySet<number>): number {
  return nodes.filter((node) => concerns(node, culprits)).reduce((sum, node) => sum + Math.max(1, branchesOf(node.children, culprits)), 0);
}

/** Siblings' parts of their parent, from [what each has of its ranks, the least that it keeps]; those with more give what others lack. */
function shares(nodes: [own: number, least: number][]): number[] {
  const wanted = nodes.map(([own, least]) => Math.max(own, least));
  if (sum(wanted) <= 1) return wanted;
  const kept = sum(nodes.map(([, least]) => least));
  if (kept >= 1) return nodes.map(([, least]) => least / kept);
  const beyond = nodes.map(([own, least]) => Math.max(0, own - least));
  return nodes.map(([, least], index) => least + (beyond[index]! * (1 - kept)) / sum(beyond));
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

/** The tree without frames that are not the user's own; the innermost frame of every stack stays. */
export function userOnly(tree: readonly StackNode[]): StackNode[] {
  return merge(tree.flatMap((node): StackNode[] => {
    const children = userOnly(node.children);
    if (isUser(node.frame)) return [{ ...node, children }];
    return children.length ? children : [{ ...node, children: [] }];
  }));
}

function merge(nodes: StackNode[]): StackNode[] {
  const found = new Map<string, StackNode>();
  for (const node of nodes) {
    const key = frameKey(node.frame);
    const known = found.get(key);
    if (!known) found.set(key, node);
    else {
      const ranks = [...new Set([...known.ranks, ...node.ranks])].sort((a, b) => a - b);
      found.set(key, { frame: node.frame, ranks, children: merge([...known.children, ...node.children]) });
    }
  }
  return [...found.values()].sort((a, b) => b.ranks.length - a.ranks.length || a.ranks[0]! - b.ranks[0]!);
}

function frameKey(frame: Frame): string {
  return `${frame.file}\u0000${frame.line}\u0000${frame.function}`;
}

/** The node that a trail of frames leads to. */
export function at(tree: readonly StackNode[], trail: string): StackNode | null {
  let nodes = tree;
  let found: StackNode | null = null;
  for (const key of trail.split("\u0001").slice(1)) {
    found = nodes.find((node) => frameKey(node.frame) === key) ?? null;
    if (!found) return null;
    nodes = found.children;
  }
  return found;
}
