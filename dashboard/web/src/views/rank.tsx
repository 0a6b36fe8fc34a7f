// One rank: what it is doing, its threads' stacks, its process, its calls.

import { useEffect } from "preact/hooks";
import { useSignal } from "@preact/signals";
import { ask, type RankDetail } from "../api";
import { alike } from "../model/alike";
import { isUser, mainStack, site } from "../model/frames";
import { sayPhase } from "../model/phases";
import { Nothing, Part, Site, Table, When } from "../parts/bits";
import { Copy } from "../parts/copy";
import { LeftOut } from "../parts/left_out";
import type { Collective, ProcessEvidence, ProcessFacts, RankReport, ThreadStack } from "../records";
import { blamedPids, role, type Scene } from "../scene";
import { culprit as sayCulprit, duration, plural, size } from "../words";
import { EvidenceNote } from "./evidence_note";
import { QuotedAt } from "./excerpt";
import { Frames } from "./frames";
import { STATES } from "./grid";

export function RankView({ scene, rank, job }: { scene: Scene; rank: number; job: string | null }) {
  const report = scene.doc.value?.ranks.find((known) => known.rank === rank) ?? null;
  const columns = scene.columns.value;
  const index = columns?.rank.indexOf(rank) ?? -1;
  const detail = useDetail(job, rank);
  const blamed = scene.verdict.value?.culprits.find((who) => who.rank === rank);
  if (index < 0 && !report && columns) {
    return (
      <>
        <Head scene={scene} rank={rank} where="" />
        <Nothing>Nothing has been heard of rank {rank}.</Nothing>
      </>
    );
  }
  const host = report?.host || (index >= 0 ? columns!.nodes[columns!.node[index]!]! : "");
  return (
    <div class="rank">
      <Head scene={scene} rank={rank} where={host} />
      {blamed && <p class="at-fault-line"><span class={`tag ${blamed.process === "rank" ? "fault" : "home"}`}>{role(scene, rank)}</span> {sayCulprit(blamed)}{blamed.where && <> · <Site frame={blamed.where} /></>}</p>}
      {index >= 0 && columns && (
        <dl class="facts">
          <Fact name="Phase">{sayPhase(columns.phases[columns.phase[index]!] ?? "start")}</Fact>
          <Fact name="Step">{columns.step[index]! < 0 ? "none yet" : columns.step[index]}{columns.lag[index] ? `, ${columns.lag[index]} behind` : ""}</Fact>
          <Fact name="Epoch, batch">{columns.epoch[index] ?? "–"}, {columns.batch[index] ?? "–"}</Fact>
          <Fact name="Still for">{columns.still_s[index]! > 2 ? duration(columns.still_s[index]!) : scene.ended.value ? "the job has ended" : "it moves"}</Fact>
          {columns.patience_s[index]! > 0 && <Fact name="Called hung after">{duration(columns.patience_s[index]!)} without progress, or sooner if proven</Fact>}
          <Fact name="Pid">{columns.pid[index] ?? "–"}</Fact>
          <Fact name="Collectives issued">{columns.issued[index]!.toLocaleString("en")}</Fact>
          {detail?.identity?.torch_version && <Fact name="torch, Python">{detail.identity.torch_version}, {detail.identity.python_version}</Fact>}
          {columns.waiting_for[rank] && <Fact name="Waits for" wide>{columns.waiting_for[rank]}</Fact>}
          {columns.exception[rank] && <Fact name="Exception" wide>{columns.exception[rank]}</Fact>}
        </dl>
      )}
      {report ? <Evidence report={report} scene={scene} /> : <p class="quiet">Its stacks have not been taken. <EvidenceNote scene={scene} /></p>}
    </div>
  );
}

function useDetail(job: string | null, rank: number): RankDetail | null {
  const detail = useSignal<RankDetail | null>(null);
  useEffect(() => {
    detail.value = null;
    if (job) ask<RankDetail>(`/jobs/${encodeURIComponent(job)}/ranks/${rank}`).then((found) => (detail.value = found), () => undefined);
  }, [job, rank]);
  return detail.value?.rank === rank ? detail.value : null;
}

function Head({ scene, rank, where }: { scene: Scene; rank: number; where: string }) {
  const all = scene.columns.value?.rank ?? [];
  const index = all.indexOf(rank);
  const [before, after] = [all[index - 1], all[index + 1]];
  return (
    <header class="rank-head">
      <h2>Rank {rank} {where && <span class="quiet">on {where}</span>}</h2>
      <nav aria-label="Other ranks">
        {before !== undefined && index > 0 && <a rel="prev" href={scene.link("ranks", before)}>‹ rank {before}</a>}
        <a href={scene.link("overview")}>all ranks</a>
        {after !== undefined && index >= 0 && <a rel="next" href={scene.link("ranks", after)}>rank {after} ›</a>}
      </nav>
    </header>
  );
}

