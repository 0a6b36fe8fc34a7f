// Steps: who lags behind, who is slow, and where the time of a step goes.

import { useComputed } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { RankColumns } from "../api";
import { Nothing, Part, Table } from "../parts/bits";
import { homes } from "../model/homes";
import { resolved, type Span } from "../model/span";
import { Plot, type Line } from "../parts/plot";
import { role, type Scene } from "../scene";
import { plural, shortTime, tickTime } from "../words";
import { ShownRanks } from "./shown";
import { SpanChoice } from "./span";

const TONES = ["series-1", "series-2", "series-3"];
const DASHES = [[], [6, 3], [2, 3]];
const MOST_ROWS = 32;

interface Accent {
  rank: number;
  tone: string;
  dash: number[];
  atFault: boolean;
}

export function StepsView({ scene }: { scene: Scene }) {
  useEffect(() => scene.needHistory(), [scene, scene.columns.value === null]);
  const accents = useComputed(() => outstanding(scene));
  const lag = useComputed(() => lines(scene, accents.value, "lag"));
  const times = useComputed(() => lines(scene, accents.value, "stepTime"));
  const { at } = scene.curves.value;
  const whole = at.length > 1 ? { from: at[0]!, to: at.at(-1)! } : null;
  const span = whole && resolved(scene.span.value, whole);
  const choose = (wanted: Span | null): void => void (scene.span.value = wanted);
  if (!scene.columns.value?.rank.length) return <Nothing>No rank has been heard of yet.</Nothing>;
  return (
    <>
      <ShownRanks scene={scene} />
      {whole && <p class="range"><SpanChoice chosen={scene.span} whole={whole} /> <span class="quiet">or drag over a chart; a double click shows all</span></p>}
      <Part title="Steps behind the fastest" note={<Key accents={accents.value} scene={scene} />}>
        {at.length > 1 ? (
          <Plot at={at} lines={lag.value} label={sayLag(scene)} unit={(value) => String(Math.round(value))} sync="steps" stepped span={span} onSpan={choose} />
        ) : (
          <Nothing>No history yet: it is kept from when the dashboard first heard of the job.</Nothing>
        )}
      </Part>
      <Part title="Time of a step" note="each rank's last step, and the one that it is in once that takes longer">
        {at.length > 1 && <Plot at={at} lines={times.value} label={saySlow(scene)} unit={tickTime} sync="steps" stepped={false} span={span} onSpan={choose} />}
      </Part>
      <Split scene={scene} />
    </>
  );
}

/** The ranks that stand out: who is at fault, and who lags or takes clearly longer than most for data and computing. */
function outstanding(scene: Scene): Accent[] {
  const shown = new Set(scene.shown.value);
  const culprits = [...scene.culprits.value].filter((rank) => shown.has(rank)).slice(0, 3);
  const others = slow(scene.columns.value).filter((rank) => shown.has(rank) && !culprits.includes(rank)).slice(0, 3 - culprits.length);
  return [
    ...culprits.map((rank, index) => ({ rank, tone: "fault", dash: DASHES[index]!, atFault: true })),
    ...others.map((rank, index) => ({ rank, tone: TONES[index]!, dash: DASHES[index]!, atFault: false })),
  ];
}

const CLEARLY = 1.15;

function slow(columns: RankColumns | null): number[] {
  if (!columns) return [];
  const all = columns.rank.map((rank, index) => ({ rank, lag: columns.lag[index]!, own: (columns.compute_s[index]! + columns.data_s[index]!) / (columns.steps[index] || 1) }));
  const usual = all.map((entry) => entry.own).sort((a, b) => a - b)[Math.floor(all.length / 2)] ?? 0;
  const laggards = all.filter((entry) => entry.lag > 0).length <= all.length / 2;
  return all
    .filter((entry) => (entry.lag > 0 && laggards) || entry.own > CLEARLY * usual)
    .sort((a, b) => b.lag - a.lag || b.own - a.own)
    .map((entry) => entry.rank);
}

function lines(scene: Scene, accents: Accent[], which: "lag" | "stepTime"): Line[] {
  const curves = scene.curves.value;
  const found = curves.ranks.map((rank, index): Line => {
    const accent = accents.find((entry) => entry.rank === rank);
    return { rank, values: curves[which][index]!, tone: accent?.tone ?? "", dash: accent?.dash ?? [] };
  });
  return found.sort((a, b) => Number(a.tone !== "") - Number(b.tone !== "") || Number(a.tone === "fault") - Number(b.tone === "fault"));
}

