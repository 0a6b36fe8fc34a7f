// The words that all views share; they say the same as hangwatch/report/words.py does in the terminal.

import type { Certainty, ChainEnd, Culprit, Frame, Incident, Stage, Status, Verdict, Wait } from "./records";

import { TITLES } from "./titles";

const MOST_RUNS = 8;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

export const NO_VERDICT = "no cause can be named from this evidence";

/** Everything unprintable made visible; breaks of lines and tabs stay, for output and traces. */
export function clean(text: string): string {
  return text.replace(UNPRINTABLE, (character) => {
    if (character === "\n" || character === "\t") return character;
    const code = character.codePointAt(0)!;
    return code < 256 ? `\\x${hex(code, 2)}` : code < 65536 ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
  });
}

function hex(code: number, width: number): string {
  return code.toString(16).padStart(width, "0");
}

const MAY_NEED_CLEANING = /[^\x20-\x7e\n\t]|\\[bfru]/; // JSON of ASCII without such escapes has nothing unprintable

/** JSON from a rank or about one, with every string cleaned. */
export function parseClean<T>(text: string): T {
  if (!MAY_NEED_CLEANING.test(text)) return JSON.parse(text) as T;
  return JSON.parse(text, (_key, value) => (typeof value === "string" ? clean(value) : value)) as T;
}

/** 3.1 s, 95 s, 12 min 5 s, 3 h 20 min */
export function duration(seconds: number): string {
  seconds = Math.max(seconds, 0);
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  const rest = whole % 60;
  if (minutes < 120) return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} days`;
}

/** Milliseconds below a second: 3.2 ms, 410 ms, 1.42 s */
export function shortTime(seconds: number): string {
  if (seconds <= 0) return "0 s";
  if (seconds >= 1) return seconds < 9.95 ? `${seconds.toFixed(2)} s` : duration(seconds);
  const milliseconds = seconds * 1000;
  return `${milliseconds < 10 ? milliseconds.toFixed(1) : Math.round(milliseconds)} ms`;
}

/** The same for the marks of an axis, without places that say nothing: 0 s, 250 ms, 5 s, 2 min 30 s */
export function tickTime(seconds: number): string {
  if (seconds >= 120) return duration(seconds);
  return seconds >= 1 || seconds <= 0 ? `${Number(Math.max(0, seconds).toFixed(2))} s` : `${Number((seconds * 1000).toFixed(1))} ms`;
}

/** 512 B, 3.4 MiB, 80 GiB */
export function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(bytes) >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${bytes} B` : `${bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

/** Consecutive numbers as [first, last]. */
export function runs(numbers: Iterable<number>): [number, number][] {
  const result: [number, number][] = [];
  for (const number of [...new Set(numbers)].sort((a, b) => a - b)) {
    const last = result.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else result.push([number, number]);
  }
  return result;
}

/** 0-2 and 5 */
export function ranges(numbers: Iterable<number>): string {
  const found = runs(numbers);
  const words = found.slice(0, MOST_RUNS).map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`));
  const rest = found.slice(MOST_RUNS).reduce((sum, [first, last]) => sum + last - first + 1, 0);
  if (rest) words.push(`${rest} more`);
  return words.length < 2 ? (words[0] ?? "") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** "rank 3", "ranks 0-2 and 5", "no rank" */
export function ranks(numbers: Iterable<number>): string {
  const known = new Set(numbers);
  return known.size ? `rank${known.size > 1 ? "s" : ""} ${ranges(known)}` : "no rank";
}

/** The numbers of a text such as "0-3,8,7", in its order; nothing for text that is none, at most `most`. */
export function fromRanges(text: string, most = 100_000): number[] {
  const result: number[] = [];
  for (const part of text.split(/[\s,]+/)) {
    const match = /^(\d+)(?:-(\d+))?$/.exec(part);
    if (!match) continue;
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    for (let number = first; number <= last && result.length < most; number++) result.push(number);
  }
  return result;
}

