// Health: how fast ranks and nodes are, in which part of the step, with which trend; and whose memory is on whose GPU.

import { useEffect } from "preact/hooks";
import { Nothing, Part, Table } from "../parts/bits";
import type { ForeignMemory, JobHealth, Pace, Straggler } from "../records";
import type { Scene } from "../scene";
import { fromRanges, plural, ranks as sayRanks, shortTime, size } from "../words";
import { Matrix } from "./gpus";

const PARTS = ["data", "forward", "wait"] as const;
type PartName = (typeof PARTS)[number];

const NAMES: Record<PartName, string> = { data: "Data", forward: "Forward", wait: "The rest" }; // no waiting alone: see SAYS
const SAYS: Record<PartName, string> = { data: "waiting for data", forward: "until the end of the forward", wait: "the rest: backward, communication and waiting in it, optimizer" };
const PAINT: Record<PartName, string> = { data: "part-data", forward: "part-compute", wait: "part-sync" };
const FINDINGS = ["straggler", "data-bound", "gpu-memory-imbalance", "gpu-leftover-process", "slow-link", "nccl-environment", "timeout-ahead"];

export function HealthView({ scene }: { scene: Scene }) {
  useEffect(() => scene.needHealth(), [scene]);
  const health = scene.health.value;
  return (
    <>
      <Findings scene={scene} health={health} />
      {health === null || health.at.length === 0 ? <NotYet live={scene.live && !scene.ended.value} /> : <Paces scene={scene} health={health} />}
      <GpuMemory scene={scene} memory={health?.memory ?? []} />
    </>
  );
}

function NotYet({ live }: { live: boolean }) {
  return <Nothing>{live ? "No pace yet: it is known after ten steps of every rank and five seconds more." : "There is no pace: the job had made too few steps, or it is no longer in memory, or another version wrote this."}</Nothing>;
}

function Paces({ scene, health }: { scene: Scene; health: JobHealth }) {
  const slow = new Set(health.stragglers.flatMap((each) => each.ranks));
  const hosts = new Set(health.stragglers.flatMap((each) => (each.host ? [each.host] : [])));
  const most = Math.max(...[...health.worst, ...health.nodes].flatMap((each) => alone(each)), 1e-9);
  return (
    <>
      <Spreads health={health} />
      {health.nodes.length > 1 && (
        <Part title="Nodes" note="medians of each node's ranks, slowest first">
          <PaceTable label="Pace by node" first="Node" rows={health.nodes} most={most} isSlow={(row) => hosts.has(row.host)} name={(row) => <NodeName row={row} />} />
        </Part>
      )}
      <Part title="Ranks" note={<Key />}>
        <PaceTable
          label="Pace by rank"
          first="Rank"
          rows={health.worst}
          most={most}
          isSlow={(row) => slow.has(Number(row.ranks))}
          name={(row) => <><a href={scene.link("ranks", Number(row.ranks))}>{row.ranks}</a> <span class="quiet">{row.host}</span></>}
        />
        {health.ranks > health.worst.length && <p class="quiet">The {health.worst.length} slowest of {plural(health.ranks, "rank")}; all of them stand in the quantiles.</p>}
      </Part>
    </>
  );
}

/** Who is waited for, and the warnings that are about the pace or the devices. */
function Findings({ scene, health }: { scene: Scene; health: JobHealth | null }) {
  const told = scene.warnings.value.filter((warning) => FINDINGS.includes(warning.kind));
  const stragglers = health?.stragglers ?? [];
  const extra = told.filter((warning) => warning.kind !== "straggler" || stragglers.length === 0);
  if (!stragglers.length && !extra.length) {
    if (!health?.at.length) return null;
    return scene.over.value
      ? <p class="remark">Before it stood still, no rank was clearly slower than the others, and {share(health)} of the time was spent waiting for data.</p>
      : <p class="calm">No rank is clearly slower than the others, and {share(health)} of the time is spent waiting for data.</p>;
  }
  const advice = told.find((warning) => warning.kind === "straggler")?.fix;
  return (
    <Part title="What slows this job">
      <ul class="warnings">
        {stragglers.map((each) => <li key={each.ranks.join()}><b>{whoIs(each)}</b> {says(each)}{advice && <p class="fix-line"><span class="label">Fix</span>{advice}</p>}</li>)}
        {extra.map((warning) => <li key={warning.kind + warning.summary}><b>{warning.summary}</b>{warning.fix && <p class="fix-line"><span class="label">Fix</span>{warning.fix}</p>}</li>)}
      </ul>
    </Part>
  );
}

function share(health: JobHealth): string {
  return `${Math.round(100 * health.data_share)} %`;
}

export function whoIs(straggler: Straggler): string {
  const ranks = sayRanks(straggler.ranks);
  return straggler.host ? `${straggler.host} (${ranks})` : ranks.charAt(0).toUpperCase() + ranks.slice(1);
}

export function says(straggler: Straggler): string {
  const where = straggler.phase === "data" ? "waiting for its loader" : "before the end of its forward";
  const trend = straggler.trend === "steady" ? "" : `; the lag is ${straggler.trend}`;
  return `adds ${shortTime(straggler.lag_s)} to each step, most of it ${where}; a typical rank needs ${shortTime(straggler.typical_s)} until there${trend}.`;
}

