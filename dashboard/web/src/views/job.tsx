// A job, live.

import { useEffect, useMemo } from "preact/hooks";
import type { Capture, IncidentSummary, JobDetail, RankColumns } from "../api";
import { LiveJob } from "../live";
import { Clamped, Cut, Name, Part, Table, When } from "../parts/bits";
import { setMood } from "../parts/paint";
import { StateIcon } from "../parts/icon";
import type { Judgement } from "../records";
import { write, type Place } from "../router";
import { briefMoment, cause, command, duration, endedAs, ending, plural, ranks as sayRanks, timeOfDay, title } from "../words";
import { Banner } from "./banner";
import { Was } from "./was";
import { Body, Lost, Views } from "./evidence_page";

const MOVES_S = 2; // a batch may come late
const LONG_S = 5;

export function JobPage({ id, view, rank }: Place) {
  const live = useMemo(() => new LiveJob(id), [id]);
  useEffect(() => () => live.close(), [live]);
  const detail = live.detail.value;
  useEffect(() => {
    document.title = `${detail ? `${detail.state}: ${detail.name || detail.id}` : id} · hangwatch`;
  }, [detail?.state, detail?.name, id]);
  useEffect(() => setMood(detail?.judgement?.status ?? ""), [detail?.judgement?.status]);
  if (live.gone.value) return <Lost title="Deleted">This job has been deleted.</Lost>;
  if (live.missing.value) return <Lost title="No such job">There is no job {id}; it may have been deleted.</Lost>;
  return (
    <main class="page" id="main" aria-busy={detail === null}>
      <Title live={live} detail={detail} id={id} />
      <Announcement detail={detail} />
      <Countdown live={live} detail={detail} />
      {detail?.judgement && (
        <Banner
          scene={live.scene}
          status={detail.judgement.status}
          verdict={detail.judgement.verdict}
          after={stillness(live, detail)}
          ended={detail.closed_at === null ? null : howItEnded(detail)}
          copied={{ job: detail, link: location.origin + location.pathname }}
          when={detail.judged_at ? <>judged <When at={detail.judged_at} short /></> : null}
          brief={view !== "overview" || calm(detail.judgement)}
        />
      )}
      <Views scene={live.scene} view={view} />
      {detail === null ? <p class="nothing">Connecting …</p> : <Body scene={live.scene} view={view} rank={rank} job={id} incidents={<Past live={live} />} />}
    </main>
  );
}

/** By the first node that did not end well; the launcher's code stands for those of its ranks. */
function howItEnded(detail: JobDetail): string {
  return ending(detail.node_list.find((node) => node.exit_code)?.exit_code ?? null);
}

/** Some ranks wait, and none is named: worth a line, not the whole screen. */
function calm(judgement: Judgement): boolean {
  return judgement.status === "waiting" && judgement.verdict.culprits.length === 0;
}

/** For how long no rank has moved, while the job runs; and when that will be called a hang. */
function stillness(live: LiveJob, detail: JobDetail): string {
  if (detail.closed_at !== null) return `the job ended ${briefMoment(detail.closed_at)}`;
  if (detail.state === "silent") return `not heard of since ${briefMoment(detail.last_seen_at)}`;
  const columns = live.columns.value;
  if (!columns?.still_s.length) return "";
  const still = columns.still_s.reduce((a, b) => Math.min(a, b), Infinity);
  const says = still > MOVES_S ? `nothing has moved for ${duration(still)}` : "some ranks still move";
  const left = detail.judgement?.status === "waiting" ? patienceLeft(columns) : null;
  return left === null ? says : `${says}; called hung in ${duration(left)} unless it moves`;
}

/** Seconds until the first rank has stood still for longer than its patience; null where none stands still. */
export function patienceLeft(columns: RankColumns): number | null {
  const left = columns.rank.flatMap((_, index) =>
    columns.patience_s[index]! > 0 && columns.still_s[index]! > MOVES_S ? [columns.patience_s[index]! - columns.still_s[index]!] : [],
  );
  return left.length ? Math.max(0, left.reduce((a, b) => Math.min(a, b))) : null;
}

/** Ranks stand still and nothing is judged yet: who waits for what, and when that will be called a hang. */
function Countdown({ live, detail }: { live: LiveJob; detail: JobDetail | null }) {
  const columns = live.columns.value;
  if (!detail || !columns || detail.judgement || detail.closed_at !== null || detail.state === "silent") return null;
  const still = columns.rank.filter((_, index) => columns.still_s[index]! > LONG_S);
  const left = patienceLeft(columns);
  if (!still.length || left === null) return null;
  const first = still.find((rank) => columns.waiting_for[rank]);
  const why = first === undefined ? "" : ` Rank ${first} waits for ${columns.waiting_for[first]!.replace(/^waits for /, "")}.`;
  return (
    <p class="countdown">
      {still.length === columns.rank.length ? "No rank has moved" : `${sayRanks(still)} ${still.length > 1 ? "have" : "has"} not moved`} for {duration(Math.min(...still.map((rank) => columns.still_s[columns.rank.indexOf(rank)]!)))}:
      called hung in {duration(left)} unless {still.length > 1 ? "they move" : "it moves"}.{why}
    </p>
  );
}

