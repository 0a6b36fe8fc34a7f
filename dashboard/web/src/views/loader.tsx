// Data loaders: how far each rank's loader is, its workers, their state and what they hold.

import { useSignal } from "@preact/signals";
import { alike, common, FEW_ROWS } from "../model/alike";
import { site } from "../model/frames";
import { homes } from "../model/homes";
import { Meter, Nothing, Part, Site, Table } from "../parts/bits";
import { LeftOut } from "../parts/left_out";
import type { Frame, LoaderFacts, ProcessEvidence, RankReport } from "../records";
import { blamedPids, role, type Scene } from "../scene";
import { place, plural, ranges, ranks } from "../words";
import { EvidenceNote } from "./evidence_note";
import { QuotedAt } from "./excerpt";
import { Frames } from "./frames";
import { STATES } from "./grid";

const MOST_ROWS = 64;
const MOST_NAMED = 3;

/** Loaders that say the same; those that a verdict names, and few, are one each. */
interface Row {
  ranks: number[];
  report: RankReport;
  loader: LoaderFacts;
}

export function LoaderView({ scene }: { scene: Scene }) {
  const whole = useSignal(false);
  const doc = scene.doc.value;
  if (!doc) return <Nothing>Loaders are read when a job stops, or when you ask. <EvidenceNote scene={scene} /></Nothing>;
  const rows = doc.ranks.flatMap((report) => report.loader.map((loader): Row => ({ ranks: [report.rank], report, loader })));
  if (!rows.length) return <Nothing>No rank has used a DataLoader that hangwatch knows of. <EvidenceNote scene={scene} /></Nothing>;
  const culprits = scene.culprits.value;
  const sorted = [...rows].sort((a, b) => Number(culprits.has(b.report.rank)) - Number(culprits.has(a.report.rank)) || a.report.rank - b.report.rank);
  const grouped = together(sorted, culprits);
  const shown = whole.value || rows.length <= FEW_ROWS ? sorted : grouped;
  const lodging = homes(scene.verdict.value);
  return (
    <>
      <Part title="Loaders" note={<EvidenceNote scene={scene} />}>
        <Table label="Loaders by rank">
          <thead>
            <tr>
              <th scope="col">Rank</th>
              <th scope="col">Drawn in this epoch</th>
              <th scope="col" class="number">Epoch</th>
              <th scope="col">State</th>
              <th scope="col">Data set</th>
              <th scope="col">Sampler</th>
              <th scope="col" class="number">Workers</th>
              <th scope="col">Used at</th>
            </tr>
          </thead>
          <tbody>
            {shown.slice(0, MOST_ROWS).map(({ ranks: whose, report: { rank, loader: all }, loader }) => (
              <tr key={`${rank} ${loader.index}`} class={!culprits.has(rank) ? "" : lodging.has(rank) ? "home" : "at-fault"}>
                <th scope="row"><Whose ranks={whose} scene={scene} />{all.length > 1 && <span class="quiet"> loader {loader.index}</span>}</th>
                <td>{loader.length === null ? plural(loader.drawn, "batch", "batches") : <Meter value={loader.drawn} most={loader.length} text={`${loader.drawn} of ${loader.length}`} />}</td>
                <td class="number">{loader.epoch < 0 ? "–" : loader.epoch}</td>
                <td>{state(loader)}</td>
                <td>{loader.dataset || "–"}{loader.dataset_length !== null && <span class="quiet"> {loader.dataset_length.toLocaleString("en")}</span>}</td>
                <td>{sampler(loader, whose.length > 1)}</td>
                <td class="number">{loader.num_workers}</td>
                <td><Site frame={loader.where} bare /></td>
              </tr>
            ))}
          </tbody>
          {shown.length > MOST_ROWS && <caption>the first {MOST_ROWS} of {shown.length}</caption>}
        </Table>
        {rows.length > FEW_ROWS && grouped.length < rows.length && <LeftOut says="Ranks whose loaders are alike share a row." whole={whole} all={`Show all ${rows.length}`} less="One row for those that are alike" />}
      </Part>
      <Workers reports={doc.ranks} scene={scene} />
    </>
  );
}

function together(rows: Row[], culprits: ReadonlySet<number>): Row[] {
  const key = ({ report, loader }: Row): string =>
    culprits.has(report.rank)
      ? `rank ${report.rank} ${loader.index}`
      : [loader.index, loader.drawn, loader.length, loader.epoch, state(loader), loader.dataset, loader.dataset_length, sampler(loader, true), loader.num_workers, loader.where && place(loader.where)].join("\u0000");
  return alike(rows, key).map((found) => ({ ...found[0]!, ranks: found.map((row) => row.report.rank) }));
}

/** One rank as a link to it; several as a range, with their number. */
function Whose({ ranks: whose, scene }: { ranks: number[]; scene: Scene }) {
  return <><a href={scene.link("ranks", whose[0])}>{ranges(whose)}</a>{whose.length > 2 && <span class="quiet"> ({whose.length})</span>}</>;
}

function state(loader: LoaderFacts): string {
  if (loader.inside_next) return "inside next(): waits for a batch";
  if (loader.exhausted) return "exhausted";
  if (loader.left) return "left before its end";
  return loader.epoch < 0 ? "not used yet" : "in use";
}

function sampler(loader: LoaderFacts, ofMany = false): string {
  if (!loader.sampler) return "–";
  const share = loader.sampler_replicas === null ? "" : ofMany ? `, a part of ${loader.sampler_replicas} each` : `, part ${loader.sampler_rank ?? "?"} of ${loader.sampler_replicas}`;
  return `${loader.sampler}${loader.sampler_length === null ? "" : `, ${loader.sampler_length.toLocaleString("en")} samples`}${share}`;
}

