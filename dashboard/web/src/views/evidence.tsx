// What was tried to learn, what could not be had, and the processes that are no rank.

import { Nothing, Part, Table, When } from "../parts/bits";
import { oneOfNodes } from "../model/lacks";
import type { CaptureNote, Incident } from "../records";
import { blamedPids, role, type Scene } from "../scene";
import { ranks, shortTime } from "../words";
import { EvidenceNote } from "./evidence_note";
import { Processes } from "./rank";

export function EvidenceView({ scene }: { scene: Scene }) {
  const doc = scene.doc.value;
  if (!doc) return <Nothing>No evidence has been taken yet. <EvidenceNote scene={scene} /></Nothing>;
  const named = blamedPids(scene.verdict.value);
  return (
    <>
      <Part title="What was looked at" note={scene.live ? <EvidenceNote scene={scene} /> : <>taken <When at={doc.taken_at || doc.updated_at} />{doc.sampled_twice ? ", twice" : ", once only"}</>}>
        <Table label="Sources of evidence">
          <thead>
            <tr>
              <th scope="col">Source</th>
              <th scope="col">Available</th>
              <th scope="col">Detail</th>
              <th scope="col">Ranks</th>
              <th scope="col" class="number">Capture time</th>
            </tr>
          </thead>
          <tbody>
            {merged(doc.capture).map((line) => (
              <tr key={`${line.source} ${line.ok} ${line.detail}`}>
                <th scope="row">{line.source}</th>
                <td>{line.ok ? "yes" : <strong class="missing">no</strong>}</td>
                <td>{line.detail || "–"}</td>
                <td>{line.ranks.length ? ranks(line.ranks) : "all"}</td>
                <td class="number">{shortTime(line.took_s)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      </Part>
      <LaunchedRanks doc={doc} />
      {doc.launchers.length > 0 && <Processes title="Launchers" found={doc.launchers} named={named} says={role(scene)} />}
      {doc.others.length > 0 && <Processes title="Other processes of the job" found={doc.others} named={named} says={role(scene)} />}
      <About doc={doc} record={scene.record.value} />
    </>
  );
}

/** Processes that were started as ranks, where one of them never became one or has ended. */
function LaunchedRanks({ doc }: { doc: Incident }) {
  const known = new Set(doc.ranks.map((rank) => rank.pid));
  const odd = (doc.launched ?? []).filter((process) => process.ended_at !== null || !known.has(process.pid));
  if (!odd.length) return null;
  return (
    <Part title="Started as ranks" note="processes that have ended, or never became a rank">
      <Table label="Processes started as ranks">
        <thead>
          <tr>
            <th scope="col">Rank</th>
            <th scope="col" class="number">Pid</th>
            <th scope="col">Started</th>
            <th scope="col">Ended</th>
            <th scope="col">Exit code</th>
            <th scope="col">Command</th>
          </tr>
        </thead>
        <tbody>
          {odd.slice(0, 64).map((process) => (
            <tr key={process.pid}>
              <th scope="row">{process.rank}</th>
              <td class="number">{process.pid}</td>
              <td><When at={process.started_at} short /></td>
              <td>{process.ended_at === null ? "lives" : <When at={process.ended_at} short />}</td>
              <td>{exitCode(process.exit_code)}</td>
              <td><code>{process.command}</code></td>
            </tr>
          ))}
        </tbody>
      </Table>
    </Part>
  );
}

function exitCode(code: number | null): string {
  return code === null ? "not known" : code < 0 ? `signal ${-code}` : String(code);
}

interface Line extends Pick<CaptureNote, "source" | "ok" | "detail" | "took_s"> {
  ranks: number[];
}

/** Notes that say the same of several ranks are one line. */
function merged(notes: CaptureNote[]): Line[] {
  const found = new Map<string, Line>();
  for (const note of oneOfNodes(notes)) {
    const key = `${note.source}\u0000${note.ok}\u0000${note.detail}`;
    const line = found.get(key) ?? { source: note.source, ok: note.ok, detail: note.detail, took_s: 0, ranks: [] };
    line.took_s = Math.max(line.took_s, note.took_s);
    if (note.rank !== null) line.ranks.push(note.rank);
    found.set(key, line);
  }
  return [...found.values()].sort((a, b) => Number(a.ok) - Number(b.ok) || a.source.localeCompare(b.source));
}

/** Of an incident what is on record of it, though the evidence above may be of a later capture; else of the capture. */
function About({ doc, record }: { doc: Incident; record: Incident | null }) {
  const shown = record ?? doc;
  return (
    <Part title={record ? "This incident" : "This capture"}>
      <dl class="pairs">
        <div><dt>Id</dt><dd>{shown.id}</dd></div>
        {record && <div><dt>Noticed</dt><dd><When at={record.opened_at} /></dd></div>}
        <div><dt>Last progress</dt><dd><When at={shown.last_progress_at} /></dd></div>
        {record && <div><dt>Written</dt><dd><When at={record.updated_at} /></dd></div>}
        {record?.closed_at && <div><dt>Closed</dt><dd><When at={record.closed_at} /></dd></div>}
        <div><dt>Evidence taken</dt><dd><When at={doc.taken_at || doc.updated_at} />{doc.id !== shown.id && <span class="quiet">, capture {doc.id}</span>}</dd></div>
        <div><dt>Job started</dt><dd><When at={doc.job.started_at} /></dd></div>
        <div><dt>Command</dt><dd><code>{doc.job.command || "not known"}</code></dd></div>
        <div><dt>Format</dt><dd>{doc.schema}{doc.hangwatch_version && `, hangwatch ${doc.hangwatch_version}`}</dd></div>
      </dl>
    </Part>
  );
}