function Fact({ name, children, wide = false }: { name: string; children: preact.ComponentChildren; wide?: boolean }) {
  return (
    <div class={wide ? "wide" : ""}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Evidence({ report, scene }: { report: RankReport; scene: Scene }) {
  return (
    <>
      {report.exception && (
        <Part title="Exception" note={<When at={report.exception.at} short />}>
          <p><strong>{report.exception.type}</strong>: {report.exception.message}</p>
          <Frames frames={report.exception.frames} />
        </Part>
      )}
      <Part title="Stacks" note={<>innermost frame first · {scene.live ? <EvidenceNote scene={scene} /> : sampled(report)}</>}>
        <QuotedAt frame={site(mainStack(report)?.frames ?? [])} doc={scene.doc.value} />
        <div class={report.last_output ? "two" : ""}>
          <div>{report.stacks.length ? report.stacks.map((stack) => <Thread key={stack.thread_id} stack={stack} />) : <Nothing>No stack could be had.</Nothing>}</div>
          {report.last_output && (
            <div class="last-output">
              <h3>Last output</h3>
              <pre tabIndex={0} aria-label="Last output">{report.last_output}</pre>
            </div>
          )}
        </div>
      </Part>
      <Calls report={report} />
      {report.process && <Process facts={report.process} />}
      {[...report.workers, ...report.children].length > 0 && <Processes found={[...report.workers, ...report.children]} named={blamedPids(scene.verdict.value)} says={role(scene)} />}
      {report.crash_trace && <Text title="Crash trace" text={report.crash_trace} />}
      {report.lock_files.length > 0 && (
        <Part title="Lock files">
          <ul>
            {report.lock_files.map((lock) => (
              <li key={lock.path}><code>{lock.path}</code>, {lock.owner_pid === null ? "held by no living process" : `held by pid ${lock.owner_pid}${lock.owner_alive ? "" : ", which is gone"}`}, {duration(lock.age_s)} old</li>
            ))}
          </ul>
        </Part>
      )}
    </>
  );
}

function sampled(report: RankReport): string {
  if (!report.earlier_stacks.length) return "taken once";
  const text = (stacks: ThreadStack[]): string => JSON.stringify(stacks.filter((stack) => stack.main).map((stack) => stack.frames));
  return text(report.stacks) === text(report.earlier_stacks) ? "the same a moment before" : "it stood elsewhere a moment before";
}

export function Thread({ stack }: { stack: ThreadStack }) {
  const marks = [stack.main ? "main thread" : "", stack.owns_gil ? "owns the interpreter lock" : "", stack.active ? "running" : ""].filter(Boolean);
  const text = `${stack.name}\n${stack.frames.map((frame) => `  ${frame.function} (${frame.file}:${frame.line})`).join("\n")}`;
  return (
    <details class="thread" open={stack.main}>
      <summary>
        <b>{stack.name || `thread ${stack.thread_id}`}</b> <span class="quiet">{[`id ${stack.thread_id}`, ...marks].join(", ")}</span>
      </summary>
      <Frames frames={stack.frames} />
      <Copy text={text} what={`the stack of ${stack.name || stack.thread_id}`} />
    </details>
  );
}

function Calls({ report }: { report: RankReport }) {
  const { recent, open_calls: open, heads, source } = report.collectives;
  const calls = [...recent].reverse().slice(0, 20);
  if (!heads.length) return null;
  return (
    <Part title="Collectives" note={source === "flight-recorder" ? "from torch's flight recorder" : "from the board: calls made from Python"}>
      <p>
        {heads.map((head) => `group ${head.name}: ${head.issued < 0 ? "none" : head.issued} issued, ${head.completed < 0 ? "none" : head.completed} completed`).join("; ")}
        {open.length > 0 && `; inside ${open.map((call) => `${call.op} ${call.seq} of group ${call.group}`).join(", ")}`}
      </p>
      {calls.length > 0 && (
        <Table label="Last calls of this rank">
          <thead>
            <tr>
              <th scope="col">Group</th>
              <th scope="col" class="number">Number</th>
              <th scope="col">Call</th>
              <th scope="col">Completed</th>
              <th scope="col">Called from</th>
            </tr>
          </thead>
          <tbody>{calls.map((call, index) => <CallRow key={index} call={call} />)}</tbody>
        </Table>
      )}
    </Part>
  );
}

function CallRow({ call }: { call: Collective }) {
  return (
    <tr>
      <td>{call.group}</td>
      <td class="number">{call.seq}</td>
      <td><code class="op">{call.op}</code> <span class="quiet">{call.peer === null ? "" : `rank ${call.peer} `}{call.sizes.map((size) => size.join("×") || "scalar").join(", ")} {call.dtypes.join(", ")}</span></td>
      <td>{call.retired === null ? "not known" : call.retired ? "yes" : <strong>no</strong>}</td>
      <td><Site frame={call.frames.find(isUser) ?? call.frames[0] ?? null} /></td>
    </tr>
  );
}

function Process({ facts }: { facts: ProcessFacts }) {
  const rows: [string, string][] = [
    ["State", STATES[facts.state] ?? facts.state],
    ["Command", facts.command],
    ["Waits in", [facts.system_call, facts.wait_channel].filter(Boolean).join(", ")],
    ["Blocked on", facts.blocked_on ? `${facts.blocked_on.path} (descriptor ${facts.blocked_on.fd}${facts.blocked_on.filesystem ? `, ${facts.blocked_on.filesystem}` : ""})` : ""],
    ["CPU time between the two samples", facts.cpu_delta_s === null ? "" : duration(facts.cpu_delta_s)],
    ["I/O between the two samples", facts.io_delta_bytes === null ? "" : size(facts.io_delta_bytes)],
    ["Memory", facts.resident_bytes === null ? "" : size(facts.resident_bytes)],
    ["Threads", facts.threads === null ? "" : String(facts.threads)],
    ["Descriptors", facts.descriptors === null ? "" : `${facts.descriptors}${facts.descriptor_limit === null ? "" : ` of ${facts.descriptor_limit}`}`],
    ["Exit code", facts.exit_code === null ? "" : String(facts.exit_code)],
    ["Unusual threads", facts.unusual_threads.map((thread) => `${thread.name || thread.thread_id} ${STATES[thread.state] ?? thread.state}`).join(", ")],
    ["Not readable", facts.unreadable.join("; ")],
  ];
  return (
    <Part title="Process" note={`pid ${facts.pid}`}>
      <dl class="pairs">
        {rows.filter(([, value]) => value).map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <Environment of={facts.environment} />
      {facts.sockets.some((socket) => socket.unacknowledged || socket.retransmits) && (
        <ul>
          {facts.sockets.filter((socket) => socket.unacknowledged || socket.retransmits).map((socket) => (
            <li key={socket.local + socket.remote}>{socket.local} → {socket.remote}: {size(socket.unacknowledged)} not acknowledged, {plural(socket.retransmits, "retransmit")}</li>
          ))}
        </ul>
      )}
    </Part>
  );
}

function Environment({ of: environment }: { of: Record<string, string> }) {
  const settings = Object.entries(environment);
  if (!settings.length) return null;
  return (
    <details class="environment">
      <summary>{plural(settings.length, "setting")} of the environment</summary>
      <dl class="pairs">
        {settings.map(([name, value]) => (
          <div key={name}>
            <dt><code>{name}</code></dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}

const FEW_PROCESSES = 6;

interface Named {
  found: ProcessEvidence[];
  title?: string;
  named?: ReadonlySet<number>; // pids that the verdict names: first, marked, and open
  says?: string;
}

export function Processes({ found, title = "Workers and children", named = new Set(), says = "" }: Named) {
  const whole = useSignal(false);
  const sorted = [...found].sort((a, b) => Number(named.has(b.facts.pid)) - Number(named.has(a.facts.pid)));
  const grouped = alike(sorted, (process) => (named.has(process.facts.pid) ? `pid ${process.facts.pid}` : asSeen(process)));
  const shown = whole.value || found.length <= FEW_PROCESSES ? sorted : grouped.map((processes) => processes[0]!);
  return (
    <Part title={title}>
      {shown.slice(0, 64).map((process) => (
        <details class="thread" key={process.facts.pid} open={named.has(process.facts.pid)}>
          <summary>
            <b>{process.role.replaceAll("-", " ")}{process.worker === null ? "" : ` ${process.worker}`}</b> <span class="quiet">pid {process.facts.pid}, {STATES[process.facts.state] ?? process.facts.state}{process.sample ? `, holds sample ${process.sample}` : ""}</span>{named.has(process.facts.pid) && <span class="tag fault">{says}</span>}
          </summary>
          <p><code>{process.facts.command}</code></p>
          {process.stacks.map((stack) => <Frames key={stack.thread_id} frames={stack.frames} />)}
          {process.last_output && <pre tabIndex={0}>{process.last_output}</pre>}
        </details>
      ))}
      {found.length > FEW_PROCESSES && grouped.length < found.length && <LeftOut says={`${plural(found.length - grouped.length, "other")} in the same state and place.`} whole={whole} all={`Show all ${found.length}`} less="Show one of those that are alike" />}
    </Part>
  );
}

/** What there is to see of a process besides its number: those alike in it are shown once. */
function asSeen(process: ProcessEvidence): string {
  const frames = process.stacks.flatMap((stack) => stack.frames.map((frame) => `${frame.file}:${frame.line}`));
  return [process.role, process.facts.state, process.facts.command, process.sample, process.last_output, ...frames].join("\u0000");
}

function Text({ title, text }: { title: string; text: string }) {
  return (
    <Part title={title}>
      <pre tabIndex={0} aria-label={title}>{text}</pre>
    </Part>
  );
}