function Spreads({ health }: { health: JobHealth }) {
  return (
    <Part title="Parts of the step" note={`over ${plural(health.ranks, "rank")}, in the last window; the rank with the least waits for data ${share(health)} of its time`}>
      <Table label="Parts of the step, quantiles over the ranks" class="split">
        <thead>
          <tr>
            <th scope="col">Part</th>
            <th scope="col" class="number">Least</th>
            <th scope="col" class="number">Median</th>
            <th scope="col" class="number">90 %</th>
            <th scope="col" class="number">Most</th>
          </tr>
        </thead>
        <tbody>
          {health.spread.map((row) => (
            <tr key={row.phase}>
              <th scope="row"><span class={`chip ${PAINT[row.phase as PartName] ?? ""}`} /> {NAMES[row.phase as PartName] ?? row.phase}</th>
              {[row.least, row.median, row.p90, row.most].map((value, index) => <td key={index} class="number">{shortTime(value)}</td>)}
            </tr>
          ))}
        </tbody>
      </Table>
    </Part>
  );
}

function Key() {
  return <ul class="key">{PARTS.map((part) => <li key={part}><span class={`chip ${PAINT[part]}`} /> {SAYS[part]}</li>)}</ul>;
}

function NodeName({ row }: { row: Pace }) {
  return <>{row.host || "not known"} <span class="quiet">{sayRanks(fromRanges(row.ranks, 10_000))}</span></>;
}

interface Rows {
  label: string;
  first: string;
  rows: Pace[];
  most: number;
  isSlow: (row: Pace) => boolean;
  name: (row: Pace) => preact.ComponentChildren;
}

function PaceTable({ label, first, rows, most, isSlow, name }: Rows) {
  const longest = Math.max(...rows.map((row) => PARTS.reduce((sum, part) => sum + last(row, part), 0)), 1e-9);
  return (
    <Table label={label} class="paces">
      <thead>
        <tr>
          <th scope="col">{first}</th>
          <th scope="col" class="number">Behind</th>
          <th scope="col">Trend</th>
          <th scope="col">Step</th>
          {PARTS.map((part) => <th key={part} scope="col" class="number">{NAMES[part]}</th>)}
          <th scope="col" class="number">Waits for data</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={row.ranks + row.host} class={isSlow(row) ? "at-fault" : ""}>
            <th scope="row">{name(row)}{isSlow(row) && <span class="tag fault">slow</span>}</th>
            <td class="number">{row.lag_s > 0 ? shortTime(row.lag_s) : "–"}</td>
            <td><Sparkline values={alone(row)} most={most} /> <span class="quiet">{row.trend}</span></td>
            <td class="wide">
              <span class="stacked" aria-hidden="true">
                {PARTS.map((part) => <span key={part} class={PAINT[part]} style={{ width: `${(100 * last(row, part)) / longest}%` }} />)}
              </span>
            </td>
            {PARTS.map((part) => <td key={part} class="number">{shortTime(last(row, part))}</td>)}
            <td class="number">{Math.round(100 * row.data_share)} %</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function last(row: Pace, part: PartName): number {
  return row[`${part}_s`].at(-1) ?? 0;
}

/** Until the end of the forward, window by window: what a rank takes by itself. */
export function alone(row: Pace): number[] {
  return row.data_s.map((value, index) => value + (row.forward_s[index] ?? 0));
}

const WIDTH = 88;
const HEIGHT = 20;

/** One scale for all lines of the view, so that they can be compared. */
export function path(values: number[], most: number): string {
  const across = values.length > 1 ? (WIDTH - 2) / (values.length - 1) : 0;
  return values.map((value, index) => `${index ? "L" : "M"}${(1 + index * across).toFixed(1)} ${(HEIGHT - 1 - ((HEIGHT - 2) * Math.min(value, most)) / most).toFixed(1)}`).join("");
}

function Sparkline({ values, most }: { values: number[]; most: number }) {
  return (
    <svg class="spark" width={WIDTH} height={HEIGHT} viewBox={`0 0 ${WIDTH} ${HEIGHT}`} aria-hidden="true">
      <path d={path(values, most)} />
    </svg>
  );
}

/** Processes x GPUs of the nodes on which a rank holds memory on another rank's GPU. */
function GpuMemory({ scene, memory }: { scene: Scene; memory: ForeignMemory[] }) {
  const nodes = scene.nodes.value.flatMap((node) => (node.facts?.gpus.length ? [node.facts] : []));
  if (!nodes.length) return null;
  const hosts = new Set(memory.map((each) => each.host));
  return (
    <Part title="GPU memory" note={<a href={scene.link("gpus")}>all GPUs</a>}>
      {memory.length === 0 && <p>Every rank holds memory on its own GPU only, as of the last look.</p>}
      {memory.length > 0 && (
        <ul class="warnings">
          {memory.slice(0, 16).map((each) => (
            <li key={`${each.host} ${each.gpu} ${each.rank}`}>
              <b>Rank {each.rank}</b> holds {size(each.bytes_held)} on GPU {each.gpu} of {each.host}, which is rank {each.owner}'s{each.line && <>: <code>{each.line}</code></>}.
            </li>
          ))}
        </ul>
      )}
      {nodes.filter((node) => hosts.has(node.host)).slice(0, 8).map((node) => <Matrix key={node.host} node={node} scene={scene} />)}
    </Part>
  );
}
