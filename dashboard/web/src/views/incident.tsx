// An incident, frozen; and the result of a capture, which has the same shape.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { API, ask, type ApiError, type Capture, type ListedIncident } from "../api";
import { Cut, Name, When } from "../parts/bits";
import { summary } from "../model/summary";
import { setMood } from "../parts/paint";
import { Download } from "../parts/download";
import type { Incident } from "../records";
import type { Place } from "../router";
import { frozen } from "../scene";
import { command, detected, NO_VERDICT, plural } from "../words";
import { Banner } from "./banner";
import { Body, Lost, Views } from "./evidence_page";
import { Review } from "./review";

/** Fetches it, then shows it. */
export function FetchedPage({ page, id, view, rank }: Place & { page: "incident" | "capture" }) {
  const incident = useSignal<Incident | null>(null);
  const job = useSignal<string | null>(null);
  const known = useSignal<ListedIncident | null>(null);
  const error = useSignal("");
  useEffect(() => {
    incident.value = null;
    error.value = "";
    fetchDocument(page, id).then(
      (found) => {
        incident.value = found.document;
        job.value = found.job;
        known.value = found.known;
        if (!found.document) error.value = "This capture has no evidence: no node has answered.";
      },
      (problem: ApiError) => (error.value = problem.status === 404 ? `There is no ${page} ${id}; it may have been deleted.` : problem.message),
    );
  }, [page, id]);
  if (error.value) return <Lost title="Nothing to show">{error.value}</Lost>;
  if (!incident.value) return <main class="page" id="main" aria-busy="true"><p class="nothing">Loading …</p></main>;
  return <IncidentPage incident={incident.value} page={page} id={id} view={view} rank={rank} job={job.value} known={known.value} />;
}

async function fetchDocument(page: "incident" | "capture", id: string): Promise<{ document: Incident | null; job: string | null; known: ListedIncident | null }> {
  if (page === "incident") {
    const path = encodeURIComponent(id);
    const [document, known] = await Promise.all([ask<Incident>(`/incidents/${path}`), listed(id)]);
    return { document, job: known?.job ?? null, known };
  }
  const capture = await ask<Capture>(`/captures/${encodeURIComponent(id)}`);
  return { document: capture.document, job: capture.job, known: null };
}

/** The key of an incident's job, and what people noted; the document itself does not know them. */
async function listed(id: string): Promise<ListedIncident | null> {
  return ask<ListedIncident>(`/incidents/${encodeURIComponent(id)}/summary`).catch(() => null);
}

interface Props {
  incident: Incident;
  page: "incident" | "capture";
  id: string; // empty in a file from disk
  view: Place["view"];
  rank: number | null;
  job: string | null;
  known?: ListedIncident | null; // what the history has beside it
}

export function IncidentPage({ incident, page, id, view, rank, job, known = null }: Props) {
  const base = `${API}/${page}s/${encodeURIComponent(id)}`;
  const scene = useMemo(() => frozen(incident, page, id, id ? `${base}.speedscope.json` : null), [incident, page, id]);
  const name = incident.job.name || incident.job.id;
  useEffect(() => {
    setMood(incident.status);
    document.title = `${incident.status}: ${name} · hangwatch`;
  }, [incident]);
  return (
    <main class="page" id="main">
      <header class="title">
        <h1><Name text={name} href={job ? `/jobs/${encodeURIComponent(job)}` : undefined} /> <span class="quiet">{page === "capture" ? "capture" : "incident"} of <When at={incident.opened_at} /></span></h1>
        <ul class="facts-line">
          {incident.job.world_size !== null && <li>{plural(incident.job.world_size, "rank")}</li>}
          {incident.nodes.length > 0 && <li>{plural(incident.nodes.length, "node")}</li>}
          {incident.job.launcher && <li>{incident.job.launcher}</li>}
          {incident.job.command && <li><Cut code class="one-line" text={command(incident.job.command)} title={incident.job.command} /></li>}
        </ul>
        <div class="actions">
          {id && page === "incident" ? (
            <>
              <a class="button" href={`${base}.html`} download>HTML</a>
              <a class="button" href={`${base}.json`} download>JSON</a>
            </>
          ) : id ? (
            <Download name={`hangwatch-${id}.json`} text={() => JSON.stringify(incident)}>JSON</Download>
          ) : (
            <span class="quiet">the .json file beside this one holds everything</span>
          )}
          <Download name={`incident-${incident.id}-summary.json`} text={() => JSON.stringify(summary(incident), null, 1)} title="without stacks, calls and processes: for an issue or a chat">Summary (JSON)</Download>
        </div>
      </header>
      {quietCapture(incident, page) ? (
        <p class="calm">The job was moving when this was taken; no rank is blamed.</p>
      ) : (
        <Banner
          scene={scene}
          status={incident.status}
          verdict={incident.verdict}
          after={detected(incident)}
          when={<When at={incident.opened_at} short />}
          brief={view !== "overview"}
          copied={{ job: incident.job, link: id ? `${location.origin}/${page}s/${encodeURIComponent(id)}` : "" }}
        />
      )}
      {known?.group && view === "overview" && <Seen known={known} />}
      <Views scene={scene} view={view} />
      <Body scene={scene} view={view} rank={rank} job={null} />
    </main>
  );
}

/** How often this was seen, and what people say of it. */
function Seen({ known }: { known: ListedIncident }) {
  return (
    <section class="seen" aria-label="Review">
      <a href={`/incidents?search=${encodeURIComponent(known.place || known.job_name)}&cause=${encodeURIComponent(known.cause)}`}>All incidents of this cause{known.place && " and line"}</a>
      <Review group={known.group} review={known.review} />
    </section>
  );
}

function quietCapture(incident: Incident, page: string): boolean {
  const { summary, culprits } = incident.verdict;
  return page === "capture" && !culprits.length && (!summary || summary === NO_VERDICT);
}
