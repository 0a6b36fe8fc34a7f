// The verdict as Markdown, to be pasted into an issue or a chat; the same as `hangwatch report --markdown` writes.

import type { Job, NextCheck, Verdict } from "../records";
import { cause, chain, culprit, title } from "../words";

const MOST = 10;
const MOST_DETAILS = 3;

/** `headline` is "HUNG, proven, 3.1 s after the last step"; `link` where the rest stands, "" for nowhere. */
export function markdown(verdict: Verdict, headline: string, job: Pick<Job, "name" | "id">, link: string, checks: readonly NextCheck[] = []): string {
  const said = [verdict.summary, ...verdict.details.slice(0, MOST_DETAILS)].join(" ");
  const parts = [`**${plain(headline)}** in \`${code(job.name || job.id)}\``, `> ${plain(said)}`, rows(verdict), excerpt(verdict), list("Evidence", verdict.evidence), others(verdict, "Not excluded", true), others(verdict, "Ruled out", false), nextTime(checks), link && `More: <${link}>`];
  return `${parts.filter(Boolean).join("\n\n")}\n`;
}

function rows(verdict: Verdict): string {
  const lines = [`- **Cause:** ${named(verdict.cause)}, ${cause(verdict.cause, verdict.certainty)}`];
  for (const who of verdict.culprits.slice(0, MOST)) {
    const at = who.where ? ` at \`${code(`${who.where.file}:${who.where.line}`)}\`` : "";
    lines.push(`- **Who:** ${plain(culprit(who))}${at}`);
  }
  if (verdict.culprits.length > MOST) lines.push(`- and ${verdict.culprits.length - MOST} more`);
  const waits = chain(verdict);
  if (waits.length) lines.push(`- **Chain:** ${plain(waits.slice(0, MOST).join("; "))}`);
  if (verdict.fix) lines.push(`- **Fix:** ${plain(verdict.fix)}`);
  return lines.join("\n");
}

function excerpt(verdict: Verdict): string {
  const found = verdict.culprits.find((who) => who.excerpt)?.excerpt;
  if (!found) return "";
  const lines = found.lines.map((line, index) => `${found.first + index === found.line ? ">" : " "} ${String(found.first + index).padStart(4)} ${line.replaceAll("```", "'''")}`);
  return `\`\`\`python\n${lines.join("\n")}\n\`\`\``;
}

function list(name: string, sentences: readonly string[]): string {
  return sentences.length ? `**${name}**\n\n${sentences.slice(0, MOST).map((sentence) => `- ${plain(sentence)}`).join("\n")}` : "";
}

function others(verdict: Verdict, name: string, open: boolean): string {
  const lines = verdict.alternatives.filter((other) => Boolean(other.open) === open).slice(0, MOST)
    .map((other) => `- ${named(other.cause)}: ${plain(other.why_not)}`);
  return lines.length ? `**${name}**\n\n${lines.join("\n")}` : "";
}

function nextTime(checks: readonly NextCheck[]): string {
  const lines = checks.slice(0, MOST).map((each) => `- \`${code(each.command)}\` (${plain(each.check)}): ${plain(each.why)}`);
  return lines.length ? `**Next time, check first**\n\n${lines.join("\n")}` : "";
}

/** The cause's title with its id; the id alone, as text, where the catalogue has no title. */
function named(id: string): string {
  const name = title(id);
  return name === id ? plain(name) : `${plain(name)} (\`${code(id)}\`)`;
}

/** A sentence on one line without markup and without mentions, except `code`, where a backslash would be shown. */
function plain(text: string): string {
  const line = text.replace(/\s+/g, " ").trim();
  const runs = [...line.matchAll(/`+/g)];
  let [made, start] = ["", 0];
  runs.forEach((run, number) => {
    if (run.index < start) return; // inside of a code span, which ends at the next run of as many backticks
    const end = runs.slice(number + 1).find((other) => other[0].length === run[0].length);
    if (!end) return;
    const after = end.index + end[0].length;
    made += escaped(line.slice(start, run.index)) + line.slice(run.index, after);
    start = after;
  });
  return (made + escaped(line.slice(start))).replace(/^>/, "\\>").replaceAll("@", "@\u200b"); // ">" is markup at the start alone
}

function escaped(text: string): string {
  return text.replace(/[\\*<[\]|#`]/g, (sign) => `\\${sign}`);
}

function code(text: string): string {
  return text.replace(/\s+/g, " ").replaceAll("`", "'");
}