/** What a screen reader says when the verdict comes or changes. */
function Announcement({ detail }: { detail: JobDetail | null }) {
  const verdict = detail?.judgement?.verdict;
  return (
    <div class="offscreen" role="status">
      {detail && (verdict ? `${[detail.closed_at === null ? detail.judgement!.status : endedAs(detail.judgement!.status, howItEnded(detail)), verdict.hang, cause(verdict.cause, verdict.certainty)].filter(Boolean).join(", ")}. ${verdict.summary}` : `Job is ${detail.state}.`)}
    </div>
  );
}

function Title({ live, detail, id }: { live: LiveJob; detail: JobDetail | null; id: string }) {
  return (
    <header class="title">
      <h1>
        <Name text={detail?.name || detail?.id || id} />{" "}
        {detail && (
          <span class={`state ${detail.state}`}>
            <StateIcon state={detail.state} /> {detail.state}
          </span>
        )}
        {detail && <Was job={detail} />}
      </h1>
      {detail && (
        <ul class="facts-line">
          <li>{detail.world_size === null || detail.world_size === detail.ranks ? plural(detail.ranks, "rank") : `${detail.ranks} of ${detail.world_size} ranks`}</li>
          <li>{detail.nodes_expected && detail.nodes_expected > detail.nodes ? `${detail.nodes} of ${detail.nodes_expected} nodes` : plural(detail.nodes, "node")}{detail.nodes_silent > 0 && <strong class="missing"> ({detail.nodes_silent} silent)</strong>}</li>
          <Pace live={live} detail={detail} />
          <li>started <When at={detail.started_at} />{detail.closed_at !== null && <>, ended <When at={detail.closed_at} brief /></>}</li>
          {detail.command && <li><Cut code class="one-line" text={command(detail.command)} title={detail.command} /></li>}
        </ul>
      )}
      <div class="actions">
        {detail?.closed_at === null && detail.state !== "silent" && <button type="button" onClick={() => void live.scene.capture!()}>Capture now</button>}
        <CaptureState capture={live.capture.value} error={live.captureError.value} />
      </div>
    </header>
  );
}

/** Which step, and how fast: by the newest numbers there are. */
function Pace({ live, detail }: { live: LiveJob; detail: JobDetail }) {
  const steps = live.columns.value?.step ?? [detail.step, detail.step_max];
  const [first, last] = [steps.reduce((a, b) => Math.min(a, b), Infinity), steps.reduce((a, b) => Math.max(a, b), -1)];
  const pace = (live.summary.value ?? detail).steps_per_s;
  return (
    <>
      <li>{last < 0 ? "no step yet" : first === last ? `step ${last}` : `steps ${first} to ${last}`}</li>
      {detail.closed_at === null && <li>{pace > 0 ? `${pace.toFixed(pace < 10 ? 2 : 0)} steps/s` : "0 steps/s"}</li>}
    </>
  );
}

function CaptureState({ capture, error }: { capture: Capture | null; error: string }) {
  return (
    <span class="capture-state" role="status">
      {error || (capture && <Said capture={capture} />)}
    </span>
  );
}

function Said({ capture }: { capture: Capture }) {
  const link = write({ page: "capture", id: capture.id, view: "stacks", rank: null });
  if (capture.state === "asked") return <>{capture.nodes_asked.length ? `asked ${plural(capture.nodes_asked.length, "node")}, ${capture.nodes_answered.length} answered` : "no node can be asked now"}</>;
  if (capture.state === "failed") return <>no node answered ({timeOfDay(capture.asked_at)})</>;
  return <a href={link}>Capture of {timeOfDay(capture.done_at ?? capture.asked_at)}</a>;
}

function Past({ live }: { live: LiveJob }) {
  const found = live.incidents.value;
  if (!found.length) return null;
  return (
    <Part title="Incidents of this job">
      <IncidentTable found={found} />
    </Part>
  );
}

export function IncidentTable({ found }: { found: IncidentSummary[] }) {
  return (
    <Table label="Incidents">
      <thead>
        <tr>
          <th scope="col">When</th>
          <th scope="col">Status</th>
          <th scope="col">What happened</th>
          <th scope="col">Cause</th>
        </tr>
      </thead>
      <tbody>
        {found.map((incident) => (
          <tr key={incident.id}>
            <th scope="row"><a href={write({ page: "incident", id: incident.id, view: "overview", rank: null })}><When at={incident.opened_at} /></a></th>
            <td><span class={`state ${incident.status}`}><StateIcon state={incident.status} /> {incident.status}{incident.hang && `, ${incident.hang}`}</span></td>
            <td class="wide"><Clamped>{incident.summary}</Clamped></td>
            <td>{title(incident.cause)} <span class="quiet">{incident.cause}, {cause(incident.cause, incident.certainty)}</span></td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
