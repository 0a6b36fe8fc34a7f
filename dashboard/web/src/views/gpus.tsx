// GPUs by node, and which process holds memory on which of them.

import type { RankColumns } from "../api";
import { useSignal } from "@preact/signals";
import { common, FEW_ROWS, span } from "../model/alike";
import { Meter, Nothing, Part, Table } from "../parts/bits";
import { LeftOut } from "../parts/left_out";
import type { GpuFacts, NodeFacts } from "../records";
import type { Scene } from "../scene";
import { plural, size } from "../words";
import { EvidenceNote } from "./evidence_note";

const MOST_NODES = 24;
const FEW_NODES = 4; // each is a table of its own
const FULL = 0.9;

export function GpusView({ scene }: { scene: Scene }) {
  const whole = useSignal(false);
  const nodes = scene.nodes.value.flatMap((node) => (node.facts ? [node.facts] : []));
  const withGpus = nodes.filter((node) => node.gpus.length);
  const why = scene.doc.value?.capture.find((note) => note.source === "gpu" && !note.ok)?.detail;
  const none = why ? `No GPU was seen: ${why}.` : nodes.length ? "No GPU was seen on any node." : "No node has told of its GPUs. Nodes do now and then, and with every capture.";
  const few = withGpus.length <= FEW_NODES;
  const told = eventful(withGpus, scene);
  const sorted = [...withGpus].sort((a, b) => Number(told.has(b.host)) - Number(told.has(a.host)));
  const shown = few || whole.value ? sorted : sorted.filter((node) => told.has(node.host));
  const calm = withGpus.filter((node) => !told.has(node.host));
  return (
    <>
      {!withGpus.length && <Nothing>{none} <EvidenceNote scene={scene} /></Nothing>}
      {shown.slice(0, MOST_NODES).map((node) => <OfNode key={node.host} node={node} scene={scene} />)}
      {shown.length > MOST_NODES && <p class="quiet">and {plural(shown.length - MOST_NODES, "further node")}</p>}
      {calm.length > 0 && !few && <LeftOut says={sayCalm(calm)} whole={whole} all="Show all nodes" />}
      {!whole.value && !few && calm.some((node) => node.gpus.some(spinning)) && <p class="remark">{SPINNING}</p>}
      {nodes.length > 0 && <Memory nodes={nodes} culprits={scene.culprits.value} />}
    </>
  );
}

const SPINNING = "Busy at little power: such a GPU spins in a collective and computes nothing.";

/** The hosts on which something stands out: a rank that the verdict names, an error of a GPU, memory on a GPU that is not the process's own. */
function eventful(nodes: NodeFacts[], scene: Scene): ReadonlySet<string> {
  const own = new Map((scene.doc.value?.ranks ?? []).map((rank) => [`${rank.host} ${rank.pid}`, rank.gpu]));
  const elsewhere = new Set((scene.health.value?.memory ?? []).map((each) => each.host));
  const foreign = (node: NodeFacts, gpu: GpuFacts): boolean =>
    Object.keys(gpu.processes).some((pid) => (own.get(`${node.host} ${pid}`) ?? gpu.index) !== gpu.index);
  const odd = nodes.filter(
    (node) =>
      elsewhere.has(node.host) ||
      node.ranks.some((rank) => scene.culprits.value.has(rank)) ||
      node.gpus.some((gpu) => gpu.errors.length > 0 || foreign(node, gpu)),
  );
  return new Set(odd.map((node) => node.host));
}

/** 15 nodes with 120 GPUs at which nothing stands out: NVIDIA H200, 0 % busy, 78 to 85 W, 31 GiB of memory, 41 °C. */
function sayCalm(nodes: NodeFacts[]): string {
  const gpus = nodes.flatMap((node) => node.gpus);
  const facts = [
    common(gpus, (gpu) => gpu.name) ?? "of several models",
    span(gpus.map((gpu) => gpu.utilization_percent), (value) => `${value} %`) && `${span(gpus.map((gpu) => gpu.utilization_percent), (value) => `${value} %`)} busy`,
    span(gpus.map((gpu) => gpu.power_w), (value) => `${Math.round(value)} W`),
    span(gpus.map((gpu) => gpu.memory_used), size) && `${span(gpus.map((gpu) => gpu.memory_used), size)} of memory`,
    span(gpus.map((gpu) => gpu.temperature_c), (value) => `${value} °C`),
    "no errors",
  ];
  return `${plural(nodes.length, "node")} with ${plural(gpus.length, "GPU")} on which nothing stands out: ${facts.filter(Boolean).join(", ")}.`;
}