interface RanksWorker {
  rank: number;
  worker: ProcessEvidence;
}

function Workers({ reports, scene }: { reports: RankReport[]; scene: Scene }) {
  const whole = useSignal(false);
  const all = reports.flatMap((rank) => rank.workers.map((worker): RanksWorker => ({ rank: rank.rank, worker })));
  if (!all.length) return <Part title="Workers"><Nothing>No loader worker was seen.</Nothing></Part>;
  const named = blamedPids(scene.verdict.value);
  const odd = all.filter(({ worker }) => !"SRI".includes(worker.facts.state));
  const first = all.filter(({ worker }) => named.has(worker.facts.pid));
  const remarkable = new Set([...first, ...odd]);
  const sorted = [...new Set([...remarkable, ...all])];
  const key = (entry: RanksWorker): string => (remarkable.has(entry) ? `pid ${entry.rank} ${entry.worker.facts.pid}` : `${entry.worker.facts.state} ${sayPlace(where(entry.worker))}`);
  const grouped = alike(sorted, key);
  const rows = whole.value || all.length <= FEW_ROWS ? sorted.map((entry) => [entry]) : grouped;
  const shown = rows.slice(0, MOST_ROWS);
  return (
    <Part title="Workers" note={note(first, odd, role(scene))}>
      {first.map(({ rank, worker }) => (
        <div key={worker.facts.pid} class="chosen">
          <p><strong>{sayWorker({ rank, worker }, true)}</strong>, pid {worker.facts.pid}: its stack, innermost frame first</p>
          <QuotedAt frame={where(worker)} doc={scene.doc.value} />
          {worker.stacks.length ? worker.stacks.map((stack) => <Frames key={stack.thread_id} frames={stack.frames} />) : <Nothing>No stack could be had.</Nothing>}
        </div>
      ))}
      <Table label="Loader workers">
        <thead>
          <tr>
            <th scope="col">Rank</th>
            <th scope="col" class="number">Worker</th>
            <th scope="col" class="number">Pid</th>
            <th scope="col">State</th>
            <th scope="col">Holds sample</th>
            <th scope="col">Stands in</th>
            <th scope="col">Blocked on</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((entries) => [entries[0]!, entries] as const).map(([{ rank, worker }, entries]) => entries.length > 1 ? (
            <tr key={`${rank} ${worker.facts.pid}`}>
              <th scope="row"><Whose ranks={[...new Set(entries.map((entry) => entry.rank))]} scene={scene} /></th>
              <td class="number">{entries.length} alike</td>
              <td class="number">–</td>
              <td>{STATES[worker.facts.state] ?? worker.facts.state}</td>
              <td>–</td>
              <td><Site frame={where(worker)} /></td>
              <td>{common(entries, (entry) => kindOfFile(entry.worker.facts.blocked_on?.path ?? "")) || "–"}</td>
            </tr>
          ) : (
            <tr key={`${rank} ${worker.facts.pid}`} class={named.has(worker.facts.pid) || (!first.length && odd.some((entry) => entry.worker === worker)) ? "at-fault" : ""}>
              <th scope="row"><a href={scene.link("ranks", rank)}>{rank}</a></th>
              <td class="number">{worker.worker ?? "–"}{named.has(worker.facts.pid) && <span class="tag fault">{role(scene)}</span>}</td>
              <td class="number">{worker.facts.pid}</td>
              <td>{STATES[worker.facts.state] ?? worker.facts.state}</td>
              <td>{worker.sample ?? "–"}</td>
              <td><Site frame={where(worker)} /></td>
              <td>{worker.facts.blocked_on?.path ?? "–"}</td>
            </tr>
          ))}
        </tbody>
        {rows.length > shown.length && <caption>{shown.length} of {rows.length}</caption>}
      </Table>
      {all.length > FEW_ROWS && grouped.length < all.length && <LeftOut says="Workers that stand in the same place share a row." whole={whole} all={`Show all ${all.length}`} less="One row for those that are alike" />}
    </Part>
  );
}

function sayPlace(frame: Frame | null): string {
  return frame ? `${place(frame)} ${frame.function}` : "";
}

/** "pipe:[4711]" is another one for each worker: what they have in common is that it is a pipe. */
function kindOfFile(path: string): string {
  return path.replace(/:\[\d+\]$/, "");
}

/** What stands beside the heading: which worker a verdict names, and whether others are in a state in which none should be. */
function note(named: RanksWorker[], odd: RanksWorker[], says: string): string {
  const which = named.length > MOST_NAMED ? plural(named.length, "worker") : named.map((entry) => sayWorker(entry)).join(", ");
  const others = odd.filter((entry) => !named.includes(entry));
  const unusual = others.length ? `${plural(others.length, named.length ? "other" : "worker")} in an unusual state, of ${ranks(others.map((entry) => entry.rank))}` : "";
  if (!named.length) return unusual || "none in an unusual state";
  return [`${which} ${says}`, unusual].filter(Boolean).join("; ");
}

function sayWorker({ rank, worker }: RanksWorker, first = false): string {
  const name = worker.worker === null ? "a worker" : `worker ${worker.worker}`;
  return `${first ? name.charAt(0).toUpperCase() + name.slice(1) : name} of rank ${rank}`;
}

function where(worker: ProcessEvidence) {
  return site((worker.stacks.find((stack) => stack.main) ?? worker.stacks[0])?.frames ?? []);
}
