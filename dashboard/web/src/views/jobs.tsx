// All jobs; and, where there is none, how to connect one.

import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { ask, type JobList, type JobSummary } from "../api";
import { Cut, Nothing, Part, Table, When } from "../parts/bits";
import { Copy } from "../parts/copy";
import { setMood } from "../parts/paint";
import { StateIcon } from "../parts/icon";
import { write } from "../router";
import { session } from "../session";
import { connect } from "../stream";
import { command, parseClean, plural, title } from "../words";
import { JobsStore } from "../jobs";
import { ListPage } from "./lists";
import { Was } from "./was";

const MOST = 200;

export function JobsPage() {
  const store = useMemo(() => new JobsStore(), []);
  const search = useSignal("");
  const kept = useSignal<number | null>(null); // how many jobs the dashboard has in all
  useEffect(() => {
    document.title = "Jobs · hangwatch";
    setMood("");
    ask<JobList>("/jobs?limit=1").then((answer) => (kept.value = answer.total), () => undefined);
    return connect(null, {
      jobs: (data) => store.merge(parseClean<{ jobs: JobSummary[] }>(data).jobs),
      gone: (data) => store.remove((JSON.parse(data) as { job: string }).job),
    });
  }, []);
  const wanted = search.value.trim().toLowerCase();
  const all = store.sorted.value;
  const jobs = wanted ? all.filter((job) => [job.name, job.id, job.key, job.command].some((text) => text.toLowerCase().includes(wanted))) : all;
  const known = store.known.value;
  const never = known && all.length === 0 && kept.value === 0;
  const filters = !never && (
    <label class="search">
      <span class="offscreen">Search jobs</span>
      <input type="search" placeholder="Search by name, id or command" value={search.value} onInput={(event) => (search.value = event.currentTarget.value)} />
    </label>
  );
  return (
    <ListPage title="Jobs" tab="jobs" filters={filters} busy={!known}>
      {never ? <HowToConnect /> : jobs.length ? <Now jobs={jobs} /> : <None known={known} wanted={search.value} kept={kept.value} />}
    </ListPage>
  );
}

/** What goes on, and below it what has ended while the dashboard still has it in memory. */
function Now({ jobs }: { jobs: JobSummary[] }) {
  const ended = jobs.filter((job) => job.closed_at !== null);
  const active = jobs.filter((job) => job.closed_at === null);
  return (
    <>
      {active.length ? <JobTable jobs={active} /> : <Nothing>No job is running.</Nothing>}
      {ended.length > 0 && (
        <Part title="Ended a short while ago" note={<a href="/history">all in the history</a>}>
          <JobTable jobs={ended} label="Jobs that have ended" />
        </Part>
      )}
    </>
  );
}

function None({ known, wanted, kept }: { known: boolean; wanted: string; kept: number | null }) {
  if (!known) return <Nothing>Connecting …</Nothing>;
  const history = <a href={wanted ? `/history?search=${encodeURIComponent(wanted)}` : "/history"}>{wanted ? "Search in the history" : plural(kept ?? 0, "job")}</a>;
  return wanted ? <Nothing>No job matches “{wanted}”. {history}</Nothing> : <Nothing>No job is running. The history has {history}.</Nothing>;
}

export function JobTable({ jobs, label = "Jobs" }: { jobs: JobSummary[]; label?: string }) {
  return (
    <Table label={label} class="jobs">
      <thead>
        <tr>
          <th scope="col">Job</th>
          <th scope="col">State</th>
          <th scope="col" class="number">Ranks</th>
          <th scope="col" class="number">Nodes</th>
          <th scope="col" class="number">Step</th>
          <th scope="col" class="number">Steps/s</th>
          <th scope="col">Last incident</th>
          <th scope="col">Last heard of</th>
        </tr>
      </thead>
      <tbody>
        {jobs.slice(0, MOST).map((job) => <JobRow key={job.key} job={job} />)}
      </tbody>
    </Table>
  );
}

function JobRow({ job }: { job: JobSummary }) {
  return (
    <tr class={job.state}>
      <th scope="row">
        <a href={write({ page: "job", id: job.key, view: "overview", rank: null })}>{job.name || job.id}</a>
        <Cut class="quiet command" text={command(job.command)} title={job.command} />
      </th>
      <td>
        <span class={`state ${job.state}`}><StateIcon state={job.state} /> {job.state}</span>
        {job.state_text.startsWith(`${job.state}: `) && <Cut class="sentence-line" text={job.state_text.slice(job.state.length + 2)} />}
        <span class="tags">
          <Was job={job} />
          {job.warnings > 0 && <span class="tag">{plural(job.warnings, "warning")}</span>}
        </span>
      </td>
      <td class="number">{(job.world_size ?? job.ranks).toLocaleString("en")}</td>
      <td class="number">{job.nodes.toLocaleString("en")}{job.nodes_silent > 0 && <span class="tag">{job.nodes_silent} silent</span>}</td>
      <td class="number">{job.step < 0 ? "–" : job.step.toLocaleString("en")}</td>
      <td class="number">{job.steps_per_s ? job.steps_per_s.toFixed(job.steps_per_s < 10 ? 2 : 0) : "–"}</td>
      <td>
        {job.incident ? (
          <a href={write({ page: "incident", id: job.incident.id, view: "overview", rank: null })}>{title(job.incident.cause)},<br /><When at={job.incident.opened_at} brief /></a>
        ) : (
          <span class="quiet">none</span>
        )}
      </td>
      <td><When at={job.last_seen_at} brief /></td>
    </tr>
  );
}

export function HowToConnect() {
  const token = session.value?.required ? "HANGWATCH_TOKEN=INGEST_TOKEN " : "";
  const address = location.origin;
  const run = `${token}hangwatch run --dashboard ${address} -- torchrun --nproc-per-node 8 train.py`;
  const attach = `hangwatch.attach(model, loader, dashboard="${address}")`;
  return (
    <Part title="No job has reported yet">
      <p>Put <code>hangwatch run</code> before the command that starts your job, on every node. The code stays as it is:</p>
      <Command text={run} />
      <p>or, from inside the training script:</p>
      <Command text={`import hangwatch\n\n${attach}`} />
      {token && <p class="quiet">INGEST_TOKEN is the dashboard's own token for sending; ask the person that started it.</p>}
      <p class="quiet">The job appears here by itself, a second or two after its first process has started. No job at hand? <code>hangwatch demo</code> hangs a small one and shows it on a dashboard of its own.</p>
    </Part>
  );
}

function Command({ text }: { text: string }) {
  return (
    <div class="command-line">
      <pre tabIndex={0}>{text}</pre>
      <Copy text={text} what="the command" />
    </div>
  );
}