export function baseName(path: string): string {
  return path.split("/").filter(Boolean).at(-1) ?? path;
}

/** A command line without the folder of its program, so that what is behind it has room. */
export function command(text: string): string {
  return text.replace(/^\S*\/(?=[^\s/]+(\s|$))/, "");
}

/** train.py:88 */
export function place(frame: Frame): string {
  const name = baseName(frame.file) || frame.file;
  return frame.line ? `${name}:${frame.line}` : name;
}

/** "", "loader worker", "child process": what a culprit is beside a rank. */
export function kindOf(who: Culprit): string {
  if (who.process === "rank") return "";
  if (who.process === "other") return who.rank === null ? "process" : "child process";
  return who.process.replaceAll("-", " ");
}

/** rank 3, pid 4711 on node-b */
export function culprit(who: Culprit): string {
  const kind = kindOf(who);
  const rank = who.rank === null ? "" : `rank ${who.rank}`;
  const name = kind && rank ? `${kind} of ${rank}` : kind || rank || "a process";
  return name + (who.pid === null ? "" : `, pid ${who.pid}`) + (who.host ? ` on ${who.host}` : "");
}

/** The edge as a sentence: rank 3 waits for ranks 0-2, in barrier 501 of group 0 (train.py:88). */
export function wait(edge: Omit<Wait, "rank">): string {
  const at = edge.where ? ` (${place(edge.where)})` : "";
  return edge.awaited.length ? `waits for ${ranks(edge.awaited)}, in ${edge.what}${at}` : `waits: ${edge.what}${at}`;
}

/** rank 1 sleeps in push (train.py:83); of several alike: ranks 1-2: each sleeps ... */
export function endOfChain(end: ChainEnd): string {
  return end.also.length ? `${ranks([end.rank, ...end.also])}: each ${end.does}` : `${ranks([end.rank])} ${end.does}`;
}

/** The chain of waits as sentences, from the victims to its end, as `hangwatch report` says it. */
export function chain(verdict: Pick<Verdict, "waits" | "culprits"> & Partial<Pick<Verdict, "ends">>): string[] {
  const blamed = new Set(verdict.culprits.map((who) => who.rank)); // culprits stand apart from their victims
  const alike = new Map<string, { edge: Wait; waiting: number[] }>();
  for (const edge of verdict.waits) {
    for (const rank of [edge.rank, ...(edge.also ?? [])]) {
      const key = JSON.stringify([edge.awaited, edge.what, edge.where, blamed.has(rank)]);
      const known = alike.get(key);
      if (known) known.waiting.push(rank);
      else alike.set(key, { edge, waiting: [rank] });
    }
  }
  const edges = [...alike.values()].map(({ edge, waiting }) => {
    const whom = edge.awaited.length ? ` for ${ranks(edge.awaited)}` : "";
    const at = edge.where ? ` (${place(edge.where)})` : "";
    return `${ranks(waiting)} ${waiting.length === 1 ? "waits" : "wait"}${whom} in ${edge.what}${at}`;
  });
  return [...edges, ...(verdict.ends ?? []).map(endOfChain)];
}

/** cause proven, cause likely, cause uncertain where the evidence points to one and fits others, cause not known */
export function cause(id: string, certainty: Certainty): string {
  return `cause ${sure(id, certainty)}`;
}

/** proven, likely, uncertain, not known */
export function sure(id: string, certainty: Certainty): Sure {
  if (certainty !== "undetermined") return certainty;
  return id === "undetermined" ? "not known" : "uncertain";
}

export type Sure = "proven" | "likely" | "uncertain" | "not known";

/** What people call a cause: its title in the catalogue, its id where it has none. */
export function title(id: string): string {
  return Object.hasOwn(TITLES, id) ? TITLES[id]! : id;
}

/** "exit code 1", "signal 15": how a command ended; "" for a good end, and where it is not known. */
export function ending(code: number | null): string {
  if (!code) return "";
  if (code < 0) return `signal ${-code}`;
  return code > 128 && code < 193 ? `signal ${code - 128}` : `exit code ${code}`; // a shell's way to say a signal
}

