// The first view of a job or an incident: the grid, who waits for whom, warnings, nodes.

import { Nothing, Part, Prose, Table } from "../parts/bits";
import { Copy } from "../parts/copy";
import type { HealthWarning } from "../records";
import type { Node, Scene } from "../scene";
import { duration, ranks, title } from "../words";
import { RankGrid, Situations } from "./grid";
import { Waits } from "./waits";

const MOST_NODES = 32;
const BESIDE = 256; // a larger grid needs the whole width

export function Overview({ scene }: { scene: Scene }) {
  const waits = scene.verdict.value !== null && scene.verdict.value.waits.length > 0;
  const warnings = scene.warnings.value.length > 0 && <Warnings found={scene.warnings.value} />;
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
      <Nodes nodes={scene.nodes.value} live={scene.live} />
    </>
  );
}

function Warnings({ found }: { found: HealthWarning[] }) {
  return (
    <Part title="Warnings">
      <ul class="warnings">
        {found.map((warning) => (
          <li key={`${warning.kind} ${warning.summary}`}>
            <p>
              <b>{warning.summary}</b>
              <br />
              <span class="quiet">{title(warning.kind)} <code>{warning.kind}</code>{warning.ranks.length > 0 && `, ${ranks(warning.ranks)}`}</span>
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

function Nodes({ nodes, live }: { nodes: Node[]; live: boolean }) {
  if (!nodes.length) return <Part title="Nodes"><Nothing>No node has reported.</Nothing></Part>;
  const shown = [...nodes].sort((a, b) => Number(odd(b)) - Number(odd(a))).slice(0, MOST_NODES);
  return (
    <Part title="Nodes">
      <Table label="Nodes of the job">
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">Ranks</th>
            <th scope="col">Watchdog</th>
            <th scope="col" class="number">Clock differs by</th>
            <th scope="col">Addresses</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((node) => (
            <tr key={node.host}>
              <th scope="row">{node.host}</th>
              <td>{node.ranks.length ? ranks(node.ranks) : "–"}</td>
              <td>{health(node, live)}</td>
              <td class="number">{clock(node.row?.clock_offset_s ?? node.facts?.clock_offset_s ?? 0)}</td>
              <td>{node.facts?.addresses.join(", ") || "–"}</td>
            </tr>
          ))}
        </tbody>
        {nodes.length > MOST_NODES && <caption>{MOST_NODES} of {nodes.length.toLocaleString("en")}, silent ones first</caption>}
      </Table>
    </Part>
  );
}

function odd(node: Node): boolean {
  return node.row !== null && (node.row.silent_s > 5 || node.row.dropped > 0 || !!node.row.exit_code);
}

function health(node: Node, live: boolean): string {
  if (node.row?.closed) return node.row.exit_code === null ? "has left" : `has left, exit code ${node.row.exit_code}`;
  const silent = node.row?.silent_s ?? node.facts?.silent_s ?? 0;
  const dropped = node.row?.dropped ? `, ${node.row.dropped} batches lost` : "";
  return (silent > 5 ? `silent for ${duration(silent)}` : live ? "reports every second" : "reported") + dropped;
}

function clock(offset: number): string {
  return Math.abs(offset) < 0.05 ? "–" : `${offset > 0 ? "+" : "−"}${duration(Math.abs(offset))}`;
}