function OfNode({ node, scene }: { node: NodeFacts; scene: Scene }) {
  return (
    <Part title={node.host} note={plural(node.gpus.length, "GPU")} id={`gpus-${node.host.replaceAll(/\W/g, "-")}`}>
      <Table label={`GPUs of ${node.host}`}>
        <thead>
          <tr>
            <th scope="col" class="number">GPU</th>
            <th scope="col">Model</th>
            <th scope="col">Busy</th>
            <th scope="col">Power</th>
            <th scope="col">Memory</th>
            <th scope="col" class="number">Temperature</th>
            <th scope="col">Errors</th>
          </tr>
        </thead>
        <tbody>
          {node.gpus.map((gpu) => (
            <tr key={gpu.uuid || gpu.index}>
              <th scope="row" class="number" title={`${gpu.uuid}${gpu.serial ? `, serial ${gpu.serial}` : ""}`}>{gpu.index}</th>
              <td>{gpu.name}</td>
              <td>{gpu.utilization_percent === null ? "–" : <Meter value={gpu.utilization_percent} most={100} text={`${gpu.utilization_percent} %`} />}</td>
              <td>{gpu.power_w === null ? "–" : <Meter value={gpu.power_w} most={gpu.power_limit_w ?? gpu.power_w} text={power(gpu)} tone={spinning(gpu) ? "odd" : ""} />}</td>
              <td>{gpu.memory_used === null ? "–" : <Meter value={gpu.memory_used} most={gpu.memory_total ?? gpu.memory_used} text={`${size(gpu.memory_used)} of ${gpu.memory_total ? size(gpu.memory_total) : "?"}`} />}</td>
              <td class="number">{gpu.temperature_c === null ? "–" : `${gpu.temperature_c} °C`}</td>
              <td>{gpu.errors.length ? <strong class="missing">{gpu.errors.join("; ")}</strong> : <span class="quiet">none</span>}</td>
            </tr>
          ))}
        </tbody>
      </Table>
      {node.gpus.some(spinning) && <p class="remark">{SPINNING}</p>}
      <Matrix node={node} scene={scene} />
    </Part>
  );
}

/** 100 % utilisation at less than a third of the power: waiting inside a kernel. */
function spinning(gpu: GpuFacts): boolean {
  return (gpu.utilization_percent ?? 0) >= 90 && gpu.power_w !== null && !!gpu.power_limit_w && gpu.power_w < gpu.power_limit_w / 3;
}

function power(gpu: GpuFacts): string {
  return `${Math.round(gpu.power_w!)} W${gpu.power_limit_w ? ` of ${Math.round(gpu.power_limit_w)} W` : ""}`;
}

