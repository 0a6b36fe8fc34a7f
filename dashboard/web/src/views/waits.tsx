// Who waits for whom, drawn small, and in sentences below.

import { Nothing } from "../parts/bits";
import { waitGraph, type WaitEdge, type WaitGraph, type WaitNode } from "../model/waits";
import type { Verdict } from "../records";
import { role, type Scene } from "../scene";
import { endOfChain, place, ranges, ranks } from "../words";

const BOX = { left: 26, width: 186, right: 130, height: 42, gap: 56 };

export function Waits({ scene }: { scene: Scene }) {
  const verdict = scene.verdict.value;
  if (!verdict || !hasChain(verdict)) {
    return <Nothing>{verdict ? "No rank waits for another one in this verdict." : "No rank is stuck: there is nothing to draw."}</Nothing>;
  }
  const graph = waitGraph(verdict);
  return (
    <div class="waits">
      <Drawing graph={graph} scene={scene} />
      <ol>
        {betweenRanks(graph).map((edge) => (
          <li key={`${edge.from} ${edge.what}`}>
            <a href={scene.link("ranks", graph.nodes[edge.from]!.ranks[0])}>{ranks(graph.nodes[edge.from]!.ranks)}</a>{" "}
            {sentence(graph, edge)}
          </li>
        ))}
        {graph.ends.map((end) => (
          <li key={end.rank}>
            <a href={scene.link("ranks", end.rank)}>{ranks([end.rank, ...end.also])}</a>
            {endOfChain(end).slice(ranks([end.rank, ...end.also]).length)}
          </li>
        ))}
      </ol>
      {graph.cut > 0 && <p class="quiet">and {graph.cut} further waits</p>}
    </div>
  );
}

/** Whether there is something to draw: a wait, or what a rank does for which others may wait. */
export function hasChain(verdict: Verdict): boolean {
  return verdict.waits.length > 0 || (verdict.ends?.length ?? 0) > 0;
}

/** The edges that end at ranks; those to the ends of the chain are told with these. */
function betweenRanks(graph: WaitGraph): WaitEdge[] {
  return graph.edges.filter((edge) => !edge.to.some((to) => graph.nodes[to]!.awaits));
}

function sentence(graph: WaitGraph, edge: WaitEdge): string {
  const many = graph.nodes[edge.from]!.ranks.length > 1;
  const whom = edge.to.flatMap((index) => graph.nodes[index]!.ranks);
  const at = edge.where ? ` (${place(edge.where)})` : "";
  return `${many ? "wait" : "waits"}${whom.length ? ` for ${ranks(whom)}` : ""} in ${edge.what}${at}`;
}

/** Boxes below one another; arrows to the next one down, back up on the right, over others on the left. */
function Drawing({ graph, scene }: { graph: WaitGraph; scene: Scene }) {
  const tall = graph.nodes.length * (BOX.height + BOX.gap) - BOX.gap + 4;
  const wide = BOX.left + BOX.width + BOX.right;
  const waits = betweenRanks(graph).map((edge) => `${ranks(graph.nodes[edge.from]!.ranks)} ${sentence(graph, edge)}`);
  const processes = graph.nodes.filter((node) => node.awaits && node.atFault).map((node) => `${node.awaits} is ${role(scene)}`);
  const says = [...waits, ...graph.ends.map(endOfChain), ...processes].join("; ");
  return (
    <svg class="drawing" viewBox={`0 0 ${wide} ${tall}`} width={wide} height={tall} role="img" aria-label={says}>
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
          <path d="M0 0 8 4 0 8Z" />
        </marker>
      </defs>
      {graph.edges.flatMap((edge) => edge.to.map((to) => <Arrow key={`${edge.from}-${to}`} from={edge.from} to={to} what={edge.what} />))}
      {graph.nodes.map((node, index) => <Box key={node.awaits ?? node.ranks.join()} node={node} y={top(index)} scene={scene} />)}
    </svg>
  );
}

function top(index: number): number {
  return 2 + index * (BOX.height + BOX.gap);
}

function Box({ node, y, scene }: { node: WaitNode; y: number; scene: Scene }) {
  const middle = BOX.left + BOX.width / 2;
  if (node.awaits) return <End node={node} awaits={node.awaits} y={y} named={role(scene)} />;
  const name = `${node.ranks.length > 1 ? "ranks" : "rank"} ${ranges(node.ranks)}`;
  const why = node.atFault ? role(scene) : node.home ? role(scene, node.ranks[0]) : "";
  return (
    <g class={`node ${node.atFault ? "fault" : node.home ? "home" : ""}`}>
      <rect x={BOX.left} y={y} width={BOX.width} height={BOX.height} rx="5" />
      <text x={middle} y={y + (why ? 18 : 26)} class="name">{clip(name, 21)}</text>
      {why && <text x={middle} y={y + 33} class="why">{why}</text>}
    </g>
  );
}

/** What a rank waits for that is no rank. */
function End({ node, awaits, y, named }: { node: WaitNode; awaits: string; y: number; named: string }) {
  const [name = awaits, rest = ""] = awaits.split(/, (?=held by |pid \d)| (?=\(pid \d+\)$)/);
  const more = node.atFault ? `${rest && `${rest.replace(/^\(|\)$| on .*$/g, "")}, `}${named}` : rest;
  const x = BOX.left + BOX.width / 2;
  return (
    <g class={`node end ${node.atFault ? "fault" : ""}`}>
      <rect x={BOX.left} y={y} width={BOX.width} height={BOX.height} rx="5" />
      <text x={x} y={y + (more ? 18 : 26)} class="name">{clip(name, 24)}</text>
      {more && <text x={x} y={y + 33} class="why">{clip(more, 26)}</text>}
      <title>{awaits}</title>
    </g>
  );
}

function Arrow({ from, to, what }: { from: number; to: number; what: string }) {
  const [call = what, group = ""] = what.split(/ of (?=group )/);
  if (to === from + 1) {
    const x = BOX.left + 26;
    const y = top(from) + BOX.height;
    return (
      <g class="edge">
        <path d={`M${x} ${y} V${top(to) - 2}`} />
        <text x={x + 10} y={y + (group ? 22 : 30)}>{clip(call, 26)}</text>
        <text x={x + 10} y={y + 38}>{clip(group, 26)}</text>
      </g>
    );
  }
  const back = to < from;
  const side = back ? BOX.left + BOX.width : BOX.left;
  const reach = back ? Math.min(18 + 8 * (from - to), 40) : -Math.min(10 + 6 * (to - from), 24);
  const start = top(from) + BOX.height * 0.5;
  const end = top(to) + BOX.height * (back ? 0.62 : 0.38);
  const middle = (start + end) / 2;
  return (
    <g class="edge">
      <path d={`M${side} ${start} C${side + reach} ${start} ${side + reach} ${end} ${side + (back ? 2 : -2)} ${end}`} />
      {back && <text x={side + reach * 0.75 + 6} y={middle - (group ? 3 : -4)}>{clip(call, 14)}</text>}
      {back && <text x={side + reach * 0.75 + 6} y={middle + 13}>{clip(group, 14)}</text>}
    </g>
  );
}

function clip(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
