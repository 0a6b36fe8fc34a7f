// The verdict. The sentence is what the reader came for; everything else on the page supports it.

import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { mainStack, isUser } from "../model/frames";
import { lacks } from "../model/lacks";
import { markdown } from "../model/markdown";
import { Copy } from "../parts/copy";
import { StateIcon } from "../parts/icon";
import { Clamped, Prose, Site } from "../parts/bits";
import type { Alternative, Culprit, Frame, Incident, Job, Status, Verdict } from "../records";
import { role, type Scene } from "../scene";
import { argumentTitle, cause, culprit as sayCulprit, endedAs, kindOf, NO_VERDICT, ranges, ranks, type Sure, sure, title } from "../words";
import { Quoted } from "./excerpt";
import { Explained } from "./explained";

interface Props {
  scene: Scene;
  status: Status;
  verdict: Verdict;
  after: ComponentChildren; // "3.1 s after the last step"
  when: ComponentChildren;
  brief: boolean;
  ended?: string | null; // of a job that is over: how it ended, "" where that is not known
  copied?: { job: Pick<Job, "name" | "id">; link: string }; // what stands around the verdict where it is pasted
}

const LONG = 280;

function say(after: ComponentChildren): string {
  return typeof after === "string" && after ? `, ${after}` : "";
}

const SURE: Record<Sure, string> = {
  proven: "a fact of the system or independent witnesses that agree settle it",
  likely: "the evidence fits this cause and no other that hangwatch knows",
  uncertain: "the evidence points to this cause, and fits another one as well",
  "not known": "the evidence fits no cause that hangwatch knows, or several alike",
};

export function Banner({ scene, status, verdict, after, when, brief, ended = null, copied }: Props) {
  return (
    <section class={`verdict ${status} ${brief ? "brief" : ""} ${ended === null ? "" : "past"}`} aria-label="Verdict">
      <Who verdict={verdict} scene={scene} />
      <div class="says">
        <p class="kicker">
          <span class="status">
            <StateIcon state={status} /> {ended === null ? status : endedAs(status, ended)}
          </span>
          {verdict.hang && <span class="certainty" title={argumentTitle(verdict.hang)}>{verdict.hang}</span>}
          <span class="after">{after}</span>
          <span class="certainty" title={SURE[sure(verdict.cause, verdict.certainty)]}>{cause(verdict.cause, verdict.certainty)}</span>
          <span class="quiet">{when}</span>
        </p>
        <h2 class={`sentence ${verdict.summary.length > LONG ? "long" : ""}`}>{verdict.summary || NO_VERDICT}</h2>
        {!brief && verdict.details.slice(0, 3).map((sentence) => <p class="detail" key={sentence}>{sentence}</p>)}
        {!brief && copied && (
          <p class="tools">
            <Copy text={markdown(verdict, `${[ended === null ? status.toUpperCase() : endedAs(status, ended), verdict.hang].filter(Boolean).join(", ")}${say(after)}; ${cause(verdict.cause, verdict.certainty)}`, copied.job, copied.link, scene.doc.value?.check_next)} what="the verdict as Markdown" says="Copy as Markdown" />
            {copied.link && <Copy text={copied.link} what="the address of this verdict" says="Copy link" />}
          </p>
        )}
      </div>
      {!brief && <Rows verdict={verdict} scene={scene} />}
    </section>
  );
}

/** Who is at fault, large enough to be read from across the room. */
function Who({ verdict, scene }: { verdict: Verdict; scene: Scene }) {
  const blamed = [...new Set(verdict.culprits.flatMap((who) => (who.rank === null ? [] : [who.rank])))];
  const first = verdict.culprits[0];
  if (!first) {
    return (
      <div class="who nobody">
        <span class="label">no rank is blamed</span>
      </div>
    );
  }
  const kind = kindOf(first);
  const hosts = [...new Set(verdict.culprits.map((who) => who.host).filter(Boolean))];
  const number = ranges(blamed);
  const inside = (
    <>
      <span class="label">{kind ? (blamed.length ? `${kind} of` : kind) : ""} {blamed.length ? (blamed.length > 1 ? "ranks" : "rank") : ""}</span>
      <span class={`number ${number.length > 4 ? "long" : ""}`}>{number || (first.pid === null ? "?" : `pid ${first.pid}`)}</span>
      {hosts.length > 0 && <span class="host">{hosts.length > 2 ? `${hosts.length} hosts` : hosts.join(", ")}</span>}
    </>
  );
  return blamed.length === 1 ? (
    <a class="who" href={scene.link("ranks", blamed[0])}>{inside}<span class="offscreen"> is {role(scene)}: open it</span></a>
  ) : (
    <div class="who">{inside}</div>
  );
}

