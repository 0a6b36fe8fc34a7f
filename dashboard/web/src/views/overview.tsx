// The first view of a job or an incident: the grid, who waits for whom, warnings, nodes.

import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { Nothing, Part, Prose, Table } from "../parts/bits";
import { Copy } from "../parts/copy";
import type { HealthWarning } from "../records";
import type { Node, Scene } from "../scene";
import { duration, pastForecast, plural, ranks, title } from "../words";
import { RankGrid, Situations } from "./grid";
import { hasChain, Waits } from "./waits";

const FEW_NODES = 8;
const MOST_NODES = 512;
const SILENT_S = 5;
const BESIDE = 256; // a larger grid needs the whole width

export function Overview({ scene, incidents }: { scene: Scene; incidents?: ComponentChildren }) {
  const waits = scene.verdict.value !== null && hasChain(scene.verdict.value);
  const warnings = scene.warnings.value.length > 0 && <Warnings found={scene.warnings.value} over={scene.over.value} />;
  return (
    <>
      {!scene.verdict.value && warnings}
      <div class={waits && (scene.columns.value?.rank.length ?? 0) <= BESIDE ? "two" : ""}>
        <Part title="Ranks">
          <RankGrid scene={scene} />
          <Situations scene={scene} />
        </Part>
        {waits && (
          <Part title="Who waits for whom">
            <Waits scene={scene} />
          </Part>
        )}
      </div>
      {scene.verdict.value && warnings}
      {incidents}
      <Nodes nodes={scene.nodes.value} live={scene.live} culprits={scene.culprits.value} />
    </>
  );
}

/** `over`: the job does not go on, so that what a forecast said of it is past. */
function Warnings({ found, over }: { found: HealthWarning[]; over: boolean }) {
  return (
    <Part title="Warnings">
      <ul class="warnings">
        {found.map((warning) => (
          <li key={`${warning.kind} ${warning.summary}`}>
            <p>
              <b>{over ? (pastForecast(warning) ?? warning.summary) : warning.summary}</b>
              <br />
              <span class="quiet">{over && pastForecast(warning) !== null ? "Forecast before it" : title(warning.kind)} <code>{warning.kind}</code>{warning.ranks.length > 0 && `, ${ranks(warning.ranks)}`}</span>
            </p>
            {warning.evidence.length > 0 && <p class="quiet">{warning.evidence.slice(0, 8).join("; ")}{warning.evidence.length > 8 && ` and ${warning.evidence.length - 8} more`}</p>}
            {warning.fix && (
              <p class="fix-line">
                <span class="label">Fix</span> <Prose text={warning.fix} /> <Copy text={warning.fix} what="the fix" />
              </p>
            )}
          </li>
        ))}
      </ul>
    </Part>
  );
}

/** Of many nodes those at which something stands out; a click shows the others. */
function Nodes({ nodes, live, culprits }: { nodes: Node[]; live: boolean; culprits: ReadonlySet<number> }) {
  const whole = useSignal(false);
  if (!nodes.length) return <Part title="Nodes"><Nothing>No node has reported.</Nothing></Part>;
  const told = nodes.filter((node) => odd(node) || node.ranks.some((rank) => culprits.has(rank)));
  const few = nodes.length <= FEW_NODES;
  const shown = (few || whole.value ? [...nodes].sort((a, b) => Number(odd(b)) - Number(odd(a))) : told).slice(0, MOST_NODES);
  return (
    <Part title="Nodes">
      {!few && (
        <p class="collapsed">
          {plural(nodes.length, "node")}{whole.value ? ". " : `; ${told.length ? `${nodes.length - told.length} at which nothing stands out are` : "at none of them anything stands out, they are"} left out. `}
          <button type="button" class="link" aria-expanded={whole.value} onClick={() => (whole.value = !whole.value)}>{whole.value ? "Leave out nodes at which nothing stands out" : "List all nodes"}</button>
        </p>
      )}
      {shown.length > 0 && <NodeTable nodes={shown} live={live} all={whole.value ? nodes.length : 0} />}
    </Part>
  );
}

function NodeTable({ nodes, live, all }: { nodes: Node[]; live: boolean; all: number }) {
  return (
    <Table label="Nodes of the job">
      <thead>
        <tr>
          <th scope="col">Node</th>
          <th scope="col">Ranks</th>
          <th scope="col">Watchdog</th>
          <th scope="col" class="number">Clock offset</th>
          <th scope="col">Addresses</th>
        </tr>
      </thead>
      <tbody>
        {nodes.map((node) => (
          <tr key={node.host}>
            <th scope="row">{node.host}</th>
            <td>{node.ranks.length ? ranks(node.ranks) : "–"}</td>
            <td>{health(node, live)}</td>
            <td class="number">{clock(node.row?.clock_offset_s ?? node.facts?.clock_offset_s ?? 0)}</td>
            <td>{node.facts?.addresses.join(", ") || "–"}</td>
          </tr>
        ))}
      </tbody>
      {all > nodes.length && <caption>{nodes.length} of {all.toLocaleString("en")}, silent ones first</caption>}
    </Table>
  );
}

function odd(node: Node): boolean {
  if (node.row === null) return (node.facts?.silent_s ?? 0) > SILENT_S;
  return node.row.silent_s > SILENT_S || node.row.dropped > 0 || !!node.row.exit_code;
}

function health(node: Node, live: boolean): string {
  if (node.row?.closed) return node.row.exit_code === null ? "has left" : `has left, exit code ${node.row.exit_code}`;
  const silent = node.row?.silent_s ?? node.facts?.silent_s ?? 0;
  const dropped = node.row?.dropped ? `, ${node.row.dropped} batches lost` : "";
  return (silent > SILENT_S ? `silent for ${duration(silent)}` : live ? "reports every second" : "reported") + dropped;
}

function clock(offset: number): string {
  return Math.abs(offset) < 0.05 ? "under 50 ms" : `${offset > 0 ? "+" : "−"}${duration(Math.abs(offset))}`;
}