/** Processes x GPUs: memory off the diagonal is memory on a GPU that is not the process's own. */
export function Matrix({ node, scene }: { node: NodeFacts; scene: Scene }) {
  const pids = [...new Set(node.gpus.flatMap((gpu) => Object.keys(gpu.processes).map(Number)))];
  if (!pids.length) return null;
  const named = pids.map((pid) => ({ pid, ...whoIs(pid, node, scene) })).sort((a, b) => (a.rank ?? 1e9) - (b.rank ?? 1e9) || a.pid - b.pid);
  const most = Math.max(1, ...node.gpus.flatMap((gpu) => Object.values(gpu.processes)));
  return (
    <Table label={`GPU memory of ${node.host} by process`} class="matrix">
      <caption>GPU memory by process. A process should hold memory on its own GPU only.</caption>
      <thead>
        <tr>
          <th scope="col">Process</th>
          {node.gpus.map((gpu) => <th key={gpu.index} scope="col" class="number">GPU {gpu.index}</th>)}
        </tr>
      </thead>
      <tbody>
        {named.map(({ pid, rank, gpu: own }) => (
          <tr key={pid}>
            <th scope="row">
              {rank === null ? <span>pid {pid} <span class="quiet">no rank</span></span> : <a href={scene.link("ranks", rank)}>rank {rank} <span class="quiet">pid {pid}</span></a>}
            </th>
            {node.gpus.map((gpu) => {
              const bytes = gpu.processes[pid];
              const foreign = bytes !== undefined && own !== null && own !== gpu.index;
              const level = bytes === undefined ? 0 : Math.ceil((4 * bytes) / most);
              return <td key={gpu.index} class={`number heat-${level} ${foreign ? "foreign" : ""}`}>{bytes === undefined ? "" : size(bytes)}{foreign && <span class="tag fault">not its own</span>}</td>;
            })}
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function whoIs(pid: number, node: NodeFacts, scene: Scene): { rank: number | null; gpu: number | null } {
  const report = scene.doc.value?.ranks.find((rank) => rank.pid === pid && node.ranks.includes(rank.rank));
  if (report) return { rank: report.rank, gpu: report.gpu };
  const foreign = scene.health.value?.memory.find((each) => each.pid === pid && each.host === node.host);
  const columns: RankColumns | null = scene.columns.value;
  const index = columns ? columns.pid.findIndex((known, at) => known === pid && node.ranks.includes(columns.rank[at]!)) : -1;
  return { rank: index < 0 ? null : columns!.rank[index]!, gpu: foreign ? mostOf(pid, node) : null };
}

/** The GPU on which a process holds most: its own, where no capture has said. */
function mostOf(pid: number, node: NodeFacts): number | null {
  const held = node.gpus.filter((gpu) => gpu.processes[pid]).sort((a, b) => b.processes[pid]! - a.processes[pid]!);
  return held[0]?.index ?? null;
}

function Memory({ nodes, culprits }: { nodes: NodeFacts[]; culprits: ReadonlySet<number> }) {
  const whole = useSignal(false);
  const told = nodes.filter((node) => node.memory_used !== null || node.shm_total !== null);
  if (!told.length) return null;
  const odd = told.filter((node) => short(node) || node.ranks.some((rank) => culprits.has(rank)));
  const calm = told.filter((node) => !odd.includes(node));
  const few = told.length <= FEW_ROWS / 2;
  const shown = [...odd, ...(few || whole.value ? calm : [])];
  return (
    <Part title="Memory of the nodes">
      {shown.length > 0 && <Table label="Memory by node">
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">Memory</th>
            <th scope="col">Shared memory (/dev/shm)</th>
            <th scope="col" class="number">Killed for memory</th>
          </tr>
        </thead>
        <tbody>
          {shown.slice(0, 64).map((node) => (
            <tr key={node.host}>
              <th scope="row">{node.host}</th>
              <td>{node.memory_used === null ? "–" : <Meter value={node.memory_used} most={node.memory_limit ?? node.memory_used} text={`${size(node.memory_used)}${node.memory_limit ? ` of ${size(node.memory_limit)}` : ""}`} />}</td>
              <td>{node.shm_total === null || node.shm_free === null ? "–" : <Meter value={node.shm_total - node.shm_free} most={node.shm_total} text={`${size(node.shm_total - node.shm_free)} of ${size(node.shm_total)}`} />}</td>
              <td class="number">{node.oom_kills ?? "–"}</td>
            </tr>
          ))}
        </tbody>
      </Table>}
      {calm.length > 0 && !few && <LeftOut says={sayMemory(calm)} whole={whole} all="Show all nodes" />}
    </Part>
  );
}

/** Whether a node has run out of memory, or nearly. */
function short(node: NodeFacts): boolean {
  const shared = node.shm_total && node.shm_free !== null ? 1 - node.shm_free / node.shm_total : 0;
  return (node.oom_kills ?? 0) > 0 || (node.memory_used ?? 0) > FULL * (node.memory_limit ?? Infinity) || shared > FULL;
}

function sayMemory(nodes: NodeFacts[]): string {
  const used = span(nodes.map((node) => node.memory_used), size);
  const shared = span(nodes.map((node) => (node.shm_total === null || node.shm_free === null ? null : node.shm_total - node.shm_free)), size);
  const facts = [used && `${used} of memory in use`, shared && `${shared} of shared memory`, "nothing killed for memory"];
  return `${plural(nodes.length, "node")} on which nothing stands out: ${facts.filter(Boolean).join(", ")}.`;
}
