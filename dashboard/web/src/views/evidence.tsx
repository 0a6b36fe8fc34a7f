// What was tried to learn, what could not be had, and the processes that are no rank.

import { Nothing, Part, Table, When } from "../parts/bits";
import type { CaptureNote, Incident } from "../records";
import type { Scene } from "../scene";
import { ranks, shortTime } from "../words";
import { EvidenceNote } from "./evidence_note";
import { Processes } from "./rank";

export function EvidenceView({ scene }: { scene: Scene }) {
  const doc = scene.doc.value;
  if (!doc) return <Nothing>No evidence has been taken yet. <EvidenceNote scene={scene} /></Nothing>;
  return (
    <>
      <Part title="What was looked at" note={scene.live ? <EvidenceNote scene={scene} /> : <>taken <When at={doc.taken_at || doc.updated_at} />{doc.sampled_twice ? ", twice" : ", once only"}</>}>
        <Table label="Sources of evidence">
          <thead>
            <tr>
              <th scope="col">Source</th>
              <th scope="col">Had</th>
              <th scope="col">Said</th>
              <th scope="col">Ranks</th>
              <th scope="col" class="number">Took</th>
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
      {doc.launchers.length > 0 && <Processes title="Launchers" found={doc.launchers} />}
      {doc.others.length > 0 && <Processes title="Other processes of the job" found={doc.others} />}
      <About doc={doc} />
    </>
  );
}

interface Line extends Pick<CaptureNote, "source" | "ok" | "detail" | "took_s"> {
  ranks: number[];
}

/** Notes that say the same of several ranks are one line. */
function merged(notes: CaptureNote[]): Line[] {
  const found = new Map<string, Line>();
  for (const note of notes) {
    const key = `${note.source}\u0000${note.ok}\u0000${note.detail}`;
    const line = found.get(key) ?? { source: note.source, ok: note.ok, detail: note.detail, took_s: 0, ranks: [] };
    line.took_s = Math.max(line.took_s, note.took_s);
    if (note.rank !== null) line.ranks.push(note.rank);
    found.set(key, line);
  }
  return [...found.values()].sort((a, b) => Number(a.ok) - Number(b.ok) || a.source.localeCompare(b.source));
}

function About({ doc }: { doc: Incident }) {
  return (
    <Part title="This record">
      <dl class="pairs">
        <div><dt>Id</dt><dd>{doc.id}</dd></div>
        <div><dt>Noticed</dt><dd><When at={doc.opened_at} /></dd></div>
        <div><dt>Last progress</dt><dd><When at={doc.last_progress_at} /></dd></div>
        <div><dt>Written</dt><dd><When at={doc.updated_at} /></dd></div>
        {doc.closed_at !== null && <div><dt>Closed</dt><dd><When at={doc.closed_at} /></dd></div>}
        <div><dt>Job started</dt><dd><When at={doc.job.started_at} /></dd></div>
        <div><dt>Command</dt><dd><code>{doc.job.command || "not known"}</code></dd></div>
        <div><dt>Format</dt><dd>{doc.schema}{doc.hangwatch_version && `, hangwatch ${doc.hangwatch_version}`}</dd></div>
      </dl>
    </Part>
  );
}
