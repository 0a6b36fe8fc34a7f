// Who waits for whom, as a small graph: ranks in the same wait are one node.

import type { ChainEnd, Culprit, Frame, Verdict, Wait } from "../records";
import { culprit as sayCulprit } from "../words";
import { homes } from "./homes";

export interface WaitNode {
  ranks: number[]; // none where what is awaited is no rank
  atFault: boolean;
  home?: boolean; // a process of these ranks is at fault, not they
  awaits?: string; // what that is: "loader worker 0 (pid 88)"
}

export interface WaitEdge {
  from: number; // index of a node
  to: number[]; // indexes; empty where what is awaited is no rank
  what: string;
  where: Frame | null;
}

export interface WaitGraph {
  nodes: WaitNode[];
  edges: WaitEdge[];
  ends: ChainEnd[]; // what ranks do, or wait for, that wait for no rank
  cut: number; // nodes that were left out
}

type Drawn = Pick<WaitGraph, "nodes" | "edges">;

const MOST_NODES = 8;

const MOST_ENDS = 4;

export function waitGraph(verdict: Pick<Verdict, "waits" | "culprits"> & Partial<Pick<Verdict, "ends">>): WaitGraph {
  const blamed = new Set(verdict.culprits.flatMap((culprit) => (culprit.rank === null ? [] : [culprit.rank])));
  const merged = new Map<string, { ranks: number[]; wait: Wait }>();
  for (const wait of verdict.waits) {
    const all = [wait.rank, ...(wait.also ?? [])]; // files of older versions do not have `also`
    for (const fault of [true, false]) {
      const ranks = all.filter((rank) => blamed.has(rank) === fault); // who is at fault has a node of its own
      if (!ranks.length) continue;
      const key = [fault, wait.awaited.join(), wait.what, wait.where?.file, wait.where?.line].join("\u0000");
      const known = merged.get(key);
      if (known) known.ranks.push(...ranks);
      else merged.set(key, { ranks, wait });
    }
  }
  const kept = [...merged.values()].sort((a, b) => b.ranks.length - a.ranks.length).slice(0, MOST_NODES);
  const inNodes = new Set(kept.flatMap((entry) => entry.ranks));
  const nodes = kept.map((entry) => ({ ranks: entry.ranks, atFault: entry.ranks.some((rank) => blamed.has(rank)) }));
  for (const rest of awaitedOnly(kept, inNodes, blamed)) nodes.push(rest);
  const edges = kept.map((entry, from) => ({
    from,
    to: nodes.flatMap((node, index) => (index !== from && node.ranks.some((rank) => entry.wait.awaited.includes(rank)) ? [index] : [])),
    what: entry.wait.what,
    where: entry.wait.where,
  }));
  const ends = (verdict.ends ?? []).slice(0, MOST_ENDS); // files of older versions have none
  const cut = merged.size - kept.length + (verdict.ends?.length ?? 0) - ends.length;
  const whole = withEnds(ordered(nodes, edges), ends, verdict.culprits);
  const lodging = homes(verdict);
  for (const node of whole.nodes) {
    if (!node.ranks.some((rank) => lodging.has(rank))) continue;
    node.home = true;
    node.atFault = node.ranks.some((rank) => blamed.has(rank) && !lodging.has(rank));
  }
  return { ...whole, ends, cut };
}

/** The nodes of ranks that wait for no rank, and those of what they wait for or are the home of, which stand below all others. */
function withEnds(graph: Drawn, ends: ChainEnd[], culprits: Culprit[]): Drawn {
  const drawn: Drawn = { nodes: [...graph.nodes], edges: [...graph.edges] };
  const processes = culprits.filter((who) => who.process !== "rank" && who.pid !== null);
  for (const end of ends) {
    const ranks = [end.rank, ...end.also];
    let from = drawn.nodes.findIndex((node) => ranks.some((rank) => node.ranks.includes(rank)));
    if (from < 0) from = drawn.nodes.push({ ranks, atFault: true }) - 1;
    if (!end.awaits) continue;
    const atFault = processes.some((who) => who.pid === end.pid);
    const to = drawn.nodes.push({ ranks: [], atFault, awaits: end.awaits }) - 1;
    drawn.edges.push({ from, to: [to], what: "", where: end.where });
  }
  for (const who of processes.filter((who) => !ends.some((end) => end.awaits && end.pid === who.pid)).slice(0, MOST_ENDS)) {
    const from = drawn.nodes.findIndex((node) => who.rank !== null && node.ranks.includes(who.rank));
    const to = drawn.nodes.push({ ranks: [], atFault: true, awaits: sayCulprit(who) }) - 1;
    if (from >= 0) drawn.edges.push({ from, to: [to], what: "", where: null });
  }
  return drawn;
}

function awaitedOnly(kept: { wait: Wait }[], waiting: Set<number>, blamed: Set<number>): WaitNode[] {
  const awaited = new Set(kept.flatMap((entry) => entry.wait.awaited).filter((rank) => !waiting.has(rank)));
  const fault = [...awaited].filter((rank) => blamed.has(rank));
  const others = [...awaited].filter((rank) => !blamed.has(rank));
  return [fault, others].filter((ranks) => ranks.length).map((ranks) => ({ ranks, atFault: ranks === fault }));
}

/** Nodes in the order in which one waits for the next, so that most arrows point forward; who is at fault comes last. */
function ordered(nodes: WaitNode[], edges: WaitEdge[]): Drawn {
  const order: number[] = [];
  const visit = (index: number): void => {
    if (order.includes(index)) return;
    order.push(index);
    for (const edge of edges) if (edge.from === index) edge.to.forEach(visit);
  };
  const innocent = nodes.flatMap((node, index) => (node.atFault ? [] : [index]));
  [...innocent, ...nodes.keys()].forEach(visit);
  const place = (index: number): number => order.indexOf(index);
  return {
    nodes: order.map((index) => nodes[index]!),
    edges: edges.map((edge) => ({ ...edge, from: place(edge.from), to: edge.to.map(place) })).sort((a, b) => a.from - b.from),
  };
}