function Key({ accents, scene }: { accents: Accent[]; scene: Scene }) {
  return (
    <ul class="key">
      {accents.map((accent) => (
        <li key={accent.rank}>
          <svg width="26" height="8" aria-hidden="true" class={`tone-${accent.tone}`}>
            <line x1="1" y1="4" x2="25" y2="4" stroke-dasharray={accent.dash.join(" ")} />
          </svg>
          rank {accent.rank}
          {accent.atFault && `, ${role(scene, accent.rank)}`}
        </li>
      ))}
      <li>
        <svg width="26" height="8" aria-hidden="true" class="tone-ink-3">
          <line x1="1" y1="4" x2="25" y2="4" />
        </svg>
        the others
      </li>
    </ul>
  );
}

function sayLag(scene: Scene): string {
  const columns = scene.columns.value!;
  const most = columns.lag.reduce((a, b) => Math.max(a, b), 0);
  const who = columns.rank.filter((_, index) => columns.lag[index] === most);
  return most ? `Steps behind the fastest rank, over time. Now furthest behind: rank ${who[0]}, ${plural(most, "step")}.` : "Steps behind the fastest rank, over time. Now all ranks are in the same step.";
}

function saySlow(scene: Scene): string {
  const columns = scene.columns.value!;
  const most = columns.last_step_s.reduce((a, b) => Math.max(a, b), 0);
  const who = columns.rank[columns.last_step_s.indexOf(most)];
  return `Time of each rank's last step. Longest now: rank ${who}, ${shortTime(most)}.`;
}

/** Where each rank's time went: most time in data and own computation first, for that is who the others wait for. */
function Split({ scene }: { scene: Scene }) {
  const columns = scene.columns.value!;
  const lodging = homes(scene.verdict.value);
  const rows = split(columns).filter((row) => row.total > 0);
  if (!rows.length) return <Part title="Where the time goes"><Nothing>No step has ended yet.</Nothing></Part>;
  const longest = rows.reduce((most, row) => Math.max(most, row.total), 0);
  const named = (rank: number): number => Number(scene.culprits.value.has(rank));
  const most = [...rows].sort((a, b) => named(b.rank) - named(a.rank) || b.data + b.compute - (a.data + a.compute)).slice(0, MOST_ROWS);
  const sorted = rows.length > MOST_ROWS ? most : rows;
  return (
    <Part title="Where the time goes" note={<SplitKey />}>
      <p class="quiet">Mean of the steps that have ended since the training started. The step that a rank is in now is not among them.</p>
      <Table label="Mean time of a step, by part" class="split">
        <thead>
          <tr>
            <th scope="col">Rank</th>
            <th scope="col" class="wide">Mean step</th>
            <th scope="col" class="number">Data</th>
            <th scope="col" class="number">Compute</th>
            <th scope="col" class="number">The rest</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((row) => (
            <tr key={row.rank} class={!scene.culprits.value.has(row.rank) ? "" : lodging.has(row.rank) ? "home" : "at-fault"}>
              <th scope="row"><a href={scene.link("ranks", row.rank)}>{row.rank}</a></th>
              <td>
                <span class="stacked" aria-hidden="true">
                  {(["data", "compute", "sync"] as const).map((part) => (
                    <span key={part} class={`part-${part}`} style={{ width: `${(100 * row[part]) / longest}%` }} />
                  ))}
                </span>
              </td>
              <td class="number">{shortTime(row.data)}</td>
              <td class="number">{shortTime(row.compute)}</td>
              <td class="number">{shortTime(row.sync)}</td>
            </tr>
          ))}
        </tbody>
        {rows.length > sorted.length && <caption>{named(sorted[0]!.rank) ? "ranks that the verdict names, then those" : "the ranks"} with the most time in data and computation: {sorted.length} of {rows.length.toLocaleString("en")}</caption>}
      </Table>
    </Part>
  );
}

function SplitKey() {
  return (
    <ul class="key">
      <li><span class="chip part-data" /> waiting for data</li>
      <li><span class="chip part-compute" /> computing</li>
      <li><span class="chip part-sync" /> the rest: communication and waiting in it, the optimizer, and what comes between</li>
    </ul>
  );
}

function split(columns: RankColumns) {
  return columns.rank.map((rank, index) => {
    const steps = columns.steps[index] || 1;
    const data = columns.data_s[index]! / steps;
    const compute = columns.compute_s[index]! / steps;
    const sync = columns.sync_s[index]! / steps;
    return { rank, data, compute, sync, total: data + compute + sync };
  });
}