function Rows({ verdict, scene }: { verdict: Verdict; scene: Scene }) {
  const doc = scene.doc.value;
  const lost = doc ? lacks(doc.capture) : [];
  const checks = doc?.check_next ?? []; // reports of older versions have none
  const who = verdict.culprits.length > 0 && (
    <Row label="Who" kind="who">
      <Culprits blamed={verdict.culprits} doc={doc} />
    </Row>
  );
  const reasons = (
    <>
      {verdict.fix && (
        <Row label="Fix" kind="fix">
          <p class="fix"><Prose text={verdict.fix} /></p>
          <Copy text={verdict.fix} what="the fix" />
        </Row>
      )}
      <Row label="Cause" kind="why">
        <Explained id={verdict.cause} docs={verdict.docs} fix={verdict.fix} />
        <p class="sure"><strong>{cause(verdict.cause, verdict.certainty)}</strong>: {SURE[sure(verdict.cause, verdict.certainty)]}</p>
      </Row>
      {verdict.evidence.length > 0 && (
        <Row label="Evidence" kind="seen">
          <Sentences of={verdict.evidence} />
        </Row>
      )}
      {verdict.hang && verdict.argument.length > 0 && (
        <Row label={verdict.hang === "proven" ? "Proof" : "Hung"} kind="proof">
          <p class="sure"><strong>{argumentTitle(verdict.hang)}</strong></p>
          <Sentences of={verdict.argument} />
        </Row>
      )}
      {checks.length > 0 && (
        <Row label="Next time" kind="next">
          <p class="sure">What to check first:</p>
          <ul>{checks.map((each) => <li key={each.command}><code>{each.command}</code> ({each.check}): <Prose text={each.why} /></li>)}</ul>
        </Row>
      )}
      {lost.length > 0 && (
        <Row label="Unavailable" kind="lacks">
          <Sentences of={lost} />
        </Row>
      )}
    </>
  );
  const open = verdict.alternatives.filter((other) => other.open);
  const excluded = verdict.alternatives.filter((other) => !other.open);
  const rest = verdict.alternatives.length > 0 && (
    <>
      {open.length > 0 && (
        <Row label="Not excluded" kind="not">
          <Alternatives others={open} />
        </Row>
      )}
      {excluded.length > 0 && (
        <Row label="Ruled out" kind="not">
          <Alternatives others={excluded} />
        </Row>
      )}
    </>
  );
  return (
    <div class="reasons">
      <dl class="rows">{who ? <>{who}{rest}</> : reasons}</dl>
      <dl class="rows aside">{who ? reasons : rest}</dl>
    </div>
  );
}

const MOST_SENTENCES = 6;

/** Sentences, of which the first are shown where they are many. */
function Sentences({ of: sentences }: { of: readonly string[] }) {
  const open = useSignal(false);
  const shown = open.value ? sentences : sentences.slice(0, MOST_SENTENCES);
  return (
    <>
      <ul>{shown.map((sentence) => <li key={sentence}><Clamped>{sentence}</Clamped></li>)}</ul>
      {sentences.length > MOST_SENTENCES && (
        <button type="button" class="link" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
          {open.value ? "show less" : `show ${sentences.length - MOST_SENTENCES} more`}
        </button>
      )}
    </>
  );
}

function Culprits({ blamed, doc }: { blamed: Culprit[]; doc: Incident | null }) {
  const few = blamed.slice(0, 3);
  return (
    <>
      <ul class="plain">
        {few.map((who, index) => (
          <li key={sayCulprit(who)}>
            {sayCulprit(who)}
            <Code culprit={who} doc={doc} quoted={!few.slice(0, index).some((other) => sameLine(who, other))} />
          </li>
        ))}
      </ul>
      {blamed.length > few.length && <p>and {blamed.length - few.length} more: {ranks(blamed.flatMap((who) => who.rank ?? []))}</p>}
    </>
  );
}

function Row({ label, kind, children }: { label: string; kind: string; children: ComponentChildren }) {
  return (
    <div class={`row row-${kind}`}>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function sameLine(one: Culprit, other: Culprit): boolean {
  return one.where?.file === other.where?.file && one.where?.line === other.where?.line;
}

/** The line of code with its surroundings, and how the rank's own code came there. */
function Code({ culprit, doc, quoted }: { culprit: Culprit; doc: Incident | null; quoted: boolean }) {
  const where = culprit.where;
  if (!where) return null;
  const path = doc ? around(where, culprit, doc) : [];
  return (
    <div class="code">
      <ol aria-label="The line of code, and the lines that led to it">
        {path.map((frame) => (
          <li key={`${frame.file}:${frame.line}`}>
            <Site frame={frame} />
          </li>
        ))}
        <li class="line">
          <Site frame={where} />
        </li>
      </ol>
      <span class="file">{where.file}{where.line ? `:${where.line}` : ""}</span>
      <Copy text={`${where.file}:${where.line}`} what="the place" />
      {quoted && culprit.excerpt && <Quoted excerpt={culprit.excerpt} />}
    </div>
  );
}

/** The user's own frames outside `where` in the culprit's stack, outermost first. */
function around(where: Frame, culprit: Culprit, doc: Incident): Frame[] {
  const rank = doc.ranks.find((rank) => rank.rank === culprit.rank);
  const other = [...(rank?.workers ?? []), ...(rank?.children ?? [])].find((process) => process.facts.pid === culprit.pid);
  const frames = mainStack(culprit.process === "rank" ? (rank ?? null) : (other ?? null))?.frames ?? [];
  const place = frames.findIndex((frame) => frame.file === where.file && frame.line === where.line);
  return place < 0 ? [] : frames.slice(place + 1).filter(isUser).slice(0, 4).reverse();
}

function Alternatives({ others }: { others: Alternative[] }) {
  return (
    <ul>
      {others.map((other) => (
        <li key={other.cause}>
          <b>{title(other.cause)}</b>
          {title(other.cause) !== other.cause && <>{" "}<code class="quiet">{other.cause}</code></>}: <Prose text={other.why_not} />
        </li>
      ))}
    </ul>
  );
}