const WAS: Record<Status, string> = { hung: "was hung", waiting: "waited", lingering: "lingered", failed: "failed", recovered: "recovered" };

/** What was judged of a job that is over: "was hung, then ended (signal 15)". */
export function endedAs(status: Status, how: string): string {
  const end = how ? ` (${how})` : "";
  return status === "failed" ? `${WAS.failed}${end}` : `${WAS[status]}, then ended${end}`;
}

const FORECASTS = new Set(["uneven-forecast", "plans-differ"]);

/** A forecast's sentence once the job hangs, or is over: what was to come is no news any more. Null for other warnings. */
export function pastForecast(warning: { kind: string; summary: string }): string | null {
  if (!FORECASTS.has(warning.kind)) return null;
  return warning.summary.replace(/\bwill hang\b(.*?), unless .*$/s, "will hang$1").replace(/\bwill hang\b/g, "was going to hang");
}

/** The title of `verdict.argument`, by how sure it is that the job is dead. */
export function argumentTitle(hang: Certainty): string {
  return hang === "proven" ? "Proof that the job is dead" : "Why the job is called hung";
}

/** 3.1 s after the last step */
export function detected(incident: Incident): string {
  if (incident.status === "recovered") {
    const end = incident.closed_at ?? incident.updated_at;
    return `after ${duration(end - incident.opened_at + incident.detected_after_s)} without progress`;
  }
  return `${duration(incident.detected_after_s)} ${since(incident.status, incident.stage, stepped(incident))}`;
}

function stepped(incident: Incident): boolean {
  return incident.ranks.some((rank) => rank.progress !== null && rank.progress.step >= 0);
}

function since(status: Status, stage: Stage, stepped: boolean): string {
  if (status === "lingering" || stage === "exit") return "after the end of training";
  if (stepped) return "after the last step";
  return stage === "start" ? "after the start" : "after the last progress";
}

export function plural(count: number, noun: string, several = `${noun}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : several}`;
}

const ZONED: Intl.DateTimeFormatOptions = {
  day: "numeric",
  month: "short",
  year: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
  timeZoneName: "short",
};
const whole = new Intl.DateTimeFormat(undefined, ZONED);
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

/** A moment in the reader's zone, with the zone's name. */
export function moment(seconds: number): string {
  return whole.format(seconds * 1000);
}

const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });

/** The time of day of a moment today, else the day and the time. */
export function briefMoment(seconds: number, now = Date.now() / 1000): string {
  const then = day.format(seconds * 1000);
  return then === day.format(now * 1000) ? timeOfDay(seconds) : `${then}, ${timeOfDay(seconds)}`;
}

const weekday = new Intl.DateTimeFormat("en", { weekday: "long" });

/** A moment as a sentence ends with it: today at 09:56:23, on Tuesday at 14:02:10, on Nov 2, 2026 at 08:00:00 */
export function saidMoment(seconds: number, now = Date.now() / 1000): string {
  const days = Math.round((midnight(now) - midnight(seconds)) / 86_400_000); // rounded: days of 23 and 25 hours
  const then = days === 0 ? "today" : days === 1 ? "yesterday" : `on ${days > 0 && days < 7 ? weekday.format(seconds * 1000) : day.format(seconds * 1000)}`;
  return `${then} at ${timeOfDay(seconds)}`;
}

function midnight(seconds: number): number {
  return new Date(seconds * 1000).setHours(0, 0, 0, 0);
}

/** A time of day on an axis whose marks are `stride` seconds apart. */
export function tickMoment(seconds: number, stride: number): string {
  return timeOfDay(seconds) + (stride < 1 ? (seconds % 1).toFixed(1).slice(1) : "");
}

/** Hours, minutes, seconds in the reader's zone. */
export function timeOfDay(seconds: number): string {
  return clock.format(seconds * 1000);
}
