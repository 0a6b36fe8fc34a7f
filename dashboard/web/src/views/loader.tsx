// Data loaders: how far each rank's loader is, its workers, their state and what they hold.

import { site } from "../model/frames";
import { homes } from "../model/homes";
import { Meter, Nothing, Part, Site, Table } from "../parts/bits";
import type { LoaderFacts, ProcessEvidence, RankReport } from "../records";
import { blamedPids, role, type Scene } from "../scene";
import { plural, ranks } from "../words";
import { EvidenceNote } from "./evidence_note";
import { QuotedAt } from "./excerpt";
import { Frames } from "./frames";
import { STATES } from "./grid";

const MOST_ROWS = 64;
const MOST_NAMED = 3;

export function LoaderView({ scene }: { scene: Scene }) {
  const doc = scene.doc.value;
  if (!doc) return <Nothing>Loaders are read when a job stops, or when you ask. <EvidenceNote scene={scene} /></Nothing>;
  const rows = doc.ranks.flatMap((rank) => rank.loader.map((loader) => ({ rank, loader })));
  if (!rows.length) return <Nothing>No rank has used a DataLoader that hangwatch knows of. <EvidenceNote scene={scene} /></Nothing>;
  const sorted = [...rows].sort((a, b) => Number(scene.culprits.value.has(b.rank.rank)) - Number(scene.culprits.value.has(a.rank.rank)) || a.rank.rank - b.rank.rank);
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
            {sorted.slice(0, MOST_ROWS).map(({ rank, loader }) => (
              <tr key={`${rank.rank} ${loader.index}`} class={!scene.culprits.value.has(rank.rank) ? "" : lodging.has(rank.rank) ? "home" : "at-fault"}>
                <th scope="row"><a href={scene.link("ranks", rank.rank)}>{rank.rank}</a>{rank.loader.length > 1 && <span class="quiet"> loader {loader.index}</span>}</th>
                <td>{loader.length === null ? plural(loader.drawn, "batch").replace("batchs", "batches") : <Meter value={loader.drawn} most={loader.length} text={`${loader.drawn} of ${loader.length}`} />}</td>
                <td class="number">{loader.epoch < 0 ? "–" : loader.epoch}</td>
                <td>{state(loader)}</td>
                <td>{loader.dataset || "–"}{loader.dataset_length !== null && <span class="quiet"> {loader.dataset_length.toLocaleString("en")}</span>}</td>
                <td>{sampler(loader)}</td>
                <td class="number">{loader.num_workers}</td>
                <td><Site frame={loader.where} bare /></td>
              </tr>
            ))}
          </tbody>
          {rows.length > MOST_ROWS && <caption>the first {MOST_ROWS} of {rows.length}</caption>}
        </Table>
      </Part>
      <Workers reports={doc.ranks} scene={scene} />
    </>
  );
}

function state(loader: LoaderFacts): string {
  if (loader.inside_next) return "inside next(): waits for a batch";
  if (loader.exhausted) return "exhausted";
  if (loader.left) return "left before its end";
  return loader.epoch < 0 ? "not used yet" : "in use";
}

function sampler(loader: LoaderFacts): string {
  if (!loader.sampler) return "–";
  const share = loader.sampler_replicas === null ? "" : `, part ${loader.sampler_rank ?? "?"} of ${loader.sampler_replicas}`;
  return `${loader.sampler}${loader.sampler_length === null ? "" : `, ${loader.sampler_length.toLocaleString("en")} samples`}${share}`;
}

interface RanksWorker {
  rank: number;
  worker: ProcessEvidence;
}

function Workers({ reports, scene }: { reports: RankReport[]; scene: Scene }) {
  const all = reports.flatMap((rank) => rank.workers.map((worker): RanksWorker => ({ rank: rank.rank, worker })));
  if (!all.length) return <Part title="Workers"><Nothing>No loader worker was seen.</Nothing></Part>;
  const named = blamedPids(scene.verdict.value);
  const odd = all.filter(({ worker }) => !"SRI".includes(worker.facts.state));
  const first = all.filter(({ worker }) => named.has(worker.facts.pid));
  const shown = [...new Set([...first, ...odd, ...all])].slice(0, MOST_ROWS);
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
          {shown.map(({ rank, worker }) => (
            <tr key={worker.facts.pid} class={named.has(worker.facts.pid) || (!first.length && odd.some((entry) => entry.worker === worker)) ? "at-fault" : ""}>
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
        {all.length > shown.length && <caption>{shown.length} of {all.length}</caption>}
      </Table>
    </Part>
  );
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
